"""Every figure of a log line against the same figure counted in plain Python, step by step."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_mask import ppo
from ppo_mask.envs import AbstractEnv, TimeStep, VectorEnv
from ppo_mask.networks import MLPActorCritic
from ppo_mask.ppo import PPOConfig, UpdateDiagnostics
from ppo_mask.training import Callback, LogRecord, Metric, Run, Trainer, TrainState

ENVS, STEPS, INTERVAL, UPDATES = 3, 5, 2, 6


class Walks(AbstractEnv[Any]):
    """Episodes of a length drawn at their beginning; one of three rewards depends on the action.

    With ``shortest = longest = 1`` every step ends an episode; with a length that is never reached,
    none does.
    """

    shortest: jax.Array = eqx.field(converter=jnp.int32)  # Arrays: all cases are one program.
    longest: jax.Array = eqx.field(converter=jnp.int32)
    num_actions: int = eqx.field(static=True, default=3)

    def reset(self, key: Any) -> tuple[Any, TimeStep]:
        length = jax.random.randint(key, (), self.shortest, self.longest + 1)
        return (jnp.int32(0), length), self._show(jnp.int32(0), length, jnp.int32(0))

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, TimeStep]:
        steps, length = state
        return (steps + 1, length), self._show(steps + 1, length, action)

    def _show(self, steps: Any, length: Any, action: Any) -> TimeStep:
        parts = {"pace": -0.25 * steps, "choice": 0.5 * action, "length": 1.0 * length}
        over = steps >= length
        return TimeStep(
            observation=jnp.float32(steps)[None],
            action_mask=(jnp.arange(3) <= steps % 3) | over,
            reward=sum(parts.values()) + jnp.float32(0),
            terminated=over & (length % 2 == 0),
            truncated=over & (length % 2 == 1),
            info={f"reward/{k}": jnp.float32(x) for k, x in parts.items()} | {"length": length},
        )


def component(name: str) -> Metric:
    return Metric(lambda action, info: info[name])


PARTS = ("reward/pace", "reward/choice", "reward/length")
METRICS = {name: component(name) for name in PARTS} | {
    **{f"actions/{n}": Metric(lambda action, info, n=n: action == n) for n in range(3)},
    "stats/mean_length": Metric(lambda action, info: info["length"], over="episodes"),
    "stats/longest": Metric(lambda action, info: info["length"], over="episodes", reduce="max"),
    "seen/longest": Metric(lambda action, info: info["length"], reduce="max"),
}


def begin(env: Walks, config: PPOConfig) -> TrainState:
    model = MLPActorCritic(1, 3, 4, 1, key=jax.random.key(0))
    return Trainer(env, config, metrics=METRICS).init(model, jax.random.key(1))


@eqx.filter_jit
def one_update(env: Walks, config: PPOConfig, learner: Any) -> Any:
    return ppo.update(VectorEnv(env, ENVS), config, learner, jnp.asarray(UPDATES))


def counted_by_hand(env: Walks, config: PPOConfig) -> list[dict[str, float]]:
    """The same updates one by one; nothing of what gathers figures in the library is used."""
    learner = begin(env, config).learner
    returns, lengths = [0.0] * ENVS, [0] * ENVS
    lines: list[dict[str, float]] = []
    gathered: dict[str, list[float]] = {}
    for update in range(1, UPDATES + 1):
        learner, rollout, diagnostics = one_update(env, config, learner)
        rollout, diagnostics = jax.device_get((rollout, diagnostics))
        for t in range(STEPS):
            for e in range(ENVS):
                reward, action = float(rollout.reward[t, e]), int(rollout.action[t, e])
                length = int(rollout.info["length"][t, e])
                returns[e] += reward
                lengths[e] += 1
                now = {"reward": reward, "seen/longest": length}
                now |= {name: float(rollout.info[name][t, e]) for name in PARTS}
                now |= {f"actions/{n}": float(action == n) for n in range(3)}
                now["max_entropy"] = math.log(sum(map(bool, rollout.action_mask[t, e])))
                if rollout.terminated[t, e] or rollout.truncated[t, e]:
                    now |= {"return": returns[e], "length": lengths[e], "drawn": length}
                    returns[e], lengths[e] = 0.0, 0
                for name, value in now.items():
                    gathered.setdefault(name, []).append(value)
        for name, numbers in diagnostics.named.items():  # One a gradient step, or one alone.
            gathered.setdefault(name, []).extend(map(float, np.ravel(numbers)))
        gathered["lr"] = [float(diagnostics.lr[-1])]
        if update % INTERVAL == 0:
            lines.append(_line(gathered))
            gathered = {}
    return lines


def _line(gathered: dict[str, list[float]]) -> dict[str, float]:
    mean = {name: sum(values) / len(values) for name, values in gathered.items()}
    line = {name: mean[name] for name in METRICS if name in mean}
    line["seen/longest"] = max(gathered["seen/longest"])
    line["train/mean_reward"] = mean["reward"]
    line["train/num_episodes"] = len(gathered.get("return", []))
    if "return" in gathered:
        line["train/mean_episode_return"] = mean["return"]
        line["train/mean_episode_length"] = mean["length"]
        line["stats/mean_length"] = mean["drawn"]
        line["stats/longest"] = max(gathered["drawn"])
    for name in ("max_entropy", *UpdateDiagnostics.zeros().named):
        line[f"train/{name}"] = mean[name]
    return line


class Keep(Callback):
    def __init__(self) -> None:
        self.lines: list[dict[str, float]] = []

    def on_log(self, run: Run, record: LogRecord) -> None:
        self.lines.append(record.values)


@pytest.mark.parametrize(
    ("shortest", "longest", "ended"),
    [
        pytest.param(1, 8, None, id="most episodes cross a border"),
        pytest.param(1000, 1000, 0, id="no episode ends"),
        pytest.param(1, 1, ENVS * STEPS * INTERVAL, id="every step ends one"),
        pytest.param(5, 5, ENVS * INTERVAL, id="episodes end with the rollouts"),
    ],
)
def test_every_figure_is_that_counted_by_hand(
    shortest: int, longest: int, ended: int | None
) -> None:
    env = Walks(shortest, longest)
    config = PPOConfig(
        num_envs=ENVS, num_steps=STEPS, num_minibatches=3, update_epochs=2, anneal_lr=True
    )
    keep = Keep()
    Trainer(env, config, metrics=METRICS).train(
        begin(env, config), UPDATES * config.batch_size, callbacks=[keep], log_interval=INTERVAL
    )
    by_hand = counted_by_hand(env, config)
    assert len(keep.lines) == len(by_hand) == UPDATES // INTERVAL
    for line, expected in zip(keep.lines, by_hand, strict=True):
        assert line.keys() - expected.keys() == {"train/steps_per_second"}
        for name, value in expected.items():
            np.testing.assert_allclose(line[name], value, rtol=2e-5, atol=1e-6, err_msg=name)
        assert sum(line[name] for name in PARTS) == pytest.approx(line["train/mean_reward"])
        assert sum(line[f"actions/{n}"] for n in range(3)) == pytest.approx(1)
        if ended is not None:
            assert line["train/num_episodes"] == ended
        if ended == 0:
            assert not {"train/mean_episode_return", "stats/longest"} & line.keys()
