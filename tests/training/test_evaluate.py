import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.envs.probes import MaskedLocks
from ppo_mask.networks import AbstractActorCritic, MaskedCategorical, MLPActorCritic
from ppo_mask.training import Metric, evaluate


class _ShortOrLong(AbstractEnv):
    """Episodes of 1 step or of 21, half and half; return = length; the reward is 1 per step."""

    num_actions: int = eqx.field(static=True, default=2)

    def reset(self, key):
        length = jnp.where(jax.random.bernoulli(key), 21, 1)
        return (jnp.int32(0), length), self._timestep(jnp.int32(0), length)

    def step(self, key, state, action):
        steps, length = state
        return (steps + 1, length), self._timestep(steps + 1, length)

    def _timestep(self, steps, length):
        return TimeStep(
            observation=jnp.ones(1),
            action_mask=jnp.ones(2, bool),
            reward=jnp.where(steps > 0, 1.0, 0.0),
            terminated=steps >= length,
            truncated=jnp.array(False),
            info={"length": length},
        )


def _model(size, actions):
    return MLPActorCritic(size, actions, 4, 1, key=jax.random.key(0))


_METRICS = {"stats/long": Metric(lambda action, info: info["length"] == 21, over="episodes")}


@pytest.mark.parametrize(("num_episodes", "num_envs"), [(403, 8), (403, None), (5, 16)])
def test_every_episode_counts_once_without_a_bias_to_short_ones(num_episodes, num_envs):
    result = evaluate(
        _model(1, 2),
        _ShortOrLong(),
        jax.random.key(0),
        num_episodes,
        num_envs=num_envs,
        metrics=_METRICS,
    )
    length = result.final_info["length"]
    assert length.shape == (num_episodes,)
    np.testing.assert_array_equal(result.episode_length, length)
    np.testing.assert_array_equal(result.episode_return, length)
    assert not result.truncated.any()
    if num_episodes > 100:
        # The first to end would be nearly all short; half of them are long within 5 deviations.
        assert abs((length == 21).mean() - 0.5) < 5 * 0.5 / np.sqrt(num_episodes)
    assert result.values["eval/num_episodes"] == num_episodes
    assert result.values["eval/mean_reward"] == 1
    np.testing.assert_allclose(result.values["eval/mean_episode_return"], length.mean(), rtol=1e-6)
    np.testing.assert_allclose(result.values["eval/stats/long"], (length == 21).mean(), rtol=1e-6)
    np.testing.assert_allclose([result.mean_return, result.mean_length], length.mean(), rtol=1e-6)
    np.testing.assert_allclose([result.std_return, result.std_length], length.std(), rtol=1e-6)


def test_an_episode_is_cut_off_at_max_steps_and_says_so():
    result = evaluate(_model(1, 2), _ShortOrLong(), jax.random.key(0), 50, max_steps=7)
    long = result.final_info["length"] == 21
    np.testing.assert_array_equal(result.truncated, long)
    np.testing.assert_array_equal(result.episode_length, np.where(long, 7, 1))


@pytest.mark.parametrize("greedy", [True, False])
def test_plays_under_the_mask_always(greedy):
    # An untrained policy that broke the mask once would end its episode before the last lock.
    result = evaluate(_model(1, 32), MaskedLocks(), jax.random.key(0), 64, greedy=greedy)
    assert (result.episode_length == 8).all()


class _Prefers(AbstractActorCritic):
    """Action 1 with probability 0.9."""

    @property
    def hyperparameters(self):
        return {}

    def __call__(self, observation, action_mask):
        logits = jnp.log(jnp.array([0.1, 0.9]))
        return MaskedCategorical(logits, action_mask), jnp.zeros(())


def test_greedy_plays_the_mode_and_sampled_draws():
    share = {"share": Metric(lambda action, info: action == 1)}
    for greedy, low, high in ((True, 1, 1), (False, 0.86, 0.94)):
        arguments = {"greedy": greedy, "metrics": share}
        result = evaluate(_Prefers(), _ShortOrLong(), jax.random.key(1), 200, **arguments)
        assert low <= result.values["eval/share"] <= high


class _NothingAllowed(_ShortOrLong):
    def _timestep(self, steps, length):
        timestep = super()._timestep(steps, length)
        mask = timestep.action_mask & (steps != 2)
        return eqx.tree_at(lambda t: t.action_mask, timestep, mask)


def test_a_mask_that_allows_nothing_is_an_error():
    with pytest.raises(ValueError, match="an action mask was all False"):
        evaluate(_model(1, 2), _NothingAllowed(), jax.random.key(0), 8)


def test_no_episodes_is_refused():
    with pytest.raises(ValueError, match="num_episodes must be at least 1, got 0"):
        evaluate(_model(1, 2), _ShortOrLong(), jax.random.key(0), 0)
