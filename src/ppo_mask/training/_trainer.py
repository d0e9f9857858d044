"""The trainer: compiled chunks of updates, and a plain Python loop around them."""

import dataclasses
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, SupportsIndex

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Int, Key, Real, Scalar

from ppo_mask.acting import Transition, bootstrap_values, collect, start_rollout
from ppo_mask.devices.interrupts import second_interrupt_ends
from ppo_mask.devices.platforms import platform_of
from ppo_mask.devices.processes import is_multiprocess
from ppo_mask.envs import AbstractEnv, VectorEnv
from ppo_mask.envs._host import host_env_in, raise_failure
from ppo_mask.envs._shapes import Env, require_env
from ppo_mask.errors import RunError, first_line, naming
from ppo_mask.jax_tools import ArrayTree, for_platform
from ppo_mask.jax_tools._parts import check_changes, parts_of
from ppo_mask.networks import Model, ModelLike, as_model
from ppo_mask.training._algorithm import AbstractAlgorithm, At, check_same_but_numbers
from ppo_mask.training._callback import Callback, Run
from ppo_mask.training._curriculum import AbstractCurriculum, Curriculum, Schedule, as_curriculum
from ppo_mask.training._debug_nans import find_first_nan
from ppo_mask.training._gradients import numbers
from ppo_mask.training._health import Health, all_healthy, describe_health, examine
from ppo_mask.training._loop import run_loop
from ppo_mask.training._metrics import Metric, add_update, emptied, no_updates, summarize
from ppo_mask.training._mistakes import explained
from ppo_mask.training._names import OF_TRAINING, check_logged_names, check_metric_names
from ppo_mask.training._seeds import mean_line, model_of_one_seed, select_seed
from ppo_mask.training._state import (
    TrainState,
    check_metrics,
    check_state,
    constrain_state,
    copy_state,
    place_state,
    strongly_typed,
)

_POLL_SECONDS = 0.002


class TrainingError(RuntimeError):
    """A run cannot continue; the message says at which update and why.

    Example:
        >>> import jax
        >>> import ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks()
        >>> trainer = pm.Trainer(env, pm.PPO(num_envs=4, num_steps=8, learning_rate=1e30))
        >>> model = pm.network_for(env, hidden_dim=8, key=jax.random.key(0))
        >>> try:
        ...     trainer.train(trainer.init(model, jax.random.key(1)), 1000)
        ... except pm.TrainingError as error:
        ...     print(str(error).partition(":")[0])
        update 1
    """


class Trainer(eqx.Module):
    """Trains models on an environment by an algorithm.

    A trainer holds the constants of a run; everything that changes is in the :class:`TrainState`.
    Compiled functions may take a trainer as an argument. :meth:`init` and :meth:`run_updates` are
    pure, so ``jax.vmap`` over seeds works.

    Example:
        >>> import jax
        >>> import ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks()
        >>> trainer = pm.Trainer(env, pm.PPO(num_envs=16, num_steps=32, ent_coef=0.01))
        >>> model = pm.network_for(env, key=jax.random.key(0))
        >>> state = trainer.init(model, jax.random.key(1))
        >>> state = trainer.train(state, total_timesteps=4 * 16 * 32)
        >>> int(state.update)
        4
    """

    env: AbstractEnv[Any]
    algorithm: AbstractAlgorithm
    metrics: dict[str, Metric]
    curriculum: AbstractCurriculum
    schedule: Schedule | None
    mesh: Mesh | None = eqx.field(static=True)

    def __init__(
        self,
        env: Env,
        algorithm: AbstractAlgorithm,
        *,
        metrics: Mapping[str, Metric] | None = None,
        curriculum: Curriculum | None = None,
        schedule: Schedule | None = None,
        mesh: Mesh | None = None,
    ):
        """Makes a trainer, and compiles nothing yet.

        Args:
            env: the environment; training runs ``algorithm.num_envs`` copies of it.
            algorithm: what is trained, and how, such as :class:`~ppo_mask.ppo.PPO`.
            metrics: custom metrics to log, by name.
            curriculum: changes the environment during the run; None for no change.
            schedule: changes the algorithm's numbers during the run, once for each update; None for
                no change. What is static may not change.
            mesh: the devices to train on, from :func:`~ppo_mask.devices.sharding.make_mesh`; None
                for one device.

        Raises:
            RunError: ``env`` is not an environment.
            ValueError: a metric has a name that the log or the library uses.
        """
        require_env(env)
        check_metric_names(metrics or ())
        self.env = env
        self.algorithm = algorithm
        self.metrics = dict(metrics or {})
        self.curriculum = as_curriculum(curriculum)
        self.schedule = schedule
        self.mesh = mesh

    def init(self, model: ModelLike, key: Key[Array, ""]) -> TrainState:
        """Makes the first state of a run.

        Args:
            model: the model to train, with the weights that it begins with; or a network, or a
                policy.
            key: the random key of the whole run.

        Raises:
            ValueError: the algorithm cannot train the model; or one of its metrics has a name that
                the library uses.
            RunError: environment, model and metrics do not fit together (one line names the part at
                fault); or an environment in Python raised an error.
        """
        model = as_model(model)
        with second_interrupt_ends(), explained(self.env):
            return raise_failure(self.env, self.with_values().first_state(model, key))

    def train(
        self,
        state: TrainState,
        total_timesteps: SupportsIndex,
        *,
        callbacks: Sequence[Callback] = (),
        log_interval: SupportsIndex = 10,
        debug_nans: bool = False,
    ) -> TrainState:
        """Trains until the run, with earlier calls, has taken ``total_timesteps`` steps.

        A state may hold several seeds: all arrays then have a leading axis, as from
        ``eqx.filter_vmap(trainer.init)(models, keys)``. Each seed's final state is the same as if
        it had been trained alone, except for float rounding: batched and unbatched matrix products
        sum in different orders. Log lines are means over the seeds; :class:`PerSeed` gives each
        seed callbacks of its own.

        Neither the size of chunks nor stopping and resuming changes the result. Ctrl+C and SIGTERM
        end the run cleanly after the current chunk. A second Ctrl+C raises KeyboardInterrupt.

        Args:
            state: from :meth:`init`, or from a checkpoint. The state stays usable after the call.
            total_timesteps: environment steps of the whole run, or of each seed's, over all
                environments; rounded up to whole updates. An annealed learning rate reaches 0 at
                the end.
            callbacks: called in this order.
            log_interval: updates between log lines; the end of the run adds a line.
            debug_nans: whether to run one update at a time and to copy the state before each
                update, so that an error can also name the line of code that made the first NaN.

        Returns:
            The state at the end.

        Raises:
            ValueError: a number is out of range, or the state does not fit the trainer.
            RunError: environment, model and metrics do not fit together (one line names the part at
                fault); or a run has more updates, or a log line more steps, than an int32 can
                count.
            TrainingError: an observation, reward, loss or parameter is not finite, a mask allowed
                no action, or an environment in Python raised an error. Callbacks never get the
                state after such a fault.
        """
        algorithm, mesh, num_seeds = self.algorithm, self.mesh, state.update.size
        model, host_env = model_of_one_seed(state), host_env_in(self.env)
        if state.update.ndim and (mesh is not None or host_env is not None):
            raise RunError(
                "several seeds train on one device, and not with an environment that lives in "
                "Python: num_seeds must be 1; start a run for each seed"
            )
        algorithm.check(model, 1 if mesh is None else mesh.size)
        total_updates = algorithm.total_updates(total_timesteps)
        update = int(np.ravel(state.update)[0])
        run = Run(algorithm, update, total_updates, callbacks, state.totals.updates)
        # A chunk reuses its argument's buffers, so the loop gets a copy.
        state = copy_state(place_state(state, mesh))
        compiled_for = self.with_values()

        def advance(state: TrainState, n: int) -> TrainState:
            before = copy_state(state) if debug_nans else None
            total = jnp.float32(total_updates)
            with _naming_lost_processes():
                state, health = run_chunk((compiled_for, jnp.int32(n), total), state)
                _wait_for(health)
                health = jax.device_get(health)
            parts = [part.reshape(num_seeds, -1) for part in jax.tree.leaves(health)]
            good = np.concatenate(parts, axis=1).all(axis=1)
            if good.all():
                return state
            at, which = state, ""
            if state.update.ndim:
                seed = int(good.argmin())
                at, health, before = (select_seed(x, seed) for x in (state, health, before))
                which = f"seed number {seed}, "
            failure = None if host_env is None else host_env.take_failure()
            wrong = failure or describe_health(health, at, self.env.num_actions)
            line = f"{which}update {int(at.update)}: {wrong}"
            # An environment in Python cannot be replayed.
            if before is not None and host_env is None:
                alone = dataclasses.replace(compiled_for, mesh=None)
                place = find_first_nan(lambda state: alone.update(state, total), before)
                line += f"; {place}" if place else ""
            raise TrainingError(line) from failure

        def log(state: TrainState, steps_per_second: float, partial: bool) -> TrainState:
            one, speed = not state.update.ndim, "train/steps_per_second"
            parts = jax.device_get((state.totals, _remembered(self.curriculum, state)))
            each = [parts] if one else [select_seed(parts, n) for n in range(num_seeds)]
            lines = [summarize(sums) | more | {speed: steps_per_second} for sums, more in each]
            values = mean_line(lines) | {speed: num_seeds * steps_per_second}
            run.log(values, partial, () if one else lines)
            if partial:
                return state
            return eqx.tree_at(lambda state: state.totals, state, emptied(state.totals))

        # Finding a NaN needs one update at a time.
        at_once = 1 if debug_nans else None
        with explained(self.env):
            return run_loop(run, state, callbacks, int(log_interval), advance, log, at_once)

    def with_values(self) -> "Trainer":
        """Turns the algorithm's floats into arrays, so one compiled program serves all values."""
        return eqx.tree_at(lambda trainer: trainer.algorithm, self, _traced(self.algorithm))

    def run_updates(
        self, state: TrainState, n: Int[Array, ""], total_updates: Real[Array, ""]
    ) -> tuple[TrainState, Health]:
        """Runs ``n`` updates, inside ``jax.jit`` or ``jax.vmap``; stops after an unhealthy update.

        Args:
            state: the run's current state.
            n: number of updates.
            total_updates: updates of the whole run.

        Returns:
            The state after these updates, and the last update's health.

        Raises:
            ValueError: the state does not fit the trainer.
        """
        memory = self.curriculum.init(state.model)
        check_state(state, self.algorithm, self.metrics, memory)
        arrays, static = eqx.partition(state, eqx.is_array)
        until = state.update + n

        def is_not_done(carry: tuple[ArrayTree, Health]) -> Bool[Array, ""]:
            arrays, health = carry
            return (arrays.update != until) & health.good

        def one_update(carry: tuple[ArrayTree, Health]) -> tuple[ArrayTree, Health]:
            state: TrainState = eqx.combine(carry[0], static)
            state, transitions, metrics = self.update(state, total_updates)
            state = constrain_state(state, self.mesh)
            health = examine(state, transitions, metrics, self.env.num_actions)
            return eqx.filter(state, eqx.is_array), health

        with for_platform(platform_of(self.mesh)):
            arrays, health = jax.lax.while_loop(
                is_not_done, one_update, (arrays, all_healthy(state, self.env.num_actions))
            )
        return eqx.combine(arrays, static), health

    def update(
        self, state: TrainState, total_updates: Real[Array, ""]
    ) -> tuple[TrainState, Transition, dict[str, Scalar]]:
        """Makes one update: acts, then learns.

        Args:
            state: the state before the update.
            total_updates: updates of the whole run.

        Returns:
            The next state; the rollout, with axes [steps, envs, …]; and the algorithm's metrics.

        Raises:
            RunError: the schedule changes more than numbers.
        """
        model, own, rollout, key, memory, transitions, learned = self._learn(state, total_updates)
        check_metrics(state, learned)
        counts = self.env.num_actions
        totals = add_update(state.totals, self.metrics, transitions, learned, counts)
        with naming("the curriculum"):
            memory = self.curriculum.update(memory, transitions.info, transitions.ended)
            check_changes("the curriculum", "its memory", state.memory, memory)
        after = TrainState(model, own, rollout, key, state.update + 1, totals, memory)
        return after, transitions, learned

    def _learn(self, state: TrainState, total_updates: Real[Array, ""]) -> tuple[Any, ...]:
        key, rollout_key, learn_key, act_key = jax.random.split(state.key, 4)
        at = At(act_key, state.update, total_updates, self.mesh)
        with naming("the curriculum"):
            memory = self.curriculum.renew(state.memory, state.model, state.update)
            check_changes("the curriculum", "its memory", state.memory, memory)
            env = self._vector_env(at, memory)
        with naming("the schedule"):
            algorithm = self._scheduled(at)
        with naming(f"actor of {type(algorithm).__name__}"):
            actor = _actor(algorithm, state, at)

        rollout, transitions = collect(
            env,
            actor,
            state.rollout,
            rollout_key,
            algorithm.num_steps,
            self.mesh,
            algorithm.keeps_next,
        )
        last_value = bootstrap_values(actor, rollout, self.mesh)
        at = at._replace(key=learn_key)
        with naming(f"learn of {type(algorithm).__name__}"):
            result = algorithm.learn(
                state.model, state.own, state.rollout, transitions, last_value, at
            )
        wanted = "learn must return a model, the algorithm's own state, and metrics"
        model, own, learned = parts_of(wanted, result, 3)
        check_changes("learn", "the model", state.model, model)
        check_changes("learn", "the own state", state.own, own)
        learned = numbers(learned, "learn must return metrics by name")
        return model, own, rollout, key, memory, transitions, learned

    def _vector_env(self, at: At, memory: ArrayTree) -> VectorEnv[Any]:
        return VectorEnv(self.curriculum(self.env, at.progress, memory), self.algorithm.num_envs)

    def _scheduled(self, at: At) -> AbstractAlgorithm:
        if self.schedule is None:
            return self.algorithm
        scheduled = _traced(self.schedule(self.algorithm, at.progress))
        check_same_but_numbers(self.algorithm, scheduled)
        return scheduled

    @eqx.filter_jit
    def first_state(self, model: Model, key: Key[Array, ""]) -> TrainState:
        """Makes the first state of a run; see :meth:`init`."""
        reset_key, run_key, init_key = jax.random.split(key, 3)
        zero = jnp.int32(0)
        with naming("the curriculum"):
            env = self._vector_env(At(key, zero, zero, None), self.curriculum.init(model))
        rollout = start_rollout(env, model, reset_key)
        self.algorithm.check(model, 1)
        with naming(f"init of {type(self.algorithm).__name__}"):
            result = self.algorithm.init(model, rollout, init_key)
        wanted = "init must return a model and the algorithm's own state"
        model, own = parts_of(wanted, result, 2)
        memory = self.curriculum.init(model)

        def begin(names: Iterable[str]) -> TrainState:
            totals = no_updates(self.metrics, tuple(names), self.algorithm.logged_last)
            return TrainState(model, own, rollout, run_key, zero, totals, memory)

        names = self.algorithm.metric_names()
        if names is None:
            alone = dataclasses.replace(self, mesh=None)
            names = eqx.filter_eval_shape(lambda state: alone._learn(state, zero)[-1], begin(()))
        check_logged_names(names, OF_TRAINING)
        return strongly_typed(begin(names))


def _actor(algorithm: AbstractAlgorithm, state: TrainState, at: At) -> Model:
    return algorithm.actor(state.model, state.own, at)


@eqx.filter_jit
def _metrics_of(
    curriculum: AbstractCurriculum, memory: ArrayTree, several: bool
) -> dict[str, Array]:
    return (eqx.filter_vmap(curriculum.metrics) if several else curriculum.metrics)(memory)


def _remembered(curriculum: AbstractCurriculum, state: TrainState) -> dict[str, Array]:
    """Returns what a curriculum logs, of each seed; one without a memory compiles nothing."""
    if not jax.tree.leaves(state.memory):
        return {}
    return _metrics_of(curriculum, state.memory, state.update.ndim > 0)


def _traced(algorithm: AbstractAlgorithm) -> AbstractAlgorithm:
    """Turns an algorithm's floats into arrays."""
    return jax.tree.map(lambda x: jnp.float32(x) if isinstance(x, float) else x, algorithm)


@eqx.filter_jit(donate="all-except-first")
def run_chunk(
    fixed: tuple[Trainer, Int[Array, ""], Real[Array, ""]], state: TrainState
) -> tuple[TrainState, Health]:
    """Runs :meth:`Trainer.run_updates` as a compiled function, and donates the state.

    Args:
        fixed: the trainer, the number of updates, and the number of updates of the whole run.
        state: the run's current state, or that of several seeds.
    """
    trainer, n, total_updates = fixed

    def run(state: TrainState) -> tuple[TrainState, Health]:
        return trainer.run_updates(state, n, total_updates)

    return (eqx.filter_vmap(run) if state.update.ndim else run)(state)


def _wait_for(health: Health) -> None:
    """Waits until a chunk is done."""
    # Polls, since Python handles signals only between its own instructions.
    while not health.allowed.is_ready():  # pyright: ignore[reportAttributeAccessIssue]
        time.sleep(_POLL_SECONDS)


@contextmanager
def _naming_lost_processes() -> Generator[None]:
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not is_multiprocess():
            raise
        raise TrainingError(
            f"another process of this run is gone or out of reach ({first_line(error)}); end all "
            "of them and start them again with --resume"
        ) from error
