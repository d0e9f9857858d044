"""An environment of Gymnasium behaves as it does by hand; what it does wrong is one line."""

import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from unittest.mock import Mock

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation, TimeLimit

import ppo_mask as pm
import programs
from playing import draw_allowed, play_without_jax, played_on_host
from ppo_mask.adapters._on_host import _stepper
from ppo_mask.adapters._on_host._stepper import UnfitError, check_mask
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv
from ppo_mask.adapters.to_gymnasium import ToGymnasium
from ppo_mask.callbacks import _evaluator
from ppo_mask.envs import ArrayInfo
from ppo_mask.errors import RunError
from ppo_mask.training import Progress, Run
from python_games import Climb, Drawn, InInfo, InObservation, Invalid, InvalidParts, Spaces, Wrong

DOORS = pm.envs.probes.MaskedDoors()
EVERYTHING = spaces.Dict(
    {
        "z": spaces.Box(-1, 1, (2, 3), np.float64),
        "a": spaces.Tuple([spaces.Discrete(4, start=2), spaces.MultiBinary(3)]),
        "m": spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [0, 0]]),
        "image": spaces.Box(0, 255, (4, 4, 1), np.uint8),
        "long": spaces.Box(-5, 5, (2,), np.int64),
        "flag": spaces.Box(0, 1, (2,), bool),
    }
)
SAYS = spaces.Dict({"say": spaces.Text(3)})
MIXED = spaces.Dict({"in": spaces.Dict({1: spaces.Discrete(3), "a": spaces.Discrete(3)})})
KEY = jax.random.key(0)


def follow(env, make, steps=60):
    """Plays a batch beside the same environments by hand; returns how many episodes ended."""
    vector = pm.VectorEnv(env, 3)
    games = [make() for _ in range(3)]
    key, random, ends = jax.random.key(5), np.random.default_rng(0), 0
    seeds = np.asarray(jax.random.key_data(jax.random.split(key, 3)))[:, -1] & 0x7FFFFFFF
    shown = [game.reset(seed=int(seed))[0] for game, seed in zip(games, seeds, strict=True)]
    state, timestep = jax.jit(vector.reset)(key)
    step = jax.jit(vector.step)
    for _ in range(steps):
        timestep = jax.device_get(timestep)
        for i, game in enumerate(games):
            same(game.observation_space, timestep.observation, i, shown[i])
            np.testing.assert_array_equal(timestep.action_mask[i], allowed_in(game))
        actions = draw_allowed(random, timestep.action_mask, env.num_actions)
        state, timestep = step(KEY, state, actions)
        timestep = jax.device_get(timestep)
        for i, (game, action) in enumerate(zip(games, actions, strict=True)):
            start = getattr(game.action_space, "start", 0)
            action = action.reshape(game.action_space.shape) + start
            shown[i], reward, terminated, truncated, info = game.step(action)
            same(game.observation_space, timestep.final_observation, i, shown[i])
            assert timestep.reward[i] == np.float32(reward)
            assert (timestep.terminated[i], timestep.truncated[i]) == (terminated, truncated)
            for name, values in timestep.info.items():
                assert values[i] == info[name]
            if terminated or truncated:
                ends += 1
                shown[i], _ = game.reset()
    assert step._cache_size() == 1
    env.close()
    return ends


def allowed_in(game):
    game = game.unwrapped
    return game.allowed() if isinstance(game, InObservation) else game.action_masks()


def same(space, observation, i, wanted):
    if isinstance(space, spaces.Dict):
        for name, part in space.items():
            same(part, observation[name], i, wanted[name])
    elif isinstance(space, spaces.Tuple):
        for part, ours, theirs in zip(space.spaces, observation, wanted, strict=True):
            same(part, ours, i, theirs)
    else:
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            wanted = spaces.flatten(space, wanted)
        np.testing.assert_array_equal(observation[i], np.asarray(wanted).astype(observation.dtype))


GAMES = {
    "cards": Climb,
    "a row of choices": InvalidParts,
    "a table of choices": partial(InvalidParts, [[4, 2], [3, 3]], [[1, 0], [-1, 5]]),
    "all observations": lambda: Spaces(EVERYTHING, start=-1),
    "a mask in its info": lambda: InInfo(Climb()),
    "a mask in its observation": InObservation,
    "a mask of floats there": lambda: InObservation(np.float32),
    "there and back": lambda: ToGymnasium(DOORS),
}


@pytest.mark.parametrize(
    ("game", "num_workers"), [*((game, 0) for game in GAMES), ("cards", 2), ("all observations", 2)]
)
def test_steps_equal_the_game_by_hand(game, num_workers, capfd):
    infos = ["cards"] if game == "cards" else []
    env = GymnasiumEnv(GAMES[game], infos=infos, num_workers=num_workers)
    assert (follow(env, GAMES[game]) > 4) == (game != "all observations")
    assert capfd.readouterr().err == ""


def test_bounds_and_orders_are_known_and_texts_left_out(capfd):
    parts = {"a": EVERYTHING, "board": spaces.Box(0, 99, (4, 4, 2), np.int8), "say": spaces.Text(3)}
    parts["in"] = spaces.Dict({"hand": spaces.Discrete(3), "mission": spaces.Text(3)})
    env = GymnasiumEnv(lambda: Spaces(spaces.Dict(parts)))
    texts = "observation['in']['mission']", "observation['say']"
    lines = [f"warning: Spaces: {x} is text, and left out: networks take numbers" for x in texts]
    assert capfd.readouterr().err.splitlines() == lines
    _, first = env.reset(KEY)
    assert first.observation.keys() == {"a", "board", "in"}
    model = eqx.filter_eval_shape(pm.network_for, env, "conv", key=KEY)
    known = [x for x in model.reader.bounds if x is not None]
    assert known == [(0.0, 255.0), (0.0, 99.0)]
    assert pm.TimeLimit(env, 3).observation_info == env.observation_info
    shown = env.encode(Spaces(spaces.Dict(parts)).observation_space.sample())
    assert jax.tree.structure(shown) == jax.tree.structure(first.observation)
    env.close()


class Jobs(Spaces):
    """An action is one of three jobs, or to wait."""

    observation_sets = (["jobs", None],)

    def __init__(self):
        super().__init__(spaces.Dict({"jobs": spaces.Box(0, 1, (3, 2)), "time": spaces.Box(0, 1)}))
        self.action_space = spaces.Discrete(4)


def test_an_environment_names_its_sets_of_candidates():
    env = GymnasiumEnv(Jobs)
    model = pm.network_for(env, "sets", hidden_dim=8, num_layers=1, key=KEY)
    assert "(sets of 3 x 2)" in pm.networks.describe_network(model, env)
    assert GymnasiumEnv(Climb).observation_sets is None


def test_stacked_frames_are_the_channels():
    frame = spaces.Box(0, 255, (9, 3), np.uint8)
    make = lambda: FrameStackObservation(Spaces(frame), 5)  # noqa: E731
    with GymnasiumEnv(make) as env:
        assert env.observation_info == ArrayInfo((0, 255), channels_first=True)


def in_info(name, convert):
    return lambda: InInfo(Climb(), name, convert)


LIST = in_info("valid_actions", np.flatnonzero)
NAMED = in_info("legal", lambda mask: np.flatnonzero(mask).tolist())
ONLY_METHOD = in_info("other", np.int8)


class Valid(InInfo):
    def valid_action_mask(self):
        return self.env.action_masks()


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (lambda: Valid(Climb(), "other"), {}),
        (LIST, {}),
        (NAMED, {"mask": "legal"}),
        (ONLY_METHOD, {"mask": "legal"}),
        (NAMED, {"mask": lambda game: game.legal(), "num_workers": 2}),
    ],
)
def test_masks_are_found_under_other_names_or_where_one_says(make, settings, capfd):
    assert follow(GymnasiumEnv(make, **settings), make, steps=30) > 1
    assert capfd.readouterr().err == ""


LAYOUT = _stepper.Layout("", 4, 4, (0,), (), 0, [], ("method", "action_masks"), (), ())


@pytest.mark.parametrize(
    ("mask", "wanted", "settings"),
    [
        ([1, 3], [0, 1, 0, 1], {}),
        ((3,), [0, 0, 0, 1], {}),
        ({0: None, 2: None}, [1, 0, 1, 0], {}),
        (np.array([1, 4], np.uint8), [1, 0, 0, 1], {"start": np.int64(1)}),
        ([0, 1, 2, 3], [1, 1, 1, 1], {}),
        ([0, 1, 1, 0], [0, 1, 1, 0], {}),
        ([0, 1, 1, 0], [0, 1, 1, 0], {"mask": ("info", "valid_actions")}),
        # Of two actions it may be either.
        ([0, 1], [0, 1], {"mask_length": 2}),
        ([0, 1], [1, 1], {"mask_length": 2, "mask": ("info", "valid_actions")}),
    ],
)
def test_a_mask_may_be_a_list_of_the_allowed_actions(mask, wanted, settings):
    layout = LAYOUT._replace(**settings)
    assert check_mask(mask, layout).tolist() == list(map(bool, wanted))


class InTuple(InInfo):
    """Its mask is in Gymnasium's form, which ``MultiDiscrete.sample`` takes."""

    def __init__(self):
        super().__init__(InvalidParts((4, 3, 3)), convert=self.split)

    def split(self, mask):
        mask = tuple(np.split(mask.astype(np.int8), [4, 7]))
        assert self.action_space.sample(mask=mask) is not None
        return mask


def test_a_mask_may_be_a_tuple_with_a_row_for_each_part():
    assert follow(GymnasiumEnv(InTuple), InTuple, 20) > 4
    layout = LAYOUT._replace(mask_length=8, action_shape=(4,), mask_starts=(0, 2, 4, 6))
    row = np.array([1, 0, 1, 1, 0, 1, 1, 1])
    for mask in (row, row.tolist(), tuple(row.tolist()), tuple(row.reshape(4, 2))):
        assert check_mask(mask, layout).tolist() == row.tolist()
    for mask in (row.reshape(4, 2), [row[:2], row[2:4], row[4:]], (row[:6], None)):
        with pytest.raises(UnfitError, match=r"must be one row of 8 booleans, part after part$"):
            check_mask(mask, layout)


class Switches(InvalidParts):
    """Names bits, in rows of two."""

    def __init__(self):
        super().__init__(((2, 2), (2, 2)))
        self.action_space = spaces.MultiBinary((2, 2))

    def step(self, action):
        assert self.action_space.contains(action)
        return self._go_on(float((action == self.state).mean()))

    def action_masks(self):
        masks = np.ones((4, 2), bool)
        masks[0, self.invalid[0, 0]] = False
        return masks.reshape(-1)


def test_bits_are_parts_of_two_choices():
    assert GymnasiumEnv(Switches).num_actions == (2, 2, 2, 2)
    assert follow(GymnasiumEnv(Switches), Switches, 20) > 4


class InTurn(InvalidParts):
    def part_mask(self, prefix, k):
        return self.action_masks()[: self.dims[0]]


def test_parts_that_depend_on_each_other_are_refused():
    line = r"^InTurn: its part_mask says .* make each combination of the parts one action$"
    with pytest.raises(RunError, match=line):
        GymnasiumEnv(InTurn)
    assert GymnasiumEnv(lambda: ToGymnasium(DOORS)).num_actions == (4, 6, 6)


def test_truncation_equals_the_game_by_hand():
    long = partial(Invalid, length=1000)
    assert follow(GymnasiumEnv(long, max_episode_steps=7), lambda: TimeLimit(long(), 7)) == 24
    limited = partial(gymnasium.make, "Climb-v0", max_episode_steps=5)
    assert follow(GymnasiumEnv(limited().spec), limited) > 9
    named = GymnasiumEnv("python_games:Climb-v0", max_episode_steps=5)
    assert follow(named, limited) > 9


def test_without_masks_all_is_allowed_and_a_warning_says_so(capfd):
    _, timestep = GymnasiumEnv("CartPole-v1").reset(jax.random.key(7))
    assert timestep.action_mask.tolist() == [True, True]
    line = (
        "warning: CartPole-v1 has no masks under a known name: all its actions are always allowed"
    )
    assert capfd.readouterr().err.startswith(line)
    assert timestep.observation.dtype == jnp.float32
    wanted, _ = gymnasium.make("CartPole-v1").reset(seed=7)
    np.testing.assert_array_equal(timestep.observation, wanted)


def test_a_program_can_encode_what_the_game_shows():
    env = GymnasiumEnv(lambda: Spaces(EVERYTHING))
    _, timestep = env.reset(jax.random.key(3))
    sample, _ = Spaces(EVERYTHING).reset(seed=3)
    encoded = env.encode(sample)
    jax.tree.map(np.testing.assert_array_equal, encoded, timestep.observation)
    types = [x.dtype for x in jax.tree.leaves(timestep.observation)]
    assert types == [x.dtype for x in jax.tree.leaves(encoded)]
    flat = spaces.flatten(EVERYTHING, sample).astype(np.float32)
    np.testing.assert_array_equal(pm.networks.ArrayReader().join(encoded), flat)


def test_wrappers_of_this_library_work():
    outside = pm.TimeLimit(GymnasiumEnv(Climb), 4)
    inside = GymnasiumEnv(Climb, max_episode_steps=4)
    ours, theirs = played_on_host(outside), played_on_host(inside)
    assert sum(int(timestep.truncated.sum()) for timestep in ours) > 20
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_batches_do_not_disturb_each_other():
    env = GymnasiumEnv(Climb)
    vector, other = pm.VectorEnv(env, 3), pm.VectorEnv(env, 2)
    step, begin, disturb = jax.jit(vector.step), jax.jit(vector.reset), jax.jit(other.reset)

    def rewards(disturbed):
        state, timestep = begin(jax.random.key(1))
        for number in range(12):
            if disturbed and number % 2:
                disturb(jax.random.key(number))
                begin(jax.random.key(number))
            actions = np.asarray(timestep.action_mask).argmax(axis=1).astype(np.int32)
            state, timestep = step(KEY, state, actions)
            yield timestep.reward.tolist()

    alone = list(rewards(False))
    # The most batches that are kept, and one more.
    assert list(rewards(True)) == alone


def test_state_that_is_gone_begins_new_episodes(capfd):
    env = pm.VectorEnv(GymnasiumEnv(Climb), 3)
    first, timestep = env.reset(KEY)
    actions = timestep.action_mask.argmax(axis=1).astype(jnp.int32)
    env.step(KEY, first, actions)
    assert capfd.readouterr().err == ""
    state, again = env.step(KEY, first, actions)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("warning: Climb: ")
    assert "3 new episodes replace" in line
    assert again.truncated.all()
    assert not again.terminated.any()
    assert again.reward.tolist() == [0, 0, 0]
    # The old episodes end where they stood, and the new ones begin.
    jax.tree.map(np.testing.assert_array_equal, again.final_observation, timestep.observation)
    assert again.observation["top"].argmax(axis=1).tolist() == [0, 0, 0]
    env.step(KEY, state, again.action_mask.argmax(axis=1).astype(jnp.int32))
    assert capfd.readouterr().err == ""


class NothingInAPart(InvalidParts):
    def action_masks(self):
        return super().action_masks() & (np.arange(10) < (10 if self.steps < 2 else 7))


class TooShort(InvalidParts):
    def action_masks(self):
        return super().action_masks()[:-1]


class Old(Climb):
    def reset(self, **options):
        return super().reset(**options)[0]


class OldWithoutMasks(Old):
    """Is reset by who looks for a mask in its info."""

    @property
    def action_masks(self):
        raise AttributeError


class Additive(InObservation):
    """Its mask is what to add to logits."""

    def _look(self):
        look = super()._look()
        return look | {"action_mask": (look["action_mask"] - 1) * 1e9}


class Blind(Climb):
    observation_space = property(lambda self: self.table, lambda self, space: None)


ONE_GAME = Climb()
OLD = r"Old\w*: reset must return 2 values \(observation, info\); got dict$"
TEXT = r"Climb: info\['text'\] must be one number; got 'ignored'"
UNSENT = r"Climb: what makes it cannot be sent to a worker \("
SHORT = r"TooShort: .* has shape \(9,\); it must be one row of 10 booleans, part after part$"
CRASH = r"Climb raised RuntimeError: the table fell over at .*python_games.py:\d+ \(step\)$"
WRONG = {
    "shape": r"Wrong: observation\['left'\] is float64\[2\]; its space says float32\[1\]",
    "kind": r"Wrong: observation\['top'\] is float64\[\]; its space says int32\[\]",
    "four": r"Wrong: step must return 5 values \(observation, .*\); got 4 values$",
    "none": r"Wrong: step must return 5 values \(.*\); got NoneType$",
    "info": r"Wrong: the info of step must be a dict; got list$",
    "reward": r"Wrong: the reward must be one number; got array\(\[1.\]\)$",
    "no reward": r"Wrong: the reward must be one number; got None$",
    "flags": r"Wrong: terminated and truncated must be one boolean each; got \(array\(",
    "large": r"Wrong: observation\['top'\] holds 8589934599; its space, kept as int32, has 0 to 9$",
    "exit": r"Wrong raised SystemExit: bye at .*python_games.py:\d+ \(step\)$",
    "reset": r"Wrong raised RuntimeError: no cards at .*\(reset\)$",
    "nothing": r"Wrong: action_masks\(\) allows no action, though the episode has not ended",
    "length": r"Wrong: action_masks\(\) has shape \(4,\); it must be one row of 5 booleans",
    "ragged": r"Wrong: action_masks\(\) is no array; .* or the allowed actions, each once$",
    "list": r"Wrong: action_masks\(\) has shape \(2,\); it must be .*, each once$",
    "no list": r"Wrong: action_masks\(\) allows no action, though the episode has not ended",
    # NumPy found it, and it is not NumPy's mistake.
    "numpy": r"Wrong raised ValueError: all .* at .*python_games.py:\d+ \(action_masks\)$",
    "floats": r"Wrong: action_masks\(\) must hold booleans, or 0 and 1; got 0\.5$",
}
WORKERS = {"num_workers": 2}
CASES = {
    "crash": (partial(Climb, 3), {}, CRASH),
    "crash in a worker": (partial(Climb, 3), WORKERS, CRASH),
    "no info of a reset": (Old, {}, OLD),
    "an info that is no number": (Climb, {"infos": ["text"]}, TEXT),
    "one environment twice": (lambda: ONE_GAME, {}, "Climb: .* the same environment twice"),
    "what no worker can have": (partial(Climb, socket.socket()), WORKERS, UNSENT),
    "nothing in a part": (NothingInAPart, {}, r"NothingInAPart: .* allows no action in part 2"),
    "a mask to add": (
        partial(Additive, np.float32),
        {},
        r"Additive: observation\[.*\] must hold booleans, or 0 and 1; got -1000000000\.0$",
    ),
    "too short for its parts": (TooShort, {}, SHORT),
    **{what: (partial(Wrong, what), {}, line) for what, line in WRONG.items()},
    "shape in a worker": (partial(Wrong, "shape"), WORKERS, WRONG["shape"]),
    "exit in a worker": (partial(Wrong, "exit"), WORKERS, WRONG["exit"]),
    "lost worker": (partial(Wrong, "die"), WORKERS, r"Wrong: worker 0 of 2 is gone .*code 7\)$"),
}


@pytest.mark.parametrize("what", CASES)
def test_what_is_wrong_is_one_line(what, capfd):
    make, settings, line = CASES[what]
    wrong = pytest.raises(RunError, match=f"^{line}")
    with GymnasiumEnv(make, **settings) as env, wrong as caught:
        play_without_jax(env, 4)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


def fall_over(game, action=None, **options):
    raise RuntimeError("the table\nfell over")


def test_an_error_ends_init_training_or_an_evaluation_and_one_can_go_on(monkeypatch):
    program = programs.host()
    line = r"Climb raised RuntimeError: the table fell over at .*\(fall_over\)$"
    with monkeypatch.context() as broken:
        broken.setattr(Climb, "step", fall_over)
        with pytest.raises(pm.TrainingError, match="^update 1: " + line):
            program.train(1)
        with pytest.raises(RunError, match="^" + line):
            pm.evaluate(program.start.model, program.env, KEY, 3, max_steps=4)
    with monkeypatch.context() as broken:
        broken.setattr(Climb, "reset", fall_over)
        with pytest.raises(RunError, match="^" + line):
            program.trainer.init(program.start.model, KEY)
    program.train(1)


class StopsItself(Climb):
    """Asks its run to stop, or is interrupted, and notes how many there are."""

    run, alive, most, steps, interrupt = None, 0, 0, 0, False

    def __init__(self):
        super().__init__()
        StopsItself.alive += 1
        StopsItself.most = max(StopsItself.most, StopsItself.alive)

    def step(self, action):
        StopsItself.steps += 1
        if self.interrupt:
            raise KeyboardInterrupt
        if self.run is not None:
            self.run.request_stop("SIGTERM")
        return super().step(action)

    def close(self):
        StopsItself.alive -= 1


def test_an_evaluation_closes_its_few_environments_and_a_stop_cuts_it(monkeypatch):
    for name in ("alive", "most"):
        monkeypatch.setattr(StopsItself, name, 0)
    env, history = GymnasiumEnv(StopsItself), pm.History()
    run = Run(pm.PPO(num_envs=2), 0, 3, [history])
    state, progress = programs.host().start, Progress(1, 3, 0, 1.0)
    evaluator = pm.callbacks.Evaluator(env, KEY, 1, 60)
    evaluator.on_chunk(run, state, progress)
    assert [record.values["eval/num_episodes"] for record in history.records] == [60]
    assert (StopsItself.alive, StopsItself.most) == (0, 2)
    with monkeypatch.context() as others:  # Their episodes go on for longer.
        agreed = Mock(side_effect=["an episode goes on", None] * 90 + [None])
        others.setattr(_evaluator, "reason_of_any", agreed)
        evaluator.on_chunk(run, state, progress)
    assert (agreed.call_count, history.records.pop()) == (181, history.records[0])
    monkeypatch.setattr(StopsItself, "run", run)
    monkeypatch.setattr(StopsItself, "steps", 0)
    evaluator.on_chunk(run, state, progress)
    assert len(history.records) == 1
    assert (StopsItself.alive, StopsItself.steps) == (0, 2 * 16)
    # Ctrl+C in the middle of a step is none of the environment's errors.
    monkeypatch.setattr(StopsItself, "interrupt", True)
    with pytest.raises(KeyboardInterrupt):
        pm.evaluate(state.model, env, KEY, 60, num_envs=2, max_steps=1000)
    assert StopsItself.alive == 0
    # One that cannot begin closes no other's.
    env.reset(KEY)
    with pytest.raises(jax.errors.JaxRuntimeError):
        pm.evaluate(state.model, env, KEY, 2**50)
    assert StopsItself.alive == 1
    env.close()


def test_an_error_of_a_single_environment_is_raised_at_once():
    env = GymnasiumEnv(partial(Climb, 1))
    state, timestep = env.reset(KEY)
    with pytest.raises(RunError, match="the table fell over"):
        env.step(KEY, state, timestep.action_mask.argmax())
    vector = pm.VectorEnv(env, 2)  # So is one of several, where nothing is compiled.
    state, timestep = vector.reset(KEY)
    with pytest.raises(RunError, match="the table fell over"):
        vector.step(KEY, state, timestep.action_mask.argmax(axis=1))


class InStepsOnly(InInfo):
    def reset(self, **options):
        return self.env.reset(**options)


class Inside(gymnasium.ObservationWrapper):
    """Its observation is a part of another, so the mask in it is, too."""

    def __init__(self, name="action_mask"):
        super().__init__(InObservation())
        self.observation_space = spaces.Dict(me=self.env.observation_space)

    def observation(self, observation):
        return {"me": observation}


@pytest.mark.parametrize("make", [lambda: InStepsOnly(Invalid(5, 3, 9)), Inside])
def test_a_mask_that_reset_does_not_give_or_that_is_inside_of_a_part_is_not_found(make, capfd):
    GymnasiumEnv(make)
    assert "has no masks under a known name" in capfd.readouterr().err
    line = (
        r"has no entry or method 'action_mask', .*: after reset, info has \[\]; observation has \["
    )
    with pytest.raises(RunError, match=line):
        GymnasiumEnv(make, mask="action_mask")


@pytest.mark.parametrize("field", ["observation", "reward"])
def test_statistics_that_begin_anew_are_named(field, capfd):
    name, box = f"Normalize{field.capitalize()}", spaces.Box(0, 9, (2,))
    wrap = getattr(gymnasium.wrappers, name)

    def make(frozen=False):
        env = wrap(Spaces(box))
        env.update_running_mean = not frozen
        return TimeLimit(env, 3)

    GymnasiumEnv(make)
    (line,) = capfd.readouterr().err.splitlines()
    assert "_rms) begin anew in evaluations and resumed runs" in line
    assert f"--normalize-{field}s" in line
    GymnasiumEnv(partial(make, frozen=True))
    assert capfd.readouterr().err == ""


def test_a_wrapper_of_ones_own_need_not_say_that_its_means_run(capsys):
    class Means(gymnasium.Wrapper):
        obs_rms = None

    GymnasiumEnv(lambda: Means(Climb()))
    assert "(obs_rms) begin anew" in capsys.readouterr().err


class OneThread(Drawn):
    """Knows the thread that made it, and no other."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.thread = threading.get_ident()

    def __getattribute__(self, name):
        if name in ("reset", "step", "render", "close"):
            assert threading.get_ident() == super().__getattribute__("thread")
        return super().__getattribute__(name)


def test_an_environment_lives_in_one_thread(capfd):
    env = GymnasiumEnv(OneThread)
    env.prepare_to_draw(True)
    state, timestep = env.reset(KEY)
    assert env.draw(state, timestep) == "count 0"
    jax.block_until_ready(jax.jit(env.step)(KEY, state, 1))
    with ThreadPoolExecutor() as others:
        others.submit(env.close).result()
    assert env._host._steppers == {}
    assert "raised" not in capfd.readouterr().err


@pytest.mark.slow
def test_workers_that_hang_end_soon_after_their_parent():
    folder, name = os.path.split(_stepper.__file__)
    worker = f"""if True:
        import os, sys
        sys.path.insert(0, {folder!r})
        from {name.removesuffix(".py")} import _end_after
        print(os.getpid(), flush=True)
        _end_after(int(sys.argv[1]))
    """
    start = f"subprocess.run([sys.executable, '-c', {worker!r}, str(os.getpid())])"
    parent = f"import os, subprocess, sys; {start}"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert int(process.stdout.readline()) not in (0, process.pid)
        process.kill()
        assert process.stdout.read() == b""  # The worker holds the pipe as long as it lives.


def test_workers_end_with_the_block():
    with GymnasiumEnv(Climb, num_workers=2) as env:
        env.reset(KEY)
        (workers,) = env._host._steppers.values()
        processes = [process for process, _ in workers._workers]
        assert [process.poll() for process in processes] == [None]
    assert all(process.poll() is not None for process in processes)


def test_what_makes_an_environment_gets_its_arguments():
    for make in (Invalid, lambda **settings: Invalid(**settings)):
        for limit in (None, 5):
            env = GymnasiumEnv(make, env_kwargs={"dim": 7, "invalid": 2}, max_episode_steps=limit)
            assert env.num_actions == 7


@pytest.mark.parametrize(
    ("environment", "settings", "line"),
    [
        (Climb, {"infos": "cards"}, r"infos must be a list of names; .* \['cards'\]"),
        (Climb, {"num_workers": -1}, "num_workers must be 0 or more, got -1"),
        ("Nowhere-v0", {}, "Nowhere-v0 raised NameNotFound: Environment `Nowhere` does"),
        ("nowhere:Any-v0", {}, "nowhere:Any-v0 raised ModuleNotFoundError: No module named 'nowh"),
        ("fails:Any-v0", {}, r"^fails:Any-v0 raised KeyError: 'HOUSE' at .*fails.py:2"),
        ("wrong:Any-v0", {}, r"^wrong:Any-v0 raised SyntaxError: .* \(wrong.py, line"),
        (3, {}, "an environment is an id, or a function that makes one, for .* got 3$"),
        (
            Climb(),
            {},
            "a function that makes one, for several run side by side; got <python_games.Climb",
        ),
        (dict, {}, r"what should make a gymnasium\.Env made a builtins\.dict$"),
        (Blind, {}, r"Blind raised AttributeError: .*'table' at .*test_from_gymnasium.py"),
        ("Pendulum-v1", {}, r"Pendulum-v1 has actions of Box\(.*must be Discrete, Multi"),
        (
            lambda: Spaces(MIXED),
            {},
            "Spaces raised ValueError: Comparator .* sorting pytree dictionary",
        ),
        (lambda: Spaces(SAYS), {}, "Spaces: its observation has no numbers"),
        (partial(Wrong, "make"), {}, "the environment raised OSError: no such"),
        (OldWithoutMasks, {}, OLD),
        (NAMED, {"mask": "leal"}, r"Climb: has no .*'leal'.* info has \['cards', 'legal'\]; obs"),
    ],
)
def test_what_cannot_be_used_is_one_line(environment, settings, line, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "fails.py").write_text("import os\nos.environ['HOUSE']\n")
    (tmp_path / "wrong.py").write_text("def\n")
    with pytest.raises((ValueError, RunError), match=line) as caught:
        GymnasiumEnv(environment, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("space", "wrong", "line"),
    [
        (spaces.Discrete(3), 3, "holds 3; .* has 0 to 2"),
        (spaces.Discrete(3), -1, "holds -1; .* has 0 to 2"),
        (spaces.Discrete(3, start=1), 0, "holds 0; .* has 1 to 3"),
        (spaces.MultiDiscrete([2, 3], start=[5, -1]), [6, 2], "holds 2; .* has -1 to 1"),
        (spaces.MultiDiscrete([[2, 3], [2, 2]]), [[1, 2], [2, 0]], "holds 2; .* has 0 to 1"),
        (spaces.Box(0, 100, (2,), np.int8), [1, 200], "holds 200; .* int8, has -128 to 127"),
        (spaces.Box(0, 100, (2,), np.uint8), [1, -1], "holds -1; .* uint8, has 0 to 255"),
        (spaces.Box(0, 100, (2,), np.int64), [1, 2**33], "holds 8589934592; .* int32, has -2"),
        (spaces.Box(0, 1, (2,)), [1.0], r"is float64\[1\]; its space says float32\[2\]"),
    ],
)
def test_what_is_not_of_the_space_is_not_encoded(space, wrong, line):
    with pytest.raises(RunError, match=f"^Spaces: observation {line}"):
        GymnasiumEnv(lambda: Spaces(space)).encode(wrong)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_what_cannot_be_closed_costs_nothing(num_workers, capfd):
    with GymnasiumEnv(partial(Wrong, "close"), num_workers=num_workers) as env:
        env.reset(KEY)
    assert capfd.readouterr().err == ""


class OwnWrapper(pm.AbstractEnv):
    """A wrapper of somebody who knows nothing of hosts."""

    env: pm.AbstractEnv
    num_actions: int = 5

    def reset(self, key):
        return self.env.reset(key)

    def step(self, key, state, action):
        return self.env.step(key, state, action)


def test_where_it_cannot_work_is_one_line():
    env = GymnasiumEnv(Climb)
    vector, actions = pm.VectorEnv(OwnWrapper(env), 3), jnp.zeros(3, jnp.int32)
    state, _ = vector.reset(KEY)
    with pytest.raises(ValueError, match="OwnWrapper cannot hold an environment that lives in"):
        vector.step(KEY, state, actions)
    with pytest.raises(ValueError, match="MultiTask cannot hold an environment that lives in"):
        pm.MultiTask([env, env])
    trainer = pm.Trainer(env, pm.PPO(num_envs=2, num_steps=2))
    state = trainer.init(pm.network_for(env, key=KEY, hidden_dim=4), KEY)
    two = jax.tree.map(lambda x: jnp.stack([x, x]) if eqx.is_array(x) else x, state)
    with pytest.raises(RunError, match="several seeds train on one device, and not with an env"):
        trainer.train(two, 4)
    with pytest.raises(pm.errors.ProtocolError, match="check_env is for environments in JAX"):
        pm.check_env(env)
    mesh, spec = jax.make_mesh((1,), ("envs",)), jax.sharding.PartitionSpec
    split = {"mesh": mesh, "in_specs": spec(), "out_specs": spec("envs"), "check_vma": False}
    on_devices = jax.shard_map(pm.VectorEnv(env, 3).reset, **split)
    with pytest.raises(RunError, match="works on one device only: num_devices must be 1"):
        jax.eval_shape(on_devices, KEY)


COUNTS = ["count 0", "count 1", "count 2"]
own_mode, no_mode = (lambda: Drawn("ansi")), (lambda: Drawn())


@pytest.mark.parametrize(
    ("make", "as_text", "wanted"),
    [
        *[(Drawn, True, COUNTS), (Drawn, False, [0, 1, 2])],
        *[(own_mode, True, COUNTS), (own_mode, False, COUNTS)],
        *[(no_mode, True, [None] * 3), (no_mode, False, [None] * 3)],
    ],
)
def test_the_environment_that_steps_is_drawn(make, as_text, wanted):
    with GymnasiumEnv(make, num_workers=1, max_episode_steps=2) as env:
        env.prepare_to_draw(as_text)
        state, timestep = env.reset(KEY)
        shown = [env.draw(state, timestep)]
        for _ in range(2):  # The limit cuts the episode off, and a new one begins at once.
            state, timestep = env.step(KEY, state, 1)
            shown.append(env.draw(state, timestep))
        assert timestep.truncated
    assert [int(x[0, 0, 0]) if isinstance(x, np.ndarray) else x for x in shown] == wanted
