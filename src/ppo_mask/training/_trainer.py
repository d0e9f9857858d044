"""The trainer: compiled chunks of updates, and a plain Python loop around them."""

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, SupportsIndex

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Int, Key, Real

from ppo_mask.devices.platforms import platform_of
from ppo_mask.devices.processes import is_multiprocess
from ppo_mask.envs import AbstractEnv, VectorEnv, host_env_in, require_env
from ppo_mask.errors import first_line
from ppo_mask.jax_tools import ArrayTree, for_platform
from ppo_mask.networks import AbstractActorCritic, ModelLike, as_model
from ppo_mask.ppo import (
    Algorithm,
    LearnerState,
    PPOConfig,
    UpdateDiagnostics,
    check_devices,
    init_learner,
    start_rollout,
    update,
)
from ppo_mask.training._callback import Callback, Run
from ppo_mask.training._curriculum import AbstractCurriculum, Curriculum, Schedule, as_curriculum
from ppo_mask.training._debug_nans import find_first_nan
from ppo_mask.training._health import Health, all_healthy, describe, examine
from ppo_mask.training._loop import AbstractTrainer, run_loop
from ppo_mask.training._metrics import Metric, add_update, empty_totals, summarize
from ppo_mask.training._mistakes import Env, explained
from ppo_mask.training._names import check_loss_names, check_metric_names
from ppo_mask.training._state import (
    TrainState,
    check_metrics,
    check_state,
    constrain_state,
    copy_state,
    place_state,
    replace_totals,
    strongly_typed,
)

_POLL_SECONDS = 0.002


class TrainingError(RuntimeError):
    """A run cannot continue; the message says at which update and why.

    Example:
        >>> import jax
        >>> import ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks()
        >>> config = pm.PPOConfig(num_envs=4, num_steps=8, learning_rate=1e30)
        >>> trainer = pm.Trainer(env, config)
        >>> model = pm.MLPActorCritic.for_env(env, hidden_dim=8, key=jax.random.key(0))
        >>> try:
        ...     trainer.train(trainer.init(model, jax.random.key(1)), 1000)
        ... except pm.TrainingError as error:
        ...     print(str(error).partition(":")[0])
        update 1
    """


class Trainer(AbstractTrainer):
    """Trains networks on an environment with masked PPO.

    A trainer holds the constants of a run; everything that changes is in the :class:`TrainState`.
    Compiled functions may take a trainer as an argument. :meth:`init` and :meth:`run_updates` are
    pure, so ``jax.vmap`` over seeds works.

    Example:
        >>> import jax
        >>> import ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks()
        >>> trainer = pm.Trainer(env, pm.PPOConfig(num_envs=16, num_steps=32, ent_coef=0.01))
        >>> model = pm.MLPActorCritic.for_env(env, key=jax.random.key(0))
        >>> state = trainer.init(model, jax.random.key(1))
        >>> state = trainer.train(state, total_timesteps=4 * 16 * 32)
        >>> int(state.update)
        4
    """

    env: AbstractEnv[Any]
    config: PPOConfig
    metrics: dict[str, Metric]
    curriculum: AbstractCurriculum
    schedule: Schedule | None
    mesh: Mesh | None = eqx.field(static=True)
    algorithm: Algorithm

    def __init__(
        self,
        env: Env,
        config: PPOConfig | None = None,
        *,
        metrics: Mapping[str, Metric] | None = None,
        curriculum: Curriculum | None = None,
        schedule: Schedule | None = None,
        mesh: Mesh | None = None,
        algorithm: Algorithm | None = None,
    ):
        """Makes a trainer, and compiles nothing yet.

        Args:
            env: the environment; training runs ``config.num_envs`` copies of it.
            config: hyperparameters; None for the defaults.
            metrics: custom metrics to log, by name.
            curriculum: changes the environment during the run; None for no change.
            schedule: changes the config's numbers during the run, once for each update; None for no
                change.
            mesh: the devices to train on, from :func:`~ppo_mask.devices.sharding.make_mesh`; None
                for one device.
            algorithm: optimizer, loss and advantage estimator; None for PPO as published.

        Raises:
            RunError: ``env`` is not an environment.
            ValueError: a metric has a name that the log or the library uses.
        """
        require_env(env)
        check_metric_names(metrics or ())
        self.env = env
        self.config = PPOConfig() if config is None else config
        self.metrics = dict(metrics or {})
        self.curriculum = as_curriculum(curriculum)
        self.schedule = schedule
        self.mesh = mesh
        self.algorithm = Algorithm() if algorithm is None else algorithm

    def init(self, model: ModelLike, key: Key[Array, ""]) -> TrainState:
        """Makes the first state of a run.

        Args:
            model: the network to train, or a policy with this network.
            key: the random key of the whole run.

        Raises:
            ValueError: the model is recurrent, and the environments cannot be divided evenly among
                the minibatches; or a metric of a custom loss has a name that the library uses.
            RunError: environment, model and metrics do not fit together (one line names the part at
                fault); or an environment in Python raised an error.
        """
        model = as_model(model)
        with explained(self.env, model, self.metrics):
            state = _first_state(self.with_values(), model, key)
            if (host_env := host_env_in(self.env)) is not None:
                jax.block_until_ready(state)
                if (failure := host_env.take_failure()) is not None:
                    raise failure
        return state

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

        Neither the size of chunks nor stopping and resuming changes the result. Ctrl+C and SIGTERM
        end the run cleanly after the current chunk; if the program then starts another run, the
        program ends (see :func:`acknowledge_stop`). A second Ctrl+C raises KeyboardInterrupt.

        Args:
            state: from :meth:`init`, or from a checkpoint. The state stays usable after the call.
            total_timesteps: environment steps of the whole run, over all environments; rounded up
                to whole updates. An annealed learning rate reaches 0 at the end.
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
        config, mesh = self.config, self.mesh
        check_devices(config, state.model, 1 if mesh is None else mesh.size)
        total_updates = config.total_updates(total_timesteps)
        unlogged = int(state.totals.updates)
        run = Run(config, int(state.update), total_updates, callbacks, unlogged)
        # A chunk reuses its argument's buffers, so the loop gets a copy.
        state = copy_state(place_state(state, mesh))
        compiled_for = self.with_values()

        def advance(state: TrainState, n: int) -> TrainState:
            before = copy_state(state) if debug_nans else None
            total = jnp.float32(total_updates)
            with _naming_lost_processes():
                state, health = run_chunk((compiled_for, jnp.int32(n), total), state)
                wait_for(health)
                wrong = describe(health, state, self.env.num_actions)
            if wrong:
                host_env = host_env_in(self.env)
                failure = None if host_env is None else host_env.take_failure()
                wrong = f"update {int(state.update)}: {failure or wrong}"
                # An environment in Python cannot be replayed.
                if before is not None and host_env is None:
                    memory = self.curriculum.renew(before.memory, before.model, before.update)
                    parts = self._parts_at(before.update, total, memory)
                    place = find_first_nan(*parts, before.learner, total, self.algorithm)
                    wrong += f"; {place}" if place else ""
                raise TrainingError(wrong) from failure
            return state

        def log(state: TrainState, steps_per_second: float, partial: bool) -> TrainState:
            speed = {"train/steps_per_second": steps_per_second}
            run.log(summarize(state.totals, self.metrics) | speed, partial)
            if partial:
                return state
            empty = empty_totals(self.metrics, state.totals.diagnostics)
            return replace_totals(state, empty, mesh)

        # Finding a NaN needs one update at a time.
        at_once = 1 if debug_nans else None
        with explained(self.env, state.model, self.metrics):
            return run_loop(run, state, callbacks, int(log_interval), advance, log, at_once)

    def with_values(self) -> "Trainer":
        """Turns the config's floats into arrays, so that one compiled program serves all values."""
        config = jax.tree.map(lambda x: jnp.float32(x) if isinstance(x, float) else x, self.config)
        return eqx.tree_at(lambda trainer: trainer.config, self, config)

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
        check_state(state, self.config, self.algorithm, self.metrics, memory)
        arrays, static = eqx.partition(state, eqx.is_array)
        until = state.update + n

        def is_not_done(carry: tuple[ArrayTree, Health]) -> Bool[Array, ""]:
            arrays, health = carry
            return (arrays.update != until) & health.good

        def one_update(carry: tuple[ArrayTree, Health]) -> tuple[ArrayTree, Health]:
            state: TrainState = eqx.combine(carry[0], static)
            memory = self.curriculum.renew(state.memory, state.model, state.update)
            parts = self._parts_at(state.update, total_updates, memory)
            learner, transitions, diagnostics = update(
                *parts, state.learner, total_updates, self.mesh, self.algorithm
            )
            check_metrics(state, diagnostics)
            counts = self.env.num_actions
            totals = add_update(state.totals, self.metrics, transitions, diagnostics, counts)
            memory = self.curriculum.update(memory, transitions.info, transitions.ended)
            state = constrain_state(TrainState(learner, totals, memory), self.mesh)
            health = examine(state, transitions, counts)
            return eqx.filter(state, eqx.is_array), health

        with for_platform(platform_of(self.mesh)):
            arrays, health = jax.lax.while_loop(is_not_done, one_update, (arrays, all_healthy()))
        return eqx.combine(arrays, static), health

    def _parts_at(
        self, updates: Real[Array, ""], total_updates: Real[Array, ""], memory: ArrayTree
    ) -> tuple[VectorEnv[Any], PPOConfig]:
        """Makes the environments and the hyperparameters of an update."""
        progress = updates.astype(jnp.float32) / jnp.maximum(total_updates.astype(jnp.float32), 1)
        env = self.curriculum(self.env, progress, memory)
        config = self.config if self.schedule is None else self.schedule(self.config, progress)
        return VectorEnv(env, self.config.num_envs), config

    def _diagnostics(self, learner: LearnerState) -> UpdateDiagnostics:
        """Returns a tree with the structure of an update's diagnostics."""
        if self.algorithm == Algorithm():
            return UpdateDiagnostics.zeros()

        def diagnostics(learner: LearnerState) -> UpdateDiagnostics:
            total = jnp.int32(1)
            memory = self.curriculum.init(learner.model)
            parts = self._parts_at(learner.num_updates, total, memory)
            return update(*parts, learner, total, None, self.algorithm)[2]

        shapes = eqx.filter_eval_shape(diagnostics, learner)
        check_loss_names(shapes.extra)
        return shapes


@eqx.filter_jit
def _first_state(trainer: Trainer, model: AbstractActorCritic, key: Key[Array, ""]) -> TrainState:
    reset_key, learner_key = jax.random.split(key)
    memory = trainer.curriculum.init(model)
    vector_env, _ = trainer._parts_at(jnp.int32(0), jnp.int32(1), memory)  # pyright: ignore[reportPrivateUsage]
    rollout = start_rollout(vector_env, model, reset_key)
    learner = init_learner(model, rollout, trainer.config, learner_key, trainer.algorithm)
    totals = empty_totals(trainer.metrics, trainer._diagnostics(learner))  # pyright: ignore[reportPrivateUsage]
    memory = trainer.curriculum.init(learner.model)
    return strongly_typed(TrainState(learner, totals, memory))


@eqx.filter_jit(donate="all-except-first")
def run_chunk(
    fixed: tuple[Trainer, Int[Array, ""], Real[Array, ""]], state: TrainState
) -> tuple[TrainState, Health]:
    """Runs :meth:`Trainer.run_updates` as a compiled function, and donates the state.

    Args:
        fixed: the trainer, the number of updates, and the number of updates of the whole run.
        state: the run's current state.
    """
    trainer, n, total_updates = fixed
    return trainer.run_updates(state, n, total_updates)


def wait_for(health: Health) -> None:
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
