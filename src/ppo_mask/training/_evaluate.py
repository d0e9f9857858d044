"""Evaluates a policy in separate environments."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, SupportsIndex, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask.acting import RolloutState, start_rollout
from ppo_mask.acting._rollout import next_rollout_state
from ppo_mask.devices.interrupts import second_interrupt_ends
from ppo_mask.envs import TimeLimit, VectorEnv
from ppo_mask.envs._host import host_env_in, raise_failure
from ppo_mask.envs._shapes import Env, require_env
from ppo_mask.envs.actions import Actions
from ppo_mask.errors import RunError, check_at_least
from ppo_mask.jax_tools._trees import zeros_from_shapes
from ppo_mask.networks import Model, ModelLike, as_model
from ppo_mask.search import Search, advance
from ppo_mask.training._health import all_finite, describe_empty_mask, describe_not_finite
from ppo_mask.training._metrics import Metric, Sums, add_steps, no_steps, summarize, with_episode
from ppo_mask.training._mistakes import explained
from ppo_mask.training._names import check_metric_names
from ppo_mask.training._rules import MAX_COUNT

_MOST_ENVS, _MOST_HOST_ENVS = 256, 8

# Steps per call of the compiled program.
_CHUNK, _HOST_CHUNK = 256, 16


NORMAL_95 = 1.96


class Estimate(NamedTuple):
    """A mean over independent episodes, and its 95% confidence interval."""

    mean: float
    low: float
    high: float


def estimate(values: np.ndarray) -> Estimate:
    """Estimates a mean from independent values.

    Args:
        values: one number per episode, or one boolean. The mean of booleans is a share, with the
            interval of Wilson (1927, JASA 22: 209-212). A single number has an infinite interval.
    """
    mean, number = float(values.mean()), len(values)
    if values.dtype == bool:
        z2 = NORMAL_95**2
        middle = (mean + z2 / (2 * number)) / (1 + z2 / number)
        spread = mean * (1 - mean) / number + z2 / (4 * number**2)
        half = NORMAL_95 * math.sqrt(spread) / (1 + z2 / number)
        return Estimate(mean, max(0.0, middle - half), min(1.0, middle + half))
    spread = float(values.std(ddof=1)) if number > 1 else math.inf
    half = NORMAL_95 * spread / math.sqrt(number)
    return Estimate(mean, mean - half, mean + half)


@dataclass(frozen=True)
class EvaluationResult:
    """The outcome of each episode, and metrics over all episodes.

    Attributes:
        episode_return: the return of each episode.
        episode_length: steps of each episode.
        truncated: whether the environment, or ``max_steps``, truncated the episode.
        final_info: the info of each episode's last step.
        episode_metrics: the custom metrics that are means over episodes, by name: a number for each
            episode that the metric counts.
        values: metrics by name, as in a log line, all under ``eval/``: ``mean_episode_return``,
            ``mean_reward`` (per step), …, and custom metrics.
    """

    episode_return: Float[np.ndarray, " episodes"]
    episode_length: Int[np.ndarray, " episodes"]
    truncated: Bool[np.ndarray, " episodes"]
    final_info: dict[str, np.ndarray]
    episode_metrics: dict[str, np.ndarray]
    values: dict[str, float]

    def __repr__(self) -> str:
        return (
            f"EvaluationResult({len(self.episode_return)} episodes: return {self.mean_return:.4g} "
            f"± {self.std_return:.4g}, length {self.mean_length:.4g} ± {self.std_length:.4g})"
        )

    @property
    def mean_return(self) -> float:
        """Mean return over the episodes."""
        return float(self.episode_return.mean())

    @property
    def std_return(self) -> float:
        """Population standard deviation of the return over the episodes."""
        return float(self.episode_return.std())

    @property
    def mean_length(self) -> float:
        """Mean length over the episodes, in steps."""
        return float(self.episode_length.mean())

    @property
    def std_length(self) -> float:
        """Population standard deviation of the length over the episodes, in steps."""
        return float(self.episode_length.std())

    @property
    def estimates(self) -> dict[str, Estimate]:
        """Mean and 95% interval of ``return``, ``length``, and each of ``episode_metrics``.

        A metric that counts no episode is left out.
        """
        own = {"return": self.episode_return, "length": self.episode_length}
        found = (own | self.episode_metrics).items()
        return {name: estimate(values) for name, values in found if len(values)}


def evaluate(
    model: ModelLike,
    env: Env,
    key: Key[Array, ""],
    num_episodes: SupportsIndex,
    *,
    greedy: bool = True,
    num_envs: SupportsIndex | None = None,
    max_steps: SupportsIndex = 10_000,
    metrics: Mapping[str, Metric] | None = None,
    search: Search | None = None,
    between: Callable[[bool], bool] = lambda goes_on: goes_on,
) -> EvaluationResult:
    """Plays ``num_episodes`` whole episodes, always under the action mask.

    Each environment plays a fixed number of episodes. (Taking the first episodes to end would favor
    short episodes.)

    Args:
        model: the model; or a network, or a policy.
        env: the environment.
        key: the random key of the episodes, and of the actions if ``greedy`` is False.
        num_episodes: number of episodes.
        greedy: whether to take the most probable action instead of sampling one.
        num_envs: number of environments in the batch; by default one per episode, but at most 256.
            For environments in Python the default is at most 8, and ``evaluate`` closes the
            environments.
        max_steps: steps after which an episode is truncated, because a policy may run in circles.
        metrics: custom metrics, by name.
        search: how to search before each action; None to act at once.
        between: called every few steps. Its argument tells whether an episode is still running in
            this process; its result tells whether to take more steps. An error in ``between`` ends
            the evaluation. With several processes, all must take the same number of steps, but
            rounding may make their episodes differ in length; ``between`` lets the processes agree.

    Returns:
        The episodes' returns, lengths and metrics, as Python numbers and NumPy arrays.

    Raises:
        ValueError: a number is out of range, a metric has a name that the library uses, or a mask
            allowed no action.
        RunError: environment, model and metrics do not fit together (one line names the part at
            fault); an environment in Python raised an error; there are too many steps for int32; or
            an observation, a reward, or what the network makes of them is not finite.

    Example:
        >>> import jax
        >>> import ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks(length=3)
        >>> model = pm.network_for(env, key=jax.random.key(0))
        >>> pm.evaluate(model, env, jax.random.key(1), num_episodes=4).mean_length
        3.0
    """
    num_episodes, max_steps = int(num_episodes), int(max_steps)
    num_envs = None if num_envs is None else int(num_envs)
    check_at_least(1, num_episodes=num_episodes, num_envs=num_envs, max_steps=max_steps)
    require_env(env)
    host_env = host_env_in(env)
    most, chunk = (_MOST_ENVS, _CHUNK) if host_env is None else (_MOST_HOST_ENVS, _HOST_CHUNK)
    num_envs = min(num_episodes, most) if num_envs is None else num_envs
    metrics = dict(metrics or {})
    check_metric_names(metrics)
    model = as_model(model)
    vector_env = VectorEnv(TimeLimit(env, max_steps), num_envs)
    with second_interrupt_ends(), explained(env):
        playing, goes_on = _begin(model, vector_env, key, num_episodes, metrics), True
        jax.block_until_ready(playing)
        try:
            while between(bool(goes_on)):
                playing, goes_on = _play(model, search, vector_env, playing, greedy, metrics, chunk)
            ends = playing.episodes, playing.totals, playing.allowed, playing.finite
            episodes, totals, allowed, finite = jax.device_get(ends)
        finally:
            # Only after _begin: until then, the latest batch of environments is the training's.
            if host_env is not None:
                host_env.release()
    raise_failure(env, playing)
    if not allowed:
        raise ValueError(describe_empty_mask(env.num_actions))
    if not finite:
        raise RunError(describe_not_finite(model))
    if (steps := episodes.episode_length.sum(dtype=np.int64)) > MAX_COUNT:
        raise RunError(
            f"an evaluation has at most {MAX_COUNT:,} steps, and this one took {steps:,}: play "
            "fewer episodes at a time"
        )
    values = summarize(totals)
    return EvaluationResult(
        *episodes[:-1],
        episode_metrics=_of_episodes(metrics, episodes),
        values={n if n.startswith("eval/") else f"eval/{n}": x for n, x in values.items()},
    )


class _Episodes(NamedTuple):
    episode_return: Float[Array, " episodes"]
    episode_length: Int[Array, " episodes"]
    truncated: Bool[Array, " episodes"]
    final_info: dict[str, Array]
    final_action: Int[Array, "episodes *parts"]


class _Playing(eqx.Module):
    rollout: RolloutState
    key: Key[Array, ""]
    # The number of each environment's current episode; the next episode is `num_envs` later.
    episode: Int[Array, " envs"]
    episodes: _Episodes
    totals: Sums
    allowed: Bool[Array, ""]
    finite: Bool[Array, ""]


def _of_episodes(metrics: Mapping[str, Metric], episodes: Any) -> dict[str, np.ndarray]:
    """Computes the metrics that are means over episodes from each episode's last step."""
    so_far = episodes.episode_return, episodes.episode_length
    info, found = with_episode(episodes.final_info, *so_far), dict[str, np.ndarray]()
    for name, metric in metrics.items():
        if (metric.over, metric.reduce) == ("episodes", "mean"):
            values = np.asarray(jax.vmap(metric.value)(episodes.final_action, info))
            where = None if metric.where is None else np.asarray(jax.vmap(metric.where)(info), bool)
            found[name] = values if where is None else values[where]
    return found


@eqx.filter_jit
def _begin(
    model: Model,
    vector_env: VectorEnv[Any],
    key: Key[Array, ""],
    num_episodes: int,
    metrics: dict[str, Metric],
) -> _Playing:
    reset_key, key = jax.random.split(key)
    rollout = start_rollout(vector_env, model, reset_key)
    info = jax.eval_shape(lambda k: vector_env.env.reset(k)[1].info, reset_key)
    episodes = _Episodes(
        jnp.zeros(num_episodes, jnp.float32),
        jnp.zeros(num_episodes, jnp.int32),
        jnp.zeros(num_episodes, bool),
        zeros_from_shapes(info, num_episodes),
        jnp.zeros((num_episodes, *Actions.of(vector_env.num_actions).shape), jnp.int32),
    )
    episode, totals = jnp.arange(vector_env.num_envs, dtype=jnp.int32), no_steps(metrics)
    return _Playing(rollout, key, episode, episodes, totals, jnp.array(True), all_finite(model))


@eqx.filter_jit
def _play(
    model: Model,
    search: Search | None,
    vector_env: VectorEnv[Any],
    playing: _Playing,
    greedy: bool,
    metrics: dict[str, Metric],
    num_steps: int,
) -> tuple[_Playing, Bool[Array, ""]]:
    """Takes ``num_steps`` steps, or fewer if all episodes end; returns whether any still runs."""
    num_envs, num_episodes = vector_env.num_envs, len(playing.episodes.truncated)
    actions, limited = Actions.of(vector_env.num_actions), cast(TimeLimit[Any], vector_env.env)

    def is_playing(playing: _Playing) -> Bool[Array, ""]:
        return (playing.episode < num_episodes).any() & playing.allowed & playing.finite

    def step(playing: _Playing) -> _Playing:
        key, action_key, step_key, search_key = jax.random.split(playing.key, 4)
        rollout = playing.rollout
        distribution, _, hidden = jax.vmap(partial(advance, search, model, limited.env))(
            jax.random.split(search_key, num_envs),
            rollout.vector_state.env_state[0],
            rollout.observation,
            rollout.action_mask,
            rollout.hidden,
        )
        distribution.check_choices(vector_env.num_actions)
        numbers: list[Any] = []
        if not greedy:
            action_keys = jax.random.split(action_key, num_envs)
            numbers.append(jax.vmap(actions.uniform_numbers)(action_keys))
        action, distribution = vector_env.choose(rollout.vector_state, distribution, *numbers)
        log_prob = jax.vmap(lambda d, a: d.log_prob(a))(distribution, action)
        vector_state, timestep = vector_env.step(step_key, rollout.vector_state, action)

        # Extra episodes have no row; mode="drop" drops their results.
        row = jnp.where(timestep.ended, playing.episode, num_episodes)
        latest = _Episodes(
            timestep.episode_return,
            timestep.episode_length,
            timestep.truncated,
            timestep.info,
            action,
        )
        allowed = actions.any_allowed(distribution.mask).all()
        counted = playing.episode < num_episodes
        return _Playing(
            next_rollout_state(model, vector_state, timestep, hidden),
            key,
            jnp.where(timestep.ended, playing.episode + num_envs, playing.episode),
            jax.tree.map(lambda x, y: x.at[row].set(y, mode="drop"), playing.episodes, latest),
            add_steps(playing.totals, metrics, action, timestep, counted),
            playing.allowed & allowed,
            # Observations are seen in what the network makes of them.
            playing.finite & all_finite((log_prob, timestep.episode_return)),
        )

    _, playing = jax.lax.while_loop(
        lambda carry: (carry[0] < num_steps) & is_playing(carry[1]),
        lambda carry: (carry[0] + 1, step(carry[1])),
        (jnp.int32(0), playing),
    )
    return playing, is_playing(playing)
