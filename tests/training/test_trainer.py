"""The loop around the compiled chunks: cuts, stops, errors and what callbacks see."""

import gc
import os
import signal

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from beartype.door import die_if_unbearable

import ppo_mask as pm
import programs
from ppo_mask.checkpoints import RunDir
from ppo_mask.errors import RunError
from ppo_mask.training import _loop
from same_run import assert_same

EVERY_KIND = pytest.mark.parametrize(
    "make", [programs.locks, programs.doors, pytest.param(programs.gru, marks=pytest.mark.slow)]
)


@pytest.fixture(autouse=True)
def checked_keys():
    """JAX raises an error if a key is used twice."""
    with jax.debug_key_reuse(True):
        yield


class Recorder(pm.Callback):
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


def press(*numbers):
    return lambda *_: [os.kill(os.getpid(), number) for number in numbers]


@EVERY_KIND
def test_cutting_the_run_into_chunks_changes_nothing(make, monkeypatch):
    monkeypatch.setattr(_loop, "_CHUNK_SECONDS", 1e9)  # However slow the machine is.
    program, fine, coarse = make(), Recorder(every=1), Recorder()
    one, _ = program.train(12, callbacks=[fine], log_interval=4)
    other, _ = program.train(12, callbacks=[coarse], log_interval=4)
    assert fine.updates == list(range(1, 13))
    assert coarse.events[0] == "start"
    assert coarse.events[-4:] == ["log", "chunk", "stop: finished", "close"]
    assert coarse.updates == [1, 3, 4, 8, 12]
    assert_same(one, other)
    assert [(r.update, r.env_steps) for r in fine.records] == [(4, 256), (8, 512), (12, 768)]
    for a, b in zip(fine.records, coarse.records, strict=True):
        assert a.values.keys() == b.values.keys()
        different = {k for k in a.values if a.values[k] != b.values[k]}
        assert different == {"train/steps_per_second"}
        assert all(type(x) is float for x in a.values.values())


@EVERY_KIND
def test_a_stop_a_checkpoint_and_going_on_change_and_compile_nothing(make, tmp_path, compiled):
    program = make()
    stop = Recorder(1, lambda run, now: now.update == 5 and run.request_stop("enough"))
    half, _ = program.train(10, callbacks=[stop])
    assert stop.events[-2:] == ["stop: enough", "close"]
    assert int(half.update) == 5
    store = RunDir(tmp_path)
    store.save(5, half, {})
    restored, before = store.checkpoint(5).restore(like=program.start), len(compiled())
    assert_same(program.train(10, restored)[0], program.train(10)[0])
    assert "jit(run_chunk)" not in compiled()[before:]


def test_a_total_that_is_no_multiple_of_the_log_interval_changes_nothing_later():
    part, history = programs.locks().train(6, log_interval=4)
    assert [(record.update, record.partial) for record in history.records] == [
        (4, False),
        (6, True),
    ]
    assert int(part.totals.updates) == 2  # The line at the very end did not empty them.
    _, history = programs.locks().train(8, part, log_interval=4)
    assert [record.update for record in history.records] == [8]


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

    recorder = Recorder(1, lambda run, now: now.update == 5 and die_if_unbearable(Hint(), Hint))
    programs.locks().train(10, callbacks=[recorder])
    assert recorder.updates[-1] == 5
    assert recorder.events[-2:] == [f"stop: {number.name}", "close"]


@pytest.mark.parametrize("make", [programs.locks, programs.doors])
def test_other_numbers_of_the_config_compile_nothing(make, compiled):
    """The tests' shared programs live on this."""
    program = make()
    model = program.make_model(jax.random.key(5))
    # Here, since other tests compile it without the check of keys.
    assert program.train(6, callbacks=[Recorder(every=3)])[0].update == 6
    assert program.trainer.init(model, jax.random.key(6)).update == 0
    before = len(compiled())
    numbers = ("learning_rate", "gamma", "gae_lambda", "vf_coef", "ent_coef")
    for changes in (dict.fromkeys(numbers, 0.5), {"max_grad_norm": 1.0, "clip_eps": float("inf")}):
        program.train(9, callbacks=[Recorder(every=3)], **changes)
        assert program.with_config(**changes).init(model, jax.random.key(6)).update == 0
    assert compiled()[before:] == []


def test_the_state_is_made_of_arrays_that_stay_usable():
    state = programs.locks().start
    before = jax.tree.map(jnp.copy, eqx.filter(state, eqx.is_array))
    programs.locks().train(1)
    assert_same(state, before)
    rest = eqx.partition(state, eqx.is_array)[1]
    assert not jax.tree.leaves(rest)
    assert isinstance(eqx.combine(before, rest), pm.TrainState)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_run_in_good_order(number, monkeypatch):
    before = signal.getsignal(number)
    # A signal that is ignored, as SIGHUP is under nohup, would stay so.
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_DFL)
    recorder = Recorder(1, press(number))
    state, _ = programs.locks().train(10, callbacks=[recorder], log_interval=4)
    assert int(state.update) == 1
    assert recorder.events == ["start", "chunk", f"stop: {number.name}", "close"]
    monkeypatch.undo()
    assert signal.getsignal(number) is before


def test_an_ignored_signal_stays_ignored():
    numbers = signal.SIGHUP, signal.SIGINT
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        recorder = Recorder(1, press(signal.SIGHUP))
        assert int(programs.locks().train(3, callbacks=[recorder])[0].update) == 3
        # A shell starts what runs in the background with SIGINT ignored.
        recorder = Recorder(1, press(signal.SIGTERM, signal.SIGINT))
        assert int(programs.locks().train(3, callbacks=[recorder])[0].update) == 1
        assert [signal.getsignal(number) for number in numbers] == [signal.SIG_IGN] * 2
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def test_a_callback_that_cannot_be_closed_keeps_none_open():
    class Fails(Recorder):
        def close(self):
            super().close()
            raise OSError("disk is gone")

    first, second = Fails(), Recorder()
    with pytest.raises(OSError, match="disk is gone"):
        programs.locks().train(1, callbacks=[first, second])
    assert first.events[-1] == second.events[-1] == "close"


def test_a_second_ctrl_c_does_not_interrupt_jax_while_it_compiles():
    # Python would crash at its end. The frame that is interrupted is one of that module.
    compiler = {"__name__": "jax._src.compiler", "press": press(signal.SIGINT, signal.SIGINT)}
    exec("def compile(*progress): press(*progress)", compiler)
    recorder = Recorder(1, compiler["compile"])
    programs.locks().train(10, callbacks=[recorder], log_interval=4)
    assert recorder.events == ["start", "chunk", "stop: SIGINT", "close"]


class Broken(pm.AbstractEnv):
    """From its tenth step on, shows what cannot be: which of four, is an array."""

    what: jax.Array  # Traced: all cases are one program.
    num_actions: tuple[int, ...] = eqx.field(static=True, default=(2, 3))

    def reset(self, key):
        return jnp.int32(0), self._show(jnp.int32(0))

    def step(self, key, state, action):
        return state + 1, self._show(state + 1)

    def _show(self, steps):
        reward, observation, mask, last = (steps >= 10) & (self.what == jnp.arange(4))
        return pm.TimeStep(
            observation=jnp.ones(1)
            + jnp.where(observation, jnp.inf, 0)
            + jnp.where(last, jnp.nan, 0),
            action_mask=jnp.ones(5, bool) & ~(mask & (jnp.arange(5) >= 2)),
            reward=jnp.where(reward, jnp.nan, 0.0),
            terminated=False,
            truncated=last,
            info={},
        )


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (3, "update 2: the environment gave an observation that is not finite"),
        (0, "update 2: the environment gave a reward that is not finite"),
        (1, "update 2: the environment gave an observation that is not finite"),
        (2, "update 2: an action mask was all False in part 1 of 2 x 3 actions"),
    ],
)
def test_a_run_that_cannot_go_on_stops_before_any_callback_sees_it(what, message):
    program, recorder = programs.program(Broken(jnp.int32(what)), metrics={}), Recorder()
    with pytest.raises(pm.TrainingError, match=message):
        program.train(50, callbacks=[recorder])
    assert recorder.updates == [1]
    assert recorder.events[-1] == "close"
    assert not any(event.startswith("stop") for event in recorder.events)


def test_an_exploding_run_says_what_exploded():
    with pytest.raises(
        pm.TrainingError, match=r"update 1: not finite: .*vf_loss.* of 8 parameters"
    ):
        programs.locks().train(5, learning_rate=1e38)


def test_a_log_interval_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="log_interval must be at least 1, got 0"):
        programs.locks().train(1, log_interval=0)


@pytest.mark.parametrize("enabled", [True, False])
def test_only_tracing_goes_without_garbage_collection(enabled, monkeypatch):
    class Look(pm.Callback):
        def on_start(self, run, state):
            seen.append(gc.isenabled())

    def fail(action, info):
        seen.append(gc.isenabled())
        raise RuntimeError("seen enough")

    seen, program = [], programs.locks()
    failing = pm.Trainer(program.env, program.config, metrics={"fails": pm.Metric(fail)})
    was_enabled = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        program.train(1, callbacks=[Look()])
        with pytest.raises(RunError, match=r"metric fails .* fails: seen enough"):
            failing.train(failing.init(program.start.model, jax.random.key(0)), 64)
        assert [*seen[:2], gc.isenabled()] == [enabled, False, enabled]
    finally:
        (gc.enable if was_enabled else gc.disable)()


@pytest.mark.optimized
def test_each_of_several_choices_is_learned_under_its_mask():
    env = pm.envs.probes.MaskedDoors()
    trainer = pm.Trainer(env, pm.PPO(num_envs=32, num_steps=32, learning_rate=3e-3))
    model = pm.network_for(env, "gru", key=jax.random.key(0), hidden_dim=32)
    state = trainer.train(trainer.init(model, jax.random.key(1)), 20 * 32 * 32)
    result = pm.evaluate(state.model, env, jax.random.key(2), 100)
    # Random allowed keys open half a door of four; who forgets a mask is out at the first.
    assert result.mean_return > 3.8
    assert (result.episode_length == 4).all()
