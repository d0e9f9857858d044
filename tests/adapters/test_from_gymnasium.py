"""An environment of Gymnasium behaves as it does by hand; what it does wrong is one line."""

import os
import subprocess
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import ppo_mask as pm
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv
from ppo_mask.errors import RunError
from python_games import Climb, InInfo, InObservation, Invalid, Spaces, Wrong

STEPS = 60


def seeds_of(key, count):
    data = jax.random.key_data(jax.random.split(key, count))
    return [int(words[-1]) & 0x7FFFFFFF for words in data]


def draw(random, masks):
    return np.array([random.choice(np.flatnonzero(mask)) for mask in masks])


def follow(env, make, count=3, steps=STEPS):
    """Plays a batch beside the same environments by hand; returns how many episodes ended."""
    vector = pm.VectorEnv(env, count)
    by_hand = [make() for _ in range(count)]
    key, random, ends = jax.random.key(5), np.random.default_rng(0), 0
    shown = [
        game.reset(seed=seed)[0] for game, seed in zip(by_hand, seeds_of(key, count), strict=True)
    ]
    state, timestep = jax.jit(vector.reset)(key)
    step = jax.jit(vector.step)
    for number in range(steps):
        for i, game in enumerate(by_hand):
            same(game.observation_space, timestep.observation, i, shown[i])
            wanted = allowed_in(game)
            np.testing.assert_array_equal(timestep.action_mask[i], wanted)
        actions = draw(random, np.asarray(timestep.action_mask))
        state, timestep = step(jax.random.key(number), state, jnp.asarray(actions, jnp.int32))
        for i, (game, action) in enumerate(zip(by_hand, actions, strict=True)):
            shown[i], reward, terminated, truncated, info = game.step(action)
            same(game.observation_space, timestep.final_observation, i, shown[i])
            assert timestep.reward[i] == np.float32(reward)
            assert (timestep.terminated[i], timestep.truncated[i]) == (terminated, truncated)
            for name, values in timestep.info.items():
                assert values[i] == info[name]
            if terminated or truncated:
                ends += 1
                shown[i], _ = game.reset()
    return ends


def allowed_in(game):
    return (
        game.allowed()
        if isinstance(game, InObservation)
        else game.get_wrapper_attr("action_masks")()
    )


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


@pytest.mark.parametrize("num_workers", [0, 2])
def test_steps_equal_the_game_by_hand(num_workers):
    env = GymnasiumEnv(Climb, infos=["cards"], num_workers=num_workers)
    assert follow(env, Climb) > 4
    env.close()


@pytest.mark.slow
def test_truncation_equals_the_game_by_hand():
    def make():
        return gymnasium.wrappers.TimeLimit(Invalid(length=1000), 7)

    assert follow(GymnasiumEnv(lambda: Invalid(length=1000), max_episode_steps=7), make) >= 24
    limited = gymnasium.make("Climb-v0", max_episode_steps=5)
    assert (
        follow(GymnasiumEnv(limited), lambda: gymnasium.make("Climb-v0", max_episode_steps=5)) > 9
    )
    by_id = GymnasiumEnv("python_games:Climb-v0", max_episode_steps=5)
    assert follow(by_id, lambda: gymnasium.make("Climb-v0", max_episode_steps=5)) > 9


def test_mask_in_info_is_found():
    vector = pm.VectorEnv(GymnasiumEnv(lambda: InInfo(Climb())), 2)
    by_method = pm.VectorEnv(GymnasiumEnv(Climb), 2)
    ours, theirs = vector.reset(jax.random.key(0)), by_method.reset(jax.random.key(0))
    for number in range(30):
        mask = np.asarray(ours[1].action_mask)
        np.testing.assert_array_equal(mask, theirs[1].action_mask)
        actions = jnp.asarray(mask.argmax(axis=1), jnp.int32)
        key = jax.random.key(number)
        ours, theirs = (
            v.step(key, s[0], actions) for v, s in ((vector, ours), (by_method, theirs))
        )


@pytest.mark.parametrize("dtype", [np.int8, np.float32])
def test_mask_in_the_observation_is_found(dtype, capfd):
    one = follow(GymnasiumEnv(lambda: InObservation(dtype)), lambda: InObservation(dtype), steps=20)
    vectors = GymnasiumEnv.of_vectors(lambda n: SyncVectorEnv([lambda: InObservation(dtype)] * n))
    assert follow(vectors, lambda: InObservation(dtype), steps=20) == one
    assert "no masks" not in capfd.readouterr().err


def test_without_masks_all_is_allowed():
    _, timestep = GymnasiumEnv("CartPole-v1").reset(jax.random.key(0))
    assert timestep.action_mask.tolist() == [True, True]
    assert timestep.observation.dtype == jnp.float32


def test_seed_is_the_key():
    env = GymnasiumEnv("CartPole-v1")
    _, timestep = env.reset(jax.random.key(7))
    np.testing.assert_array_equal(
        timestep.observation, gymnasium.make("CartPole-v1").reset(seed=7)[0]
    )


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


@pytest.mark.parametrize("num_workers", [0, 2])
def test_any_observation_comes_through(num_workers):
    env = GymnasiumEnv(lambda: Spaces(EVERYTHING), num_workers=num_workers)
    follow(env, lambda: Spaces(EVERYTHING), steps=5)
    env.close()


def test_flat_observation_equals_gymnasium_flatten():
    env = pm.VectorEnv(GymnasiumEnv(lambda: Spaces(EVERYTHING), flatten=True), 2)
    key = jax.random.key(3)
    _, timestep = env.reset(key)
    for seed, row in zip(seeds_of(key, 2), timestep.observation, strict=True):
        sample, _ = Spaces(EVERYTHING).reset(seed=seed)
        np.testing.assert_array_equal(row, spaces.flatten(EVERYTHING, sample).astype(np.float32))
    model = pm.MLPActorCritic.for_env(env.env, key=jax.random.key(0), hidden_dim=8)
    assert model.observation_size == spaces.flatdim(EVERYTHING)


@pytest.mark.parametrize("flatten", [False, True])
def test_a_program_can_encode_what_the_game_shows(flatten):
    env = GymnasiumEnv(lambda: Spaces(EVERYTHING), flatten=flatten)
    _, timestep = env.reset(jax.random.key(3))
    sample, _ = Spaces(EVERYTHING).reset(seed=3)
    jax.tree.map(np.testing.assert_array_equal, env.encode(sample), timestep.observation)
    types = [x.dtype for x in jax.tree.leaves(timestep.observation)]
    assert types == [x.dtype for x in jax.tree.leaves(env.encode(sample))]


def test_choices_are_seen_as_in_gymnasium_flatten():
    """As numbers they would be amounts: a table of 100 places could not be told apart."""
    env = GymnasiumEnv(lambda: Spaces(spaces.Dict({"place": spaces.Discrete(100, start=-3)})))
    _, timestep = env.reset(jax.random.key(3))
    place = timestep.observation["place"]
    assert (place.shape, place.dtype, float(place.sum())) == ((100,), jnp.float32, 1)


def test_actions_may_start_anywhere():
    env = GymnasiumEnv(lambda: Spaces(spaces.Discrete(2), start=-1))
    state, _ = env.reset(jax.random.key(0))
    rewards = []
    for action in range(3):
        state, timestep = env.step(jax.random.key(1), state, action)
        rewards.append(float(timestep.reward))
    assert rewards == [-1, 0, 1]


@pytest.mark.slow
def test_wrappers_of_this_library_work():
    bare = pm.VectorEnv(pm.FlatObservation(pm.TimeLimit(GymnasiumEnv(Climb), 4)), 2)
    inside = pm.VectorEnv(pm.FlatObservation(GymnasiumEnv(Climb, max_episode_steps=4)), 2)
    ours, theirs, ends = bare.reset(jax.random.key(0)), inside.reset(jax.random.key(0)), 0
    for number in range(20):
        actions = ours[1].action_mask.argmax(axis=1).astype(jnp.int32)
        key = jax.random.key(number)
        ours, theirs = bare.step(key, ours[0], actions), inside.step(key, theirs[0], actions)
        jax.tree.map(np.testing.assert_array_equal, ours[1], theirs[1])
        ends += int(ours[1].truncated.sum())
    assert ends >= 8


def test_batches_do_not_disturb_each_other():
    env = GymnasiumEnv(Climb)
    alone = rewards_of(env, 3, [])
    assert rewards_of(env, 3, [2, 3, 5]) == alone


def rewards_of(env, count, others):
    vector = pm.VectorEnv(env, count)
    state, timestep = vector.reset(jax.random.key(1))
    rewards = []
    for number in range(12):
        for size in others:
            if number % 4 == 3:
                other = pm.VectorEnv(env, size)
                other_state, shown = other.reset(jax.random.key(number))
                actions = shown.action_mask.argmax(axis=1).astype(jnp.int32)
                other.step(jax.random.key(0), other_state, actions)
        actions = timestep.action_mask.argmax(axis=1).astype(jnp.int32)
        state, timestep = vector.step(jax.random.key(0), state, actions)
        rewards += timestep.reward.tolist()
    return rewards


def test_state_that_is_gone_begins_new_episodes(capfd):
    env = pm.VectorEnv(GymnasiumEnv(Climb), 2)
    first, timestep = env.reset(jax.random.key(0))
    actions = timestep.action_mask.argmax(axis=1).astype(jnp.int32)
    env.step(jax.random.key(0), first, actions)
    assert "warning" not in capfd.readouterr().err
    state, again = env.step(jax.random.key(1), first, actions)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("warning: Climb: ")
    assert "2 new episodes begin" in line
    assert again.truncated.all()
    assert not again.terminated.any()
    assert again.reward.tolist() == [0, 0]
    # The old episodes end where they stood, and the new ones begin.
    jax.tree.map(np.testing.assert_array_equal, again.final_observation, timestep.observation)
    assert again.observation["top"].argmax(axis=1).tolist() == [0, 0]
    env.step(jax.random.key(2), state, again.action_mask.argmax(axis=1).astype(jnp.int32))
    assert capfd.readouterr().err == ""


def train(env, num_envs=4, updates=2, **options):
    model = pm.MLPActorCritic.for_env(env, hidden_dim=8, key=jax.random.key(0))
    config = pm.PPOConfig(num_envs=num_envs, num_steps=16, num_minibatches=2, update_epochs=1)
    trainer = pm.Trainer(env, config)
    state = trainer.init(model, jax.random.key(1))
    return trainer.train(state, updates * num_envs * 16, **options)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
def test_equal_keys_learn_the_same(num_workers):
    envs = [GymnasiumEnv(Climb, flatten=True, num_workers=number) for number in (0, num_workers)]
    one, other = map(train, envs)
    for env in envs:
        env.close()
    jax.tree.map(np.testing.assert_array_equal, one.model.actor, other.model.actor)


@pytest.mark.slow
def test_batches_that_are_over_are_used_again():
    env = GymnasiumEnv(Climb, flatten=True)
    model = train(env).model
    for number in range(4):
        pm.evaluate(model, env, jax.random.key(number), 2 + number % 2, max_steps=3)
    assert len(env._host._sessions) == 2


@pytest.mark.slow
def test_evaluation_is_repeatable_beside_training():
    env = GymnasiumEnv(Climb, flatten=True)
    model = train(env).model
    results = [pm.evaluate(model, env, jax.random.key(3), 5, max_steps=9) for _ in range(3)]
    assert len({tuple(result.episode_return.tolist()) for result in results}) == 1
    assert all(result.episode_length.max() <= 9 for result in results)


WRONG = {
    "shape": r"Wrong: observation\['left'\] is float64\[2\]; its space says float32\[1\]",
    "kind": r"Wrong: observation\['top'\] is float64\[\]; its space says int32\[\]",
    "four": r"Wrong: step must return 5 values \(observation, .*\); got 4 values, as in the old",
    "none": r"Wrong: step must return 5 values \(.*\); got NoneType$",
    "info": r"Wrong: the info of step must be a dict; got list$",
    "reward": r"Wrong: the reward must be one number; got array\(\[1.\]\)$",
    "no reward": r"Wrong: the reward must be one number; got None$",
    "flags": r"Wrong: terminated and truncated must be one boolean each; got \(array\(",
    "large": r"Wrong: observation\['top'\] holds 8589934599, but it is kept as int32, which holds "
    r"-2147483648 to 2147483647: give it a space of a wider dtype, such as float32$",
    "exit": r"Wrong raised SystemExit: bye at .*python_games.py:\d+ \(step\)$",
    "nothing": r"Wrong: action_masks\(\) allows no action, though the episode has not ended",
    "length": r"Wrong: action_masks\(\) has shape \(4,\); it must be one row of 5 booleans",
    "ragged": r"Wrong: action_masks\(\) is no array; it must be one row of 5 booleans$",
    # NumPy found it, and it is not NumPy's mistake.
    "numpy": r"Wrong raised ValueError: all .* at .*python_games.py:\d+ \(action_masks\)$",
    "floats": r"Wrong: action_masks\(\) must hold booleans, or 0 and 1; got float64",
}


@pytest.mark.parametrize(
    ("what", "num_workers"), [*((what, 0) for what in WRONG), ("shape", 2), ("exit", 2)]
)
def test_what_is_wrong_is_one_line(what, num_workers, capfd):
    env = GymnasiumEnv(lambda: Wrong(what), flatten=True, num_workers=num_workers)
    if what in ("shape", "exit"):  # One function asks the environment; compiling takes seconds.
        with pytest.raises(pm.TrainingError, match="^update 1: " + WRONG[what]):
            train(env)
    model = pm.MLPActorCritic.for_env(env, hidden_dim=8, key=jax.random.key(0))
    with pytest.raises(RunError, match="^" + WRONG[what]) as caught:
        pm.evaluate(model, env, jax.random.key(0), 3)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""
    env.close()


def test_a_mask_that_is_no_method_is_refused():
    with pytest.raises(RunError, match="Wrong: action_masks must be a method, which returns"):
        GymnasiumEnv(lambda: Wrong("attribute"))


MAKERS = {
    "alone": GymnasiumEnv,
    **{
        mode: lambda name, mode=mode: GymnasiumEnv.of_vectors(
            lambda n: gymnasium.make_vec(
                name,
                n,
                vectorization_mode=mode,
                # A process that JAX runs in is not to be forked.
                vector_kwargs={"context": "spawn"} if mode == "async" else None,
            )
        )
        for mode in ("sync", "async", "vector_entry_point")
    },
}


@pytest.mark.parametrize("how", MAKERS)
def test_an_environment_without_masks_is_told_of(how, capfd):
    MAKERS[how]("CartPole-v1").close()
    line = 'warning: CartPole-v1 has no masks, neither action_masks() nor info["action_mask"]: '
    assert f"{line}all its actions are always allowed\n" in capfd.readouterr().err


@pytest.mark.parametrize("how", ["alone", "sync", "async"])
def test_masks_are_found_however_an_environment_is_made(how, capfd):
    env = MAKERS[how]("Climb-v0")
    _, timestep = pm.VectorEnv(env, 2).reset(jax.random.key(0))
    assert not timestep.action_mask.all()
    assert "no masks" not in capfd.readouterr().err
    env.close()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_error_names_its_place(num_workers):
    env = GymnasiumEnv(lambda: Climb(crash_at=5), flatten=True, num_workers=num_workers)
    line = r"Climb raised RuntimeError: the table fell over at .*python_games.py:\d+ \(step\)$"
    with pytest.raises(pm.TrainingError, match="^update 1: " + line):
        train(env)
    env.close()


def test_workers_end_with_the_block():
    with GymnasiumEnv(Climb, num_workers=2) as env:
        env.reset(jax.random.key(0))
        (session,) = env._host._sessions.values()
        processes = [process for process, _ in session.stepper._workers]
        assert [process.poll() for process in processes] == [None]
    assert all(process.poll() is not None for process in processes)


@pytest.mark.slow
def test_a_lost_worker_is_one_line():
    env = GymnasiumEnv(lambda: Wrong("die"), flatten=True, num_workers=2)
    with pytest.raises(
        pm.TrainingError, match=r"^update 1: Wrong: worker 0 of 2 is gone \(exit code 7"
    ):
        train(env)
    env.close()


def test_what_no_worker_can_have_is_one_line():
    socket = __import__("socket").socket()
    env = GymnasiumEnv(lambda: Climb(socket and None), flatten=True, num_workers=1)
    with pytest.raises(RunError, match=r"^Climb: what makes it cannot be sent to a worker \("):
        train(env)
    socket.close()


ON_TWO_DEVICES = """
import gymnasium, jax, ppo_mask as pm
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv
from ppo_mask.devices.sharding import make_mesh
from ppo_mask.errors import RunError
env = GymnasiumEnv(lambda: gymnasium.make("CartPole-v1"))
model = pm.MLPActorCritic.for_env(env, hidden_dim=8, key=jax.random.key(0))
trainer = pm.Trainer(env, pm.PPOConfig(num_envs=4, num_steps=8), mesh=make_mesh(2))
try:
    trainer.train(trainer.init(model, jax.random.key(0)), 64)
except RunError as error:
    print(error)
"""


@pytest.mark.slow
def test_several_devices_are_refused_in_one_line():
    two = {**os.environ, "JAX_NUM_CPU_DEVICES": "2"}
    words = [sys.executable, "-c", ON_TWO_DEVICES]
    printed = subprocess.run(words, env=two, capture_output=True, text=True).stdout
    assert "works on one device only: num_devices must be 1" in printed


def test_a_failing_reset_ends_init():
    env = GymnasiumEnv(lambda: Wrong("reset"), flatten=True)
    with pytest.raises(RunError, match=r"^Wrong raised RuntimeError: no cards at .*\(reset\)$"):
        train(env)


def test_an_error_outside_of_compiled_code_is_raised_at_once():
    env = GymnasiumEnv(lambda: Climb(crash_at=1))
    state, timestep = env.reset(jax.random.key(0))
    with pytest.raises(RunError, match="the table fell over"):
        env.step(jax.random.key(0), state, timestep.action_mask.argmax())
    vector = pm.VectorEnv(GymnasiumEnv(lambda: Wrong("reset")), 2)
    with pytest.raises(RunError, match="no cards"):
        vector.reset(jax.random.key(0))


def test_what_makes_an_environment_gets_its_arguments():
    for make in (Invalid, lambda **settings: Invalid(**settings)):
        assert GymnasiumEnv(make, env_kwargs={"dim": 7, "invalid": 2}).num_actions == 7
        limited = GymnasiumEnv(make, env_kwargs={"dim": 7, "invalid": 2}, max_episode_steps=5)
        assert limited.num_actions == 7


def test_after_an_error_one_can_go_on():
    games = [Climb(), *(Climb(crash_at=3) for _ in range(4)), *(Climb() for _ in range(9))]
    env = GymnasiumEnv(lambda: games.pop(0), flatten=True)
    with pytest.raises(pm.TrainingError, match="fell over"):
        train(env)
    train(env)


ONE_GAME = Climb()


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: GymnasiumEnv(Climb, infos="cards"), r"infos are several names; .* \['cards'\]"),
        (lambda: GymnasiumEnv("Nowhere-v0"), "there is no 'Nowhere-v0' for gymnasium.make: "),
        (lambda: GymnasiumEnv("nowhere:Any-v0"), "there is no 'nowhere:Any-v0' for gymnasium.make"),
        (lambda: GymnasiumEnv(3), "an environment is an id, or a function that makes one; got 3"),
        (lambda: GymnasiumEnv(Climb()), "one Climb is not enough"),
        (
            lambda: GymnasiumEnv("Pendulum-v1"),
            r"Pendulum-v1 has actions of Box\(.*must be Discrete",
        ),
        (lambda: GymnasiumEnv(Climb, num_workers=-1), "num_workers must be 0 or more, got -1"),
        (
            lambda: GymnasiumEnv(lambda: Spaces(spaces.Dict({"say": spaces.Text(3)}))),
            r"Spaces: observation\['say'\] is of Text",
        ),
        (lambda: GymnasiumEnv(lambda: Wrong("make")), "the environment raised OSError: no such"),
    ],
)
def test_what_cannot_be_used_is_one_line(make, line):
    with pytest.raises((ValueError, RunError), match=line) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("dtype", "number"), [("int64", 2**33 + 7), ("int8", 200), ("uint8", -1)])
def test_whole_numbers_do_not_wrap_around(dtype, number):
    class Large(Spaces):
        def reset(self, **options):
            super().reset(**options)
            return np.array([1, number]), {}

    def make():
        return Large(spaces.Box(0, 100, (2,), dtype))

    with pytest.raises(RunError, match=f"observation holds {number}, but it is kept as u?int"):
        GymnasiumEnv(make).reset(jax.random.key(0))


def test_a_reset_without_info_is_one_line():
    class Old(Climb):
        def reset(self, **options):
            return super().reset(**options)[0]

    line = r"^Old: reset must return 2 values \(observation, info\); got dict$"
    env = GymnasiumEnv(Old)
    with pytest.raises(RunError, match=line):
        env.reset(jax.random.key(0))
    with pytest.raises(RunError, match=line):
        GymnasiumEnv(lambda: InInfo(Old()))


def test_an_info_that_is_no_number_is_one_line():
    env = GymnasiumEnv(Climb, infos=["text"])
    state, timestep = env.reset(jax.random.key(0))
    with pytest.raises(RunError, match=r"^Climb: info\['text'\] must be one number; got 'ignored'"):
        env.step(jax.random.key(0), state, timestep.action_mask.argmax())


def test_one_environment_twice_is_refused():
    env = GymnasiumEnv(lambda: ONE_GAME, flatten=True)
    with pytest.raises(RunError, match=r"^Climb: the function that makes it returned the same"):
        train(env)


class OwnWrapper(pm.AbstractEnv):
    """A wrapper of somebody who knows nothing of hosts."""

    env: pm.AbstractEnv
    num_actions: int = 5

    def reset(self, key):
        return self.env.reset(key)

    def step(self, key, state, action):
        return self.env.step(key, state, action)


def test_where_it_cannot_work_is_one_line():
    env = GymnasiumEnv(Climb, flatten=True)
    with pytest.raises(ValueError, match="OwnWrapper cannot hold an environment that lives in"):
        train(OwnWrapper(env))
    with pytest.raises(ValueError, match="MultiTask cannot hold an environment that lives in"):
        pm.MultiTask([env, env])
    with pytest.raises(RunError, match="trains one seed in a program: num_seeds must be 1"):
        pm.training.init_seeds(
            pm.Trainer(env), lambda key: None, jax.random.split(jax.random.key(0), 2)
        )
    with pytest.raises(pm.envs.ProtocolError, match="check_env is for environments in JAX"):
        pm.check_env(env)


def test_nothing_is_compiled_twice(compiled):
    train(GymnasiumEnv(Climb, flatten=True), updates=5, log_interval=1)
    assert compiled().count("jit(run_chunk)") == 1
