"""The fast game against the plain rules: given the same draws, every field after every step."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recordings
from engine_chance import EngineChance
from games import BATCH, batch, position, random_positions, run, step
from hackmatrix import HackMatrix, HeadStart, positions
from hackmatrix.rules import plain
from hackmatrix.rules.entities import ENEMY, TRANSMISSION
from hackmatrix.rules.programs import Program
from hackmatrix.rules.rewards import COMPONENTS
from ppo_mask.jax_tools import for_platform
from recorded import states, views

ENDS = ("won", "died", "stage_completed", "invalid_action")


class Match:
    """Games played by both, from the same positions; where one ends, a new one begins."""

    def __init__(self, starts, seed):
        self.states, self.rng = batch(starts), np.random.default_rng(seed)
        self.positions = positions.dump_all(self.states)
        self.games = [plain.load(each) for each in self.positions]
        self.happened = Counter()

    def play(self, actions=None):
        """A step of all games, with actions given or drawn."""
        actions = list(map(self._drawn, self.games)) if actions is None else actions
        keys = jax.random.split(jax.random.key(self.rng.integers(1 << 31)), BATCH)
        slots, before = slots_of(self.states), self.positions
        self.states, *out = step(keys, self.states, np.array(actions, np.int32))
        timestep, observations, words = jax.device_get(out)
        self.positions, wanted = positions.dump_all(self.states), []
        for row, (game, action) in enumerate(zip(self.games, actions, strict=True)):
            context = f"action {action} in {before[row]}"
            of_step, of_reset = words[row].tolist()
            result = plain.step(game, action, EngineChance(of_step, slots[row], game))
            ends = result.won, result.died, result.completed, result.invalid_action
            # Who is walled in with nothing to run may try anything.
            offered = (not result.over and plain.legal(game)) or range(28)
            mask = [number in offered for number in range(28)]
            wanted.append([*result.reward.values(), *ends, result.over, False, *mask])
            self.happened.update(
                [action, *(name for name, on in zip(ENDS, ends, strict=True) if on)]
            )
            if self._looks():
                seen = timestep.observation[row]
                np.testing.assert_allclose(seen, plain.observe(game), 1e-6, err_msg=context)
            if result.over:
                game = self.games[row] = plain.new_game(EngineChance(of_reset))
                if self._looks():
                    np.testing.assert_allclose(observations[row], plain.observe(game), 1e-6)
            assert self.positions[row] == plain.dump(game), context
        found = np.concatenate(
            [
                *(timestep.info[f"reward/{name}"][:, None] for name in COMPONENTS),
                *(timestep.info[name][:, None] for name in ENDS),
                *(timestep.terminated[:, None], timestep.truncated[:, None]),
                timestep.action_mask,
            ],
            axis=1,
        )
        wrong = np.argwhere(~np.isclose(found, wanted, 1e-5, 1e-5))
        assert not len(wrong), (wrong, actions[wrong[0, 0]], before[wrong[0, 0]])
        components = found[:, : len(COMPONENTS)]
        np.testing.assert_allclose(timestep.reward, components.sum(1), 1e-5, 1e-5)

    def _looks(self):
        """It takes long to look at all."""
        return self.rng.random() < 0.1

    def _drawn(self, game):
        """Any valid action; half of the time a program, and now and then one that is not valid."""
        legal = sorted(plain.legal(game))
        if not legal or self.rng.random() < 0.01:
            return int(self.rng.choice([*range(-1, 29), 10**6, -(10**6)]))
        programs = [action for action in legal if action > 3]
        if programs and self.rng.random() < 0.6:
            legal = programs
        return int(self.rng.choice(legal))


def slots_of(states):
    """The slots of each game's enemies, then of its transmissions, in list order."""
    table = jax.device_get(states.game.entities)
    order = np.argsort(table.order, axis=1, kind="stable")
    return [
        [slot for kind in (ENEMY, TRANSMISSION) for slot in slots if kinds[slot] == kind]
        for slots, kinds in zip(order.tolist(), table.kind, strict=True)
    ]


def test_new_games():
    match = Match([position()], 0)
    match.play([-1] * BATCH)  # An invalid action ends a game.
    for _ in range(2):
        match.play()


def test_undo_goes_back_turn_by_turn():
    match = Match([position()], 0)
    for program in [Program.WAIT] * 3 + [Program.UNDO] * 3:
        match.play([run(program)] * BATCH)


def test_positions_that_play_rarely_brings():
    happened = Counter()
    for seed in range(4):
        match = Match(list(random_positions(np.random.default_rng(seed), BATCH)), seed)
        for _ in range(5):
            match.play()
        happened += match.happened
    assert min(happened[action] for action in range(28)) >= 10, happened
    assert min(happened[name] for name in ENDS) >= 3, happened


def test_recorded_cases():
    """A quarter: both are compared with all of the recordings in ``test_recordings.py``."""
    cases = [c for c in recordings.read("cases.jsonl.gz") if len(c["actions"]) == 1][::4]
    for first in range(0, len(cases), BATCH):
        some = cases[first : first + BATCH]
        actions = [case["actions"][0] for case in some]
        Match([case["state"] for case in some], first).play(np.resize(actions, BATCH).tolist())


@pytest.mark.nightly
@pytest.mark.slow
def test_long_games():
    match = Match(list(random_positions(np.random.default_rng(9), BATCH)), 9)
    for _ in range(20):
        match.play()


@pytest.mark.slow
def test_the_same_games_are_played_with_three_loops():
    """What accelerators run, on a CPU: recorded games, and new ones where they end."""
    env = HackMatrix(starting_weights=jnp.ones(8), head_start=HeadStart(programs=0.6, credits=30))
    random, lowered = np.random.default_rng(0), []
    current, mask = states(), views().mask.copy()
    mask[:20] ^= True  # What is not allowed ends a game.
    keys = jax.random.split(jax.random.key(0), (2, len(mask)))
    for platform in ("cpu", "tpu"):
        with for_platform(platform):
            step = jax.jit(jax.vmap(lambda *given: env.step_and_reset(*given)))
            lowered.append(step.lower(*keys, current, np.zeros(len(mask), np.int32)))
    cpu, tpu = (each.compile() for each in lowered)
    happened = Counter()
    for number in range(10):
        actions = (random.random(mask.shape) * mask).argmax(axis=1).astype(np.int32)
        keys = jax.random.split(jax.random.key(number), keys.shape)
        outcome, other = (each(*keys, current, actions) for each in (cpu, tpu))
        jax.tree.map(np.testing.assert_array_equal, outcome, other)
        timestep, following = jax.device_get(outcome)
        current, mask = following.state, following.action_mask
        happened.update(actions.tolist())
        happened.update({name: int(timestep.info[name].sum()) for name in ENDS})
    assert min(happened[name] for name in (*range(28), *ENDS)) >= 3, happened
    # The fourth is of JAX's random numbers.
    cpu, tpu = (each.as_text().count("stablehlo.while") for each in lowered)
    assert tpu == 4 < cpu
