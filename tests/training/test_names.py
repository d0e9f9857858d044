"""What a program may call its metrics: a report of one that goes wrong is one line here."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
import programs
from ppo_mask.callbacks import Evaluator, HealthChecks
from ppo_mask.training import Run
from ppo_mask.training._names import OF_TRAINING, check_logged_names, check_metric_names

ANY = pm.Metric(lambda action, info: action)
MALFORMED = ["", " ", "\t", "two\nlines", " stats/a", "\x1b[1m", "\ud800"]
OF_EACH_LINE = ["step", "update", "_step", "_timestamp"]
OF_THE_LIBRARY = [
    "train/entropy",
    "train/lr",
    "train/mean_reward",
    "train/steps_per_second",
    "train/of_ones_own",
    "eval/mean_episode_return",
    "eval/of_ones_own",
    "seeds/return_std",
    "mean_episode_return",
    "mean_reward",
    "num_episodes",
]
FINE = ["a", "time", "steps", "training/a", "stats/Ünïcode", "two words", "a.b", "{braces}", "100%"]
ENV, CONFIG = programs.locks().env, programs.locks().config
MODEL = programs.locks().make_model(jax.random.key(0))
KEY = jax.random.key(1)


def assert_refused(name: Any, use: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="a metric cannot be called ") as caught:
        use()
    assert f" {name!r}: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", [*MALFORMED, *OF_EACH_LINE, *OF_THE_LIBRARY, 3, None, ("a",), b"a"]
)
def test_a_metric_is_refused_by_its_name(name: Any) -> None:
    assert_refused(name, lambda: check_metric_names(["stats/good", name]))


@pytest.mark.parametrize("name", [*MALFORMED, *OF_EACH_LINE])
def test_a_callbacks_metric_is_refused_by_its_name(name: Any) -> None:
    assert_refused(name, lambda: Run(CONFIG, 0, 1, []).log({name: 1.0}))


@pytest.mark.parametrize("name", ["max_entropy", "mean_reward", "steps_per_second"])
def test_an_algorithms_metric_replaces_none_of_the_librarys(name: str) -> None:
    assert_refused(name, lambda: check_logged_names(["fine", name], OF_TRAINING))


@pytest.mark.parametrize("name", ["lr", "grad_norm", "gradient_steps", "explained_variance"])
def test_a_losss_metric_replaces_none_of_its_algorithm(name: str) -> None:
    def loss(*arguments: Any) -> Any:
        total, metrics = pm.ppo.ppo_loss(*arguments)
        return total, {**metrics, name: total}

    own = dataclasses.replace(CONFIG, loss=loss)
    assert_refused(name, lambda: pm.Trainer(ENV, own).init(MODEL, KEY))


def test_all_that_takes_metrics_looks_at_their_names() -> None:
    metrics = {"stats/good": ANY, "step": ANY}
    assert_refused("step", lambda: pm.Trainer(ENV, CONFIG, metrics=metrics))
    assert_refused("step", lambda: pm.evaluate(MODEL, ENV, KEY, 1, metrics=metrics))
    assert_refused("step", lambda: Evaluator(ENV, KEY, 1, metrics=metrics))


@pytest.mark.parametrize("name", FINE)
def test_any_other_name_is_fine_in_all_of_them(name: str) -> None:
    pm.Trainer(ENV, CONFIG, metrics={name: ANY})
    Evaluator(ENV, KEY, 1, metrics={name: ANY})
    messages: list[str] = []
    run = Run(CONFIG, 0, 1, [HealthChecks(messages.append)])
    run.log({name: float("nan")})
    assert messages == [f"update 0: {name} is nan: look at where it is computed"]


@pytest.mark.parametrize("value", [1, True, np.float32(1), jnp.ones(())])
def test_any_sort_of_number_is_logged_as_a_float(value: Any) -> None:
    history = pm.History()
    Run(CONFIG, 0, 1, [history]).log({"a": value})
    assert (history.records[0].values, type(history.records[0].values["a"])) == ({"a": 1.0}, float)


@pytest.mark.parametrize("value", ["high", None, np.ones(2)])
def test_what_is_no_number_is_refused_by_its_name(value: Any) -> None:
    with pytest.raises(ValueError, match="the metric stats/a must be a number, got"):
        Run(CONFIG, 0, 1, []).log({"stats/a": value})


def test_a_column_of_the_table_hides_no_other(capsys: Any) -> None:
    table = pm.callbacks.ConsoleLog({"update": "stats/a", "steps": "stats/b"})
    run = Run(CONFIG, 0, 9, [table])
    run.update = 3
    run.log({"train/entropy": 1.0, "stats/a": 25.0, "stats/b": 26.0})
    heads, values = (line.split() for line in capsys.readouterr().out.splitlines())
    assert " ".join(heads) == ("update steps steps/s left return length entropy kl update steps")
    assert [values[0], values[1], *values[-2:]] == ["3", "192", "25", "26"]
