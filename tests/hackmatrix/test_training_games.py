"""What differs in training games: a head start, and a shaped reward. The original's stay as is."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hackmatrix import HackMatrix, HeadStart, Shaping
from hackmatrix.curriculum import AdaptiveStages, RewardWeights, TrainingGames
from hackmatrix.rules.rewards import COMPONENTS
from hackmatrix.rules.starts import MOST_GIVEN
from hackmatrix.task import DEFAULTS, TASK, GameSettings
from ppo_mask.checkpoints import RunFolder, read_arrays
from ppo_mask.envs import VectorEnv, check_env
from ppo_mask.errors import RunError
from ppo_mask.networks import MLPActorCritic
from ppo_mask.runner import main, replace
from same_run import assert_same_run, newest

GIVEN = HeadStart(share=0.5, programs=0.4, credits=7, energy=5, data_siphons=3, attack=2, score=4)
STAGE_5 = jnp.zeros(8).at[4].set(1.0)


def first_games(env: HackMatrix, count: int = 512):
    return jax.device_get(jax.vmap(env.reset)(jax.random.split(jax.random.key(0), count))[0].game)


def test_a_head_start_is_given_within_its_ranges():
    plain = first_games(HackMatrix(starting_weights=STAGE_5))
    games = first_games(HackMatrix(starting_weights=STAGE_5, head_start=GIVEN))
    for name, most in [
        ("credits", 7),
        ("energy", 5),
        ("data_siphons", 3),
        ("attack", 2),
        ("score", 4 * 4),
    ]:
        more = getattr(games.player, name) - getattr(plain.player, name)
        assert set(more) == set(range(most + 1)), name
    owned = np.bitwise_count(games.owned)
    assert 0.4 < (owned == 0).mean() < 0.7  # half have no head start, few are given nothing
    assert 0.15 < owned[owned > 0].mean() / 23 < 0.25
    assert (games.owned < 1 << 23).all()
    # All else is drawn as ever.
    np.testing.assert_array_equal(games.player.cell, plain.player.cell)
    np.testing.assert_array_equal(games.board.points, plain.board.points)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_of_none_or_all_is_exact(share):
    games = first_games(HackMatrix(head_start=HeadStart(share=share, programs=1.0)))
    # A chance that is drawn as small gives nothing to one game in 24.
    assert ((games.owned != 0) == (share == 1)).mean() > 0.9


def play(env: HackMatrix, steps: int = 200, count: int = 64):
    vector = VectorEnv(env, count)

    def step(carry, key):
        state, timestep = carry
        action_key, step_key = jax.random.split(key)
        action = jax.random.categorical(action_key, jnp.log(timestep.action_mask))
        state, timestep = vector.step(step_key, state, action)
        return (state, timestep), (
            timestep.reward,
            timestep.info,
            (state.env_state.game.owned, timestep.ended),
        )

    start = vector.reset(jax.random.key(0))
    return jax.device_get(jax.lax.scan(step, start, jax.random.split(jax.random.key(1), steps))[1])


@pytest.fixture(scope="module")
def original():
    return play(HackMatrix(head_start=GIVEN, max_steps=50))


@pytest.mark.slow
def test_weights_change_the_reward_and_not_the_components(original):
    weights = jnp.arange(15) / 4
    reward, info, _ = play(HackMatrix(head_start=GIVEN, max_steps=50, shaping=Shaping(weights)))
    for name in COMPONENTS:
        np.testing.assert_array_equal(info[f"reward/{name}"], original[1][f"reward/{name}"])
    wanted = sum(w * info[f"reward/{name}"] for w, name in zip(weights, COMPONENTS, strict=True))
    np.testing.assert_allclose(reward, wanted, rtol=1e-5, atol=1e-5)
    assert np.abs(reward - original[0]).max() > 0.1


@pytest.mark.slow
def test_a_distance_that_is_a_potential_takes_back_what_it_gave(original):
    env = HackMatrix(head_start=GIVEN, max_steps=50, shaping=Shaping(distance_potential=True))
    reward, info, _ = play(env)
    change = reward - original[0]
    assert change.max() <= 1e-5
    away = change < -1e-3
    assert away.any()
    # Who went away was given nothing for it in the original.
    assert not info["reward/distance_shaping"][away].any()
    np.testing.assert_allclose(change[away] / 0.05, np.round(change[away] / 0.05), atol=1e-3)


@pytest.mark.slow
def test_a_bonus_is_paid_for_each_program_earned(original):
    env = HackMatrix(head_start=GIVEN, max_steps=50, shaping=Shaping(program_bonus=3.0))
    reward, _, (owned, ended) = play(env)
    change = reward - original[0]
    earned = np.diff(np.bitwise_count(owned).astype(int), axis=0)
    paid = np.round(change[1:], 3)
    assert set(np.unique(np.round(paid / 3))) >= {0.0, 1.0}
    within_a_game = ~ended[1:]
    np.testing.assert_allclose(paid[within_a_game], 3 * earned[within_a_game], atol=1e-2)


@pytest.mark.slow
def test_an_invalid_action_has_no_reward_however_it_is_shaped():
    env = HackMatrix(shaping=Shaping(jnp.ones(15), 1.0, True))
    state, _ = env.reset(jax.random.key(0))
    _, timestep = env.step(jax.random.key(1), state, 27)
    assert timestep.terminated
    assert timestep.reward == 0


@pytest.mark.nightly
@pytest.mark.slow
def test_the_laws_of_the_protocol_hold_in_training_games():
    check_env(HackMatrix(head_start=GIVEN, shaping=Shaping(jnp.ones(15), 1.0, True)))


def test_settings_change_training_games_and_no_others():
    settings = {
        "head_start": "0.5",
        "given_energy": "4",
        "reward_weights": "kills=0,step_penalty=2",
        "program_bonus": "1.5",
    }
    game = replace(DEFAULTS, settings).environment
    assert TASK.make_env(game) == HackMatrix(compact=True)
    curriculum: Any = TASK.curriculum(game)
    env = curriculum(TASK.make_env(game), jnp.float32(0))
    assert isinstance(env, HackMatrix)
    assert env.head_start is not None
    assert env.shaping is not None
    assert (env.head_start.share, env.head_start.energy) == (0.5, 4)
    assert env.shaping.weights is not None
    assert env.shaping.weights.tolist() == [2.0, 1, 1, 0, *[1] * 11]
    assert env.shaping.program_bonus == 1.5
    assert TASK.curriculum(GameSettings()) is None


@pytest.mark.slow
def test_what_no_game_could_hold_is_not_given():
    amounts = dict.fromkeys(("credits", "energy", "data_siphons", "attack", "score"), 3e9)
    env = HackMatrix(starting_weights=STAGE_5, head_start=HeadStart(**amounts))
    player = first_games(env).player
    for name in amounts:
        drawn, most = getattr(player, name), MOST_GIVEN * (4 if name == "score" else 1)
        assert drawn.min() >= 0
        assert most / 2 < drawn.max() <= most + 12  # With what the original gives.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kils=1", "no reward component kils; did you mean kills?; there are step_penalty"),
        ("kills=much", "kills must be a finite number, got 'much'"),
        ("kills=1,", "no reward component"),
        ("weights.yaml", "cannot read weights.yaml"),
    ],
)
def test_reward_weights_that_cannot_be_are_refused(text, message):
    with pytest.raises(RunError) as error:
        replace(DEFAULTS, {"reward_weights": text})
    assert message in str(error.value)


def test_reward_weights_come_back_from_a_runs_file(tmp_path):
    weights = RewardWeights({"kills": 0.5})
    assert RewardWeights.from_plain(weights.to_plain(), "x") == weights
    (tmp_path / "weights.yaml").write_text("kills: 0.5\n", encoding="utf-8")
    assert RewardWeights.from_text(str(tmp_path / "weights.yaml")) == weights


def test_adaptive_stages_prefer_what_is_won_half_the_time():
    curriculum = AdaptiveStages(TrainingGames(), jnp.float32(0.5))
    memory = curriculum.init(MLPActorCritic(1, 2, 4, 1, key=jax.random.key(0)))
    for _ in range(50):
        stage = jnp.array([[2, 2, 4, 3, 8, 8]])  # after the step
        info = {
            "stage": stage,
            "stage_completed": jnp.array([[True, True, True, False, True, False]]),
            "won": jnp.array([[False, False, False, False, True, False]]),
            "died": jnp.array([[False, False, False, True, False, True]]),
        }
        memory = curriculum.update(memory, info, info["died"] | info["won"])
    # Stage 1 is always completed, stages 3 and 8 half the time; of the others nothing is known.
    np.testing.assert_allclose(memory[:, 0] / memory[0, 2], [2, 0], rtol=1e-5)
    env = curriculum(HackMatrix(), jnp.float32(0), memory)
    assert isinstance(env, HackMatrix)
    weights = np.asarray(env.starting_weights)
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-5)
    assert 0.5 < weights[0] < 0.52
    assert weights[2] == weights[7] == weights[1:].max()


@pytest.mark.slow
def test_a_run_of_an_adaptive_curriculum_resumes_exactly(tmp_path):
    flags = ["--num-envs=16", "--num-steps=16", "--hidden-dim=8", "--adaptive-starts=0.5"]
    flags += ["--total-timesteps=2048", f"--checkpoint-dir={tmp_path}", "--save-interval=4"]
    assert main(TASK, DEFAULTS, [*flags, "--run-name=whole"]) == 0
    assert main(TASK, DEFAULTS, [*flags, "--run-name=half", "--total-timesteps=1024"]) == 0
    assert main(TASK, DEFAULTS, [f"--resume={tmp_path}/half", "--total-timesteps=2048"]) == 0
    whole, half = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "half")
    assert any("memory" in name for name in read_arrays(newest(whole)))
    assert_same_run(whole, half)
