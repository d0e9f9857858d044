"""The loop around the compiled chunks: cuts, stops, errors and what callbacks see."""

import dataclasses
import gc
import os
import signal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype.door import die_if_unbearable

import programs
from environments import CartPole, Scripted
from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.networks import MLPActorCritic
from ppo_mask.ppo import PPOConfig
from ppo_mask.training import Callback, Metric, Trainer, TrainingError, TrainState, copy_state

_CONFIG = PPOConfig(num_envs=4, num_steps=8, num_minibatches=2, update_epochs=2, anneal_lr=True)
_ENV = CartPole()
_METRICS = {"actions/one": Metric(lambda action, info: action == 1)}


def _init(env=_ENV, config=_CONFIG, size=4, metrics=_METRICS):
    model = MLPActorCritic(size, env.num_actions, 8, 1, key=jax.random.key(0))
    return Trainer(env, config, metrics=metrics).init(model, jax.random.key(1))


def _assert_equal(one, other):
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if eqx.is_array(x):
            if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
                x, y = jax.random.key_data(x), jax.random.key_data(y)
            np.testing.assert_array_equal(x, y)


class _Recorder(Callback):
    def __init__(self, every=None, at_chunk=None):
        self.every, self.at_chunk = every, at_chunk
        self.events, self.records, self.updates = [], [], []

    def next_update(self, update):
        return None if self.every is None else update + self.every

    def on_start(self, run, state):
        self.events.append("start")

    def on_log(self, run, record):
        self.events.append("log")
        self.records.append(record)

    def on_chunk(self, run, state, progress):
        assert int(state.update) == progress.update
        self.events.append("chunk")
        self.updates.append(progress.update)
        if self.at_chunk is not None:
            self.at_chunk(run, progress)

    def on_stop(self, run, state, reason):
        self.events.append(f"stop: {reason}")

    def close(self):
        self.events.append("close")


TRAINER = Trainer(_ENV, _CONFIG, metrics=_METRICS)


def _train(state, total, callback=None, **kwargs):
    callbacks = [] if callback is None else [callback]
    arguments = {"callbacks": callbacks, "log_interval": 4} | kwargs
    return TRAINER.train(state, total * _CONFIG.batch_size, **arguments)


def test_cutting_the_run_into_chunks_changes_nothing():
    fine, coarse = _Recorder(every=1), _Recorder()
    one = _train(_init(), 12, fine)
    other = _train(_init(), 12, coarse)
    assert fine.updates == list(range(1, 13))
    assert {4, 8, 12} <= set(coarse.updates) < set(fine.updates)
    _assert_equal(one, other)
    assert [(r.update, r.env_steps) for r in fine.records] == [(4, 128), (8, 256), (12, 384)]
    for a, b in zip(fine.records, coarse.records, strict=True):
        assert a.values.keys() == b.values.keys()
        different = {k for k in a.values if a.values[k] != b.values[k]}
        assert different == {"train/steps_per_second"}
        assert all(type(x) is float for x in a.values.values())


def test_stopping_and_going_on_changes_nothing():
    whole = _train(_init(), 10)

    def stop(run, progress):
        if progress.update == 5:
            run.request_stop("enough")

    recorder = _Recorder(every=1, at_chunk=stop)
    half = _train(_init(), 10, recorder)
    assert recorder.events[-2:] == ["stop: enough", "close"]
    assert int(half.update) == 5
    _assert_equal(_train(half, 10), whole)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_within_a_check_of_types_stops_in_good_order(number):
    # beartype looks a hint up while it holds a lock that nobody can take twice.
    left = [number]

    class Interrupting(type):
        def __hash__(cls):
            if left:
                signal.raise_signal(left.pop())
            return super().__hash__()

    class Hint(metaclass=Interrupting):
        pass

    def interrupt(run, progress):
        if progress.update == 5:
            die_if_unbearable(Hint(), Hint)

    recorder = _Recorder(every=1, at_chunk=interrupt)
    _train(_init(), 10, recorder)
    assert recorder.updates[-1] == 5
    assert recorder.events[-2:] == [f"stop: {number.name}", "close"]


@pytest.mark.slow
def test_a_total_that_is_no_multiple_of_the_log_interval_changes_nothing_later():
    recorder = _Recorder()
    part = _train(_init(), 6, recorder)
    assert [(record.update, record.partial) for record in recorder.records] == [
        (4, False),
        (6, True),
    ]
    assert int(part.totals.updates) == 2  # The line at the very end did not empty them.
    again = _Recorder()
    _train(part, 8, again)
    assert [record.update for record in again.records] == [8]


@pytest.mark.parametrize("make", [programs.locks, programs.doors])
def test_other_numbers_of_the_config_compile_nothing(make, compiled):
    """The tests' shared programs live on this."""
    program = make()
    assert program.trained[0].update == 6
    model = program.make_model(jax.random.key(5))
    before = len(compiled())
    numbers = ("learning_rate", "gamma", "gae_lambda", "vf_coef", "ent_coef")
    for changes in (dict.fromkeys(numbers, 0.5), {"max_grad_norm": 1.0, "clip_eps": float("inf")}):
        program.train(2, **changes)
        assert program.with_config(**changes).init(model, jax.random.key(6)).update == 0
    assert compiled()[before:] == []


def test_another_number_of_updates_compiles_nothing():
    traced = []

    class Counting(AbstractEnv):
        num_actions: int = eqx.field(static=True, default=2)

        def reset(self, key):
            return _ENV.reset(key)

        def step(self, key, state, action):
            traced.append(1)
            return _ENV.step(key, state, action)

    env = Counting()
    Trainer(env, _CONFIG, metrics=_METRICS).train(_init(env), 1 * _CONFIG.batch_size)
    once = len(traced)
    Trainer(env, _CONFIG, metrics=_METRICS).train(
        _init(env), 9 * _CONFIG.batch_size, callbacks=[_Recorder(every=3)]
    )
    assert len(traced) == once


def test_the_callers_state_and_model_stay_usable():
    state = _init()
    before = jax.tree.map(jnp.copy, eqx.filter(state, eqx.is_array))
    _train(state, 1)
    _assert_equal(eqx.filter(state, eqx.is_array), before)


def test_the_state_is_made_of_arrays_and_goes_through_partition():
    state = _init()
    arrays, rest = eqx.partition(state, eqx.is_array)
    assert not jax.tree.leaves(rest)
    assert isinstance(eqx.combine(arrays, rest), TrainState)


def test_events_come_in_order():
    recorder = _Recorder()
    _train(_init(), 1, recorder)
    assert recorder.events == ["start", "log", "chunk", "stop: finished", "close"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_run_in_good_order(number, monkeypatch):
    before = signal.getsignal(number)
    # A signal that is ignored, as SIGHUP is under nohup, would stay so.
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_DFL)
    recorder = _Recorder(every=1, at_chunk=lambda run, _: os.kill(os.getpid(), number))
    state = _train(_init(), 10, recorder)
    assert int(state.update) == 1
    assert recorder.events == ["start", "chunk", f"stop: {number.name}", "close"]
    monkeypatch.undo()
    assert signal.getsignal(number) is before


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        recorder = _Recorder(every=1, at_chunk=lambda *_: os.kill(os.getpid(), signal.SIGHUP))
        assert int(_train(_init(), 3, recorder).update) == 3
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_ctrl_c_interrupts_at_once():
    def twice(run, progress):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    recorder = _Recorder(every=1, at_chunk=twice)
    with pytest.raises(KeyboardInterrupt):
        _train(_init(), 10, recorder)
    assert recorder.events == ["start", "chunk", "close"]


def test_env_steps_do_not_overflow():
    state = eqx.tree_at(lambda s: s.learner.num_updates, _init(), jnp.int32(2**30 - 1))
    recorder = _Recorder()
    _train(state, 2**30, recorder)
    assert recorder.records[-1].env_steps == 2**35


class _Broken(AbstractEnv):
    """From its tenth step on, shows a bad reward or observation, or a mask that allows nothing."""

    what: str = eqx.field(static=True)
    num_actions: int = eqx.field(static=True, default=2)

    def reset(self, key):
        return jnp.int32(0), self._timestep(jnp.int32(0))

    def step(self, key, state, action):
        return state + 1, self._timestep(state + 1)

    def _timestep(self, steps):
        bad = steps >= 10
        return TimeStep(
            observation=jnp.where(bad & (self.what == "observation"), jnp.inf, jnp.ones(1)),
            action_mask=jnp.ones(2, bool) & ~(bad & (self.what == "mask")),
            reward=jnp.where(bad & (self.what == "reward"), jnp.nan, 0.0),
            terminated=jnp.array(False),
            truncated=jnp.array(False),
            info={},
        )


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("reward", "update 2: the environment gave a reward that is not finite"),
        ("observation", "update 2: the environment gave an observation that is not finite"),
        ("mask", "update 2: an action mask was all False"),
    ],
)
def test_a_run_that_cannot_go_on_stops_before_any_callback_sees_it(what, message):
    env = _Broken(what)
    recorder = _Recorder()
    with pytest.raises(TrainingError, match=message):
        Trainer(env, _CONFIG).train(
            _init(env, size=1, metrics={}), 50 * _CONFIG.batch_size, callbacks=[recorder]
        )
    assert recorder.updates in ([], [1])
    assert recorder.events[-1] == "close"
    assert not any(event.startswith("stop") for event in recorder.events)


def test_episode_figures_are_exact_across_rollout_borders():
    # Episodes of 5 steps with rewards 1 … 5, in rollouts of 8: most cross a border.
    env = Scripted(length=5)
    recorder = _Recorder()
    state = _init(env, size=1, metrics={})
    Trainer(env, _CONFIG).train(state, 6 * _CONFIG.batch_size, callbacks=[recorder], log_interval=1)
    ended = [record.values["train/num_episodes"] / 4 for record in recorder.records]
    assert ended == [8 * (k + 1) // 5 - 8 * k // 5 for k in range(6)]
    for record in recorder.records:
        assert record.values["train/mean_episode_return"] == 15
        assert record.values["train/mean_episode_length"] == 5


def test_no_episode_figures_when_none_ended():
    env = Scripted()
    recorder = _Recorder()
    Trainer(env, _CONFIG).train(
        _init(env, size=1, metrics={}), 1 * _CONFIG.batch_size, callbacks=[recorder]
    )
    [record] = recorder.records
    assert record.values["train/num_episodes"] == 0
    assert "train/mean_episode_return" not in record.values
    assert record.values["train/mean_reward"] == 4.5


@pytest.mark.optimized
def test_hyperparameters_that_are_numbers_can_be_vmapped_over():
    model = MLPActorCritic(4, 2, 8, 1, key=jax.random.key(0))

    @jax.jit
    @jax.vmap
    def run(lr, ent_coef, key):
        config = PPOConfig(
            num_envs=4, num_steps=8, num_minibatches=2, learning_rate=lr, ent_coef=ent_coef
        )
        state = Trainer(_ENV, config).init(model, key)
        state, _ = Trainer(_ENV, config).run_updates(state, jnp.int32(3), jnp.int32(3))
        return state.model.actor[0].weight

    lrs, coefs = jnp.array([1e-3, 1e-2]), jnp.array([0.0, 0.1])
    keys = jax.random.split(jax.random.key(0), 2)
    weights = run(lrs, coefs, keys)
    swapped = run(lrs[::-1], coefs[::-1], keys[::-1])
    np.testing.assert_allclose(weights, swapped[::-1], atol=1e-6)
    one, other = np.abs(weights - model.actor[0].weight).max(axis=(1, 2))
    assert 0 < 3 * one < other


def test_a_log_interval_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="log_interval must be at least 1, got 0"):
        _train(_init(), 1, log_interval=0)


def test_a_state_is_copied_by_one_program(compiled):
    odd = [jnp.ones((n, 3)) for n in range(11, 14)]  # In shapes that no other test copies.
    state = dataclasses.replace(_init(), memory=odd)
    before = len(compiled())
    copy = copy_state(state)
    assert len(compiled()) == before + 1
    _assert_equal(copy, state)
    for x, y in zip(jax.tree.leaves(copy), jax.tree.leaves(state), strict=True):
        if eqx.is_array(x) and not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            assert x.unsafe_buffer_pointer() != y.unsafe_buffer_pointer()


@pytest.mark.parametrize("enabled", [True, False])
def test_only_tracing_goes_without_garbage_collection(enabled):
    traced, started = [], []

    def look(action, info):
        traced.append(gc.isenabled())
        return action == 1

    class Look(Callback):
        def on_start(self, run, state):
            started.append(gc.isenabled())

    metrics = {"actions/one": Metric(look)}
    state = _init(metrics=metrics)
    was_enabled = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        Trainer(_ENV, _CONFIG, metrics=metrics).train(
            state, 1 * _CONFIG.batch_size, callbacks=[Look()]
        )
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()
    assert traced
    assert not any(traced)
    assert started == [enabled]
