"""Every metric of a log line against the same metric counted in plain Python, step by step."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
import programs
from ppo_mask.ppo._ppo import _METRICS
from ppo_mask.training._metrics import emptied, summarize

ENVS, STEPS, INTERVAL, UPDATES = 3, 5, 2, 6


class Walks(pm.AbstractEnv[Any]):
    """Episodes of a length drawn at their beginning; one of three rewards depends on the action.

    With ``shortest = longest = 1`` every step ends an episode; with a length that is never reached,
    none does.
    """

    shortest: jax.Array = eqx.field(converter=jnp.int32)  # Arrays: all cases are one program.
    longest: jax.Array = eqx.field(converter=jnp.int32)
    num_actions: int = eqx.field(static=True, default=3)

    def reset(self, key: Any) -> tuple[Any, pm.TimeStep]:
        length = jax.random.randint(key, (), self.shortest, self.longest + 1)
        return (jnp.int32(0), length), self._show(jnp.int32(0), length, jnp.int32(0))

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, pm.TimeStep]:
        steps, length = state
        return (steps + 1, length), self._show(steps + 1, length, action)

    def _show(self, steps: Any, length: Any, action: Any) -> pm.TimeStep:
        parts = {"pace": -0.25 * steps, "choice": 0.5 * action, "length": 1.0 * length}
        over = steps >= length
        return pm.TimeStep(
            observation=jnp.float32(steps)[None],
            action_mask=(jnp.arange(3) <= steps % 3) | over,
            reward=sum(parts.values()) + jnp.float32(0),
            terminated=over & (length % 2 == 0),
            truncated=over & (length % 2 == 1),
            info={f"reward/{k}": jnp.float32(x) for k, x in parts.items()} | {"length": length},
        )


PARTS = ("reward/pace", "reward/choice", "reward/length")
METRICS = {
    **{name: pm.Metric(lambda action, info, name=name: info[name]) for name in PARTS},
    **{f"actions/{n}": pm.Metric(lambda action, info, n=n: action == n) for n in range(3)},
    "stats/mean_length": pm.Metric(lambda action, info: info["length"], over="episodes"),
    "stats/longest": pm.Metric(lambda action, info: info["length"], over="episodes", reduce="max"),
    "seen/longest": pm.Metric(lambda action, info: info["length"], reduce="max"),
    "odd/return": pm.Metric(
        lambda action, info: info["episode_return"],
        over="episodes",
        where=lambda info: info["length"] % 2,
    ),
    "first/action": pm.Metric(
        lambda action, info: action, reduce="max", where=lambda info: info["episode_length"] == 1
    ),
}
CONFIG = pm.PPO(num_envs=ENVS, num_steps=STEPS, num_minibatches=3, update_epochs=2, anneal_lr=True)


@eqx.filter_jit
def one_update(trainer: pm.Trainer, state: Any) -> Any:
    return trainer.update(state, jnp.int32(UPDATES))


def lines_and_by_hand(env: Walks) -> list[tuple[dict[str, float], dict[str, float]]]:
    """The log lines, and the same of what was done, counted without what gathers metrics."""
    model = pm.MLPActorCritic(1, 3, 4, 1, key=jax.random.key(0))
    trainer = pm.Trainer(env, CONFIG, metrics=METRICS)
    state = trainer.init(model, jax.random.key(1))
    returns, lengths = [0.0] * ENVS, [0] * ENVS
    lines: list[tuple[dict[str, float], dict[str, float]]] = []
    gathered: dict[str, list[float]] = {}
    for update in range(1, UPDATES + 1):
        state, *rest = one_update(trainer, state)
        rollout, learned = jax.device_get(rest)
        for t in range(STEPS):
            for e in range(ENVS):
                reward, action = float(rollout.reward[t, e]), int(rollout.decision.action[t, e])
                length = int(rollout.info["length"][t, e])
                returns[e] += reward
                lengths[e] += 1
                now = {"reward": reward, "seen/longest": length}
                now |= {name: float(rollout.info[name][t, e]) for name in PARTS}
                now |= {f"actions/{n}": float(action == n) for n in range(3)}
                now |= {"first/action": float(action)} if lengths[e] == 1 else {}
                now["max_entropy"] = math.log(sum(map(bool, rollout.decision.action_mask[t, e])))
                if rollout.terminated[t, e] or rollout.truncated[t, e]:
                    now |= {"return": returns[e], "length": lengths[e], "drawn": length}
                    now |= {"odd/return": returns[e]} if length % 2 else {}
                    returns[e], lengths[e] = 0.0, 0
                for name, value in now.items():
                    gathered.setdefault(name, []).append(value)
        for name, number in learned.items():
            gathered.setdefault(name, []).append(float(number))
        gathered["lr"] = [float(learned["lr"])]  # The last one, not a mean.
        if update % INTERVAL == 0:
            lines.append((summarize(state.totals), _line(gathered)))
            gathered, state = {}, eqx.tree_at(lambda s: s.totals, state, emptied(state.totals))
    return lines


def _line(gathered: dict[str, list[float]]) -> dict[str, float]:
    mean = {name: sum(values) / len(values) for name, values in gathered.items()}
    line = {name: mean[name] for name in METRICS if name in mean}
    line["seen/longest"] = max(gathered["seen/longest"])
    line |= {name: max(gathered[name]) for name in ("first/action",) if name in gathered}
    line["train/mean_reward"] = mean["reward"]
    line["train/num_episodes"] = len(gathered.get("return", []))
    if "return" in gathered:
        line["train/mean_episode_return"] = mean["return"]
        line["train/mean_episode_length"] = mean["length"]
        line["stats/mean_length"] = mean["drawn"]
        line["stats/longest"] = max(gathered["drawn"])
    for name in ("max_entropy", *_METRICS):
        line[f"train/{name}"] = mean[name]
    return line


@pytest.mark.parametrize(
    ("shortest", "longest", "ended"),
    [
        pytest.param(1, 8, None, id="most episodes cross a border"),
        pytest.param(1000, 1000, 0, id="no episode ends"),
        pytest.param(1, 1, ENVS * STEPS * INTERVAL, id="every step ends one"),
        pytest.param(5, 5, ENVS * INTERVAL, id="episodes end with the rollouts"),
    ],
)
def test_every_metric_is_that_counted_by_hand(
    shortest: int, longest: int, ended: int | None
) -> None:
    lines = lines_and_by_hand(Walks(shortest, longest))
    assert len(lines) == UPDATES // INTERVAL
    for line, expected in lines:
        assert line.keys() == expected.keys()
        assert all(type(x) is float for x in line.values())
        for name, value in expected.items():
            np.testing.assert_allclose(line[name], value, rtol=2e-5, atol=1e-6, err_msg=name)
        assert sum(line[name] for name in PARTS) == pytest.approx(line["train/mean_reward"])
        assert sum(line[f"actions/{n}"] for n in range(3)) == pytest.approx(1)
        if ended is not None:
            assert line["train/num_episodes"] == ended
        if ended == 0:
            absent = {"train/mean_episode_return", "train/mean_episode_length", "stats/longest"}
            assert not {*absent, "stats/mean_length", "odd/return"} & line.keys()


@pytest.mark.parametrize(
    ("make", "length", "choices"), [(programs.locks, 5, 1), (programs.doors, 3, 3)]
)
def test_a_trainer_logs_them(make: Any, length: int, choices: int) -> None:
    history = make().train(6)[1]
    done = [8 * (n // length) for n in range(0, 49, 8)]  # Episodes of eight environments.
    assert history["train/num_episodes"].tolist() == np.diff(done).tolist()
    assert (history["train/mean_episode_length"] == length).all()
    # A mask allows two keys for each lock, and a policy that has not learned draws about evenly.
    np.testing.assert_allclose(history["train/max_entropy"], choices * np.log(2), rtol=1e-5)
    np.testing.assert_allclose(history["train/entropy"], choices * np.log(2), rtol=0.02)
    assert history["actions/last"].max() == (7 if choices == 1 else 5)
    np.testing.assert_allclose(history["train/lr"], 1e-3 * (1 - (np.arange(6) + 0.75) / 6), 1e-4)
