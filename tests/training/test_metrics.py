import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_mask.ppo import Transition, UpdateDiagnostics
from ppo_mask.training import Metric, add_update, empty_totals, summarize

_METRICS = {
    "stats/win_rate": Metric(lambda action, info: info["won"], over="episodes"),
    "stats/highest": Metric(lambda action, info: info["stage"], over="episodes", reduce="max"),
    "seen/highest": Metric(lambda action, info: info["stage"], reduce="max"),
    "actions/zero": Metric(lambda action, info: action == 0),
}


def _transition(reward, ended, episode_return, episode_length, won, stage, action):
    shape = np.shape(reward)
    zeros = jnp.zeros(shape)
    return Transition(
        observation=zeros,
        action_mask=jnp.ones((*shape, 2), bool),
        action=jnp.array(action),
        log_prob=zeros,
        value=zeros,
        reward=jnp.array(reward, jnp.float32),
        terminated=jnp.array(ended, bool),
        truncated=jnp.zeros(shape, bool),
        final_value=zeros,
        info={"won": jnp.array(won, bool), "stage": jnp.array(stage)},
        episode_return=jnp.array(episode_return, jnp.float32),
        episode_length=jnp.array(episode_length),
    )


def _diagnostics(x):
    values = dict.fromkeys(UpdateDiagnostics.zeros().named, jnp.array([x, x + 2.0]))
    single = {"explained_variance": jnp.float32(x), "gradient_steps": jnp.float32(2)}
    return UpdateDiagnostics(**{**values, **single})


@pytest.fixture(scope="module")
def add():
    return jax.jit(lambda totals, t, d: add_update(totals, _METRICS, t, d))


def test_figures_over_two_rollouts_by_hand(add):
    # One environment's episode of three steps crosses the border between the rollouts.
    first = _transition(
        [[1, 5], [2, 6]], [[0, 0], [0, 1]], [[1, 5], [3, 11]], [[1, 1], [2, 2]],
        [[0, 0], [0, 1]], [[1, 2], [1, 3]], [[0, 1], [0, 1]],
    )  # fmt: skip
    second = _transition(
        [[3, 7], [4, 8]], [[1, 0], [0, 0]], [[6, 7], [4, 15]], [[3, 1], [1, 2]],
        [[0, 0], [0, 0]], [[1, 2], [1, 9]], [[0, 0], [0, 1]],
    )  # fmt: skip
    totals = empty_totals(_METRICS, UpdateDiagnostics.zeros())
    totals = add(totals, first, _diagnostics(1.0))
    totals = add(totals, second, _diagnostics(3.0))
    values = summarize(totals, _METRICS)
    assert values["train/mean_reward"] == 36 / 8
    assert values["train/num_episodes"] == 2
    assert values["train/mean_episode_return"] == (11 + 6) / 2
    assert values["train/mean_episode_length"] == (2 + 3) / 2
    assert values["stats/win_rate"] == 0.5
    assert values["stats/highest"] == 3
    assert values["seen/highest"] == 9
    assert values["actions/zero"] == 5 / 8
    assert values["train/entropy"] == (2 + 4) / 2
    assert values["train/explained_variance"] == 2
    assert values["train/lr"] == 5  # The last one, not a mean.


def test_no_point_where_no_episode_ended(add):
    zeros = np.zeros((2, 2), int)
    rollout = _transition(zeros, zeros, zeros, zeros, zeros, zeros, zeros)
    values = summarize(
        add(empty_totals(_METRICS, UpdateDiagnostics.zeros()), rollout, _diagnostics(0.0)), _METRICS
    )
    assert values["train/num_episodes"] == 0
    absent = ["train/mean_episode_return", "train/mean_episode_length", "stats/win_rate"]
    assert not {*absent, "stats/highest"} & values.keys()
    assert {"train/mean_reward", "actions/zero", "seen/highest"} <= values.keys()
    assert all(type(x) is float for x in values.values())
