"""What an evaluation counts, and which actions it plays."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
import programs
from environments import Scripted
from ppo_mask.errors import RunError
from ppo_mask.training import estimate


class ShortOrLong(pm.AbstractEnv):
    """Episodes of 1 step or of 21, half and half; the reward is 1 per step.

    From the step ``stuck`` on nothing is allowed.
    """

    stuck: int = eqx.field(static=True, default=99)
    num_actions: int = eqx.field(static=True, default=2)

    def reset(self, key):
        length = jnp.where(jax.random.bernoulli(key), 21, 1)
        return (jnp.int32(0), length), self._show(jnp.int32(0), length)

    def step(self, key, state, action):
        steps, length = state
        return (steps + 1, length), self._show(steps + 1, length)

    def _show(self, steps, length):
        return pm.TimeStep(
            observation=jnp.ones(1),
            action_mask=jnp.ones(2, bool) & (steps < self.stuck),
            reward=jnp.where(steps > 0, 1.0, 0.0),
            terminated=steps >= length,
            truncated=False,
            info={"length": length},
        )


class Prefers(pm.AbstractActorCritic):
    """Action 1 with probability 0.9."""

    @property
    def hyperparameters(self):
        return {}

    def __call__(self, observation, action_mask):
        return pm.MaskedCategorical(jnp.log(jnp.array([0.1, 0.9])), action_mask), jnp.zeros(())


METRICS = {
    "stats/long": pm.Metric(lambda action, info: info["length"] == 21, over="episodes"),
    "share": pm.Metric(lambda action, info: action == 1),
}


def play(episodes, env=None, **options):
    options = {"metrics": METRICS} | options
    return pm.evaluate(Prefers(), env or ShortOrLong(), jax.random.key(0), episodes, **options)


@pytest.mark.parametrize(("episodes", "envs"), [(403, 8), (5, 16)])
def test_every_episode_counts_once_without_a_bias_to_short_ones(episodes, envs):
    result = play(episodes, num_envs=envs)
    length = result.final_info["length"]
    assert length.shape == (episodes,)
    np.testing.assert_array_equal(result.episode_length, length)
    np.testing.assert_array_equal(result.episode_return, length)
    assert not result.truncated.any()
    if episodes > 100:
        # The first to end would be nearly all short; half of them are long within 5 deviations.
        assert abs((length == 21).mean() - 0.5) < 5 * 0.5 / np.sqrt(episodes)
    assert result.values["eval/num_episodes"] == episodes
    assert result.values["eval/mean_reward"] == 1
    assert result.values["eval/share"] == 1  # The likeliest action.
    np.testing.assert_allclose(result.values["eval/mean_episode_return"], length.mean(), rtol=1e-6)
    np.testing.assert_allclose(result.values["eval/stats/long"], (length == 21).mean(), rtol=1e-6)
    np.testing.assert_allclose([result.mean_return, result.mean_length], length.mean(), rtol=1e-6)
    np.testing.assert_allclose([result.std_return, result.std_length], length.std(), rtol=1e-6)
    assert list(result.estimates) == ["return", "length", "stats/long"]
    np.testing.assert_array_equal(result.episode_metrics["stats/long"], length == 21)


def test_a_metric_counts_its_own_episodes_alone():
    metrics = {
        "return of long": pm.Metric(
            lambda action, info: info["episode_return"] + info["episode_length"],
            over="episodes",
            where=lambda info: info["length"] == 21,
        ),
        "of none": pm.Metric(
            lambda action, info: True, over="episodes", where=lambda info: info["length"] == 2
        ),
    }
    result = play(40, num_envs=8, metrics=metrics)
    long = int((result.final_info["length"] == 21).sum())
    assert 0 < long < 40
    assert result.episode_metrics["return of long"].tolist() == long * [42]
    assert result.values["eval/return of long"] == 42
    assert result.estimates["return of long"] == (42, 42, 42)
    assert len(result.episode_metrics["of none"]) == 0
    assert "of none" not in result.estimates
    assert "eval/of none" not in result.values


def test_intervals():
    values = np.array([1.0, 2.0, 3.0, 4.0])
    half = 1.96 * values.std(ddof=1) / 2
    assert estimate(values) == pytest.approx((2.5, 2.5 - half, 2.5 + half))
    assert estimate(np.array([1.0])).high == np.inf
    # Wilson's, as printed in textbooks.
    shares = [estimate(np.arange(10) < count) for count in (0, 5, 10)]
    assert shares[0].high == pytest.approx(0.2775, abs=1e-4)
    assert shares[1].low == pytest.approx(0.2366, abs=1e-4)
    assert shares[2].high == pytest.approx(1)


def test_an_episode_is_cut_off_at_max_steps_and_says_so():
    result = play(403, num_envs=8, max_steps=7, greedy=False)
    long = result.final_info["length"] == 21
    np.testing.assert_array_equal(result.truncated, long)
    np.testing.assert_array_equal(result.episode_length, np.where(long, 7, 1))
    assert 0.86 < result.values["eval/share"] < 0.94  # Drawn, each 9 of 10 times.


def test_it_can_be_ended_between_its_steps():
    calls = iter([True, True])
    with pytest.raises(StopIteration):
        play(403, num_envs=8, between=lambda _: next(calls))


@pytest.mark.parametrize(("make", "greedy"), [(programs.locks, True), (programs.doors, False)])
def test_plays_under_the_mask_always(make, greedy):
    # An untrained policy that broke the mask once would end its episode before the last lock.
    env, model = make().env, make().start.model
    result = pm.evaluate(model, env, jax.random.key(0), 64, greedy=greedy, metrics=programs.METRICS)
    assert (result.episode_length == env.length).all()
    # A metric gets all parts of an action: the last one is below the last number of keys.
    most = 8 if make is programs.locks else 6
    assert most / 2 <= result.values["eval/actions/last"] < most


def test_a_policy_acts_in_all_parts():
    policy, env = pm.Policy(programs.doors().start.model), programs.doors().env
    _, timestep = env.reset(jax.random.key(0))
    seen, mask = timestep.observation, timestep.action_mask
    best, drawn = policy(seen, mask), policy.sample(seen, mask, jax.random.key(1))
    for action in (best, drawn, policy.act(seen, mask, policy.initial_hidden())[0]):
        assert (action.shape, action.dtype) == ((3,), jnp.int32)
        assert mask[np.array([0, 4, 10]) + action].all()


def test_what_cannot_be_evaluated_is_refused():
    with pytest.raises(ValueError, match="an action mask was all False; the environment must"):
        play(5, ShortOrLong(stuck=2), num_envs=16)
    with pytest.raises(ValueError, match="num_episodes must be at least 1, got 0"):
        play(0)


class Bad(Scripted):
    """Becomes infinite, or no number, in the third step."""

    name: str = eqx.field(static=True, default="reward")
    value: float = jnp.nan

    def step(self, key, state, action):
        state, timestep = super().step(key, state, action)
        return state, eqx.tree_at(lambda t: getattr(t, self.name), timestep, replace_fn=self.spoil)

    def spoil(self, x):
        return x + jnp.float32(self.value)


@pytest.mark.parametrize(
    ("name", "value"), [("reward", jnp.nan), ("reward", jnp.inf), ("observation", jnp.nan)]
)
def test_what_is_not_finite_is_no_result(name, value):
    model = pm.network_for(Scripted(), "mlp", hidden_dim=4, key=jax.random.key(0))
    with pytest.raises(RunError, match=r"^not finite: an observation, a reward, or what"):
        pm.evaluate(model, Bad(length=5, name=name, value=value), jax.random.key(0), 2)


@pytest.mark.parametrize("part", ["actor", "critic"])
def test_weights_that_are_not_finite_are_named(part):
    model = pm.network_for(Scripted(), "mlp", hidden_dim=4, key=jax.random.key(0))
    where = lambda model: getattr(model.network, part)[-1].bias  # noqa: E731
    model = eqx.tree_at(where, model, replace_fn=lambda x: x * jnp.nan)
    with pytest.raises(RunError, match=rf"1 parameters .*first: network.{part}.2.bias"):
        pm.evaluate(model, Scripted(length=5), jax.random.key(0), 2)
