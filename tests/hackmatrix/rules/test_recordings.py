"""The plain rules, and once the fast game, against recordings of the original.

For every closed case, over 64 tries: each outcome is a recorded one, and each outcome recorded in
at least 15% of the trials comes up.
"""

from collections import Counter, defaultdict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import recordings
from games import BATCH, ENV, LEFT, RIGHT, batch, position
from hackmatrix import positions
from hackmatrix.rules import plain
from hackmatrix.rules.entities import TRANSMISSION
from hackmatrix.rules.programs import CARDS, Program
from ppo_mask.jax_tools import for_platform
from recordings import Outcome

TRIES = 64
SHARE = 0.15
SIGNIFICANCE = 1e-4
ACTIONS = ("up", "down", "left", "right", "siphon", *(card.name for card in CARDS))
FLAGS = ("invalid_action", "stage_completed", "won", "died")


class Case:
    """A recorded case, and which of its outcomes have not been seen yet."""

    def __init__(self, case):
        self.closed, self.name = case["closed"], f"{case['kind']} {ACTIONS[case['actions'][-1]]}"
        self.recorded = list(map(recordings.recorded_outcome, case["outcomes"]))
        counts = np.array([outcome["count"] for outcome in case["outcomes"]])
        self.missing = set(np.flatnonzero(counts >= SHARE * counts.sum()).tolist())

    def see(self, outcome: Outcome) -> None:
        found = {i for i, known in enumerate(self.recorded) if outcome.agrees(known)}
        assert found or not self.closed, f"{self.name}: {outcome}\nis none of {self.recorded}"
        self.missing -= found

    def check(self) -> None:
        assert not self.missing, f"{self.name}: {self.missing} of {self.recorded} never came up"


def plain_outcome(case, seed):
    game, chance = plain.load(case["state"]), plain.Dice(seed)
    known, result = [], plain.Result()
    for action in case["actions"]:
        known = list(game.transmissions)
        result = plain.step(game, action, chance)
    born = [each not in known for each in game.transmissions]
    flags = dict(
        zip(FLAGS, (result.invalid_action, result.completed, result.won, result.died), strict=True)
    )
    return recordings.outcome(plain.dump(game), born, flags, plain.legal(game), result.reward)


def test_every_recorded_case():
    for recorded in recordings.read("cases.jsonl.gz"):
        case = Case(recorded)
        for seed in range(TRIES):
            if seed == 0 or case.missing:
                case.see(plain_outcome(recorded, seed))
        case.check()


@pytest.mark.parametrize(
    "platform",
    [
        pytest.param("cpu", marks=pytest.mark.optimized),
        pytest.param("gpu", marks=[pytest.mark.slow, pytest.mark.nightly]),
    ],
)
def test_the_fast_game_in_every_recorded_case(platform):
    """What accelerators run is run on a CPU."""
    given = recordings.read("cases.jsonl.gz")
    cases = list(map(Case, given))
    for seed in range(TRIES):
        left = [i for i, case in enumerate(cases) if seed < 4 or case.missing]
        for first in range(0, len(left), BATCH):
            some = left[first : first + BATCH]
            with for_platform(platform):
                outcomes = list(_fast_outcomes([given[i] for i in some], seed))
            for i, outcome in zip(some, outcomes, strict=True):
                cases[i].see(outcome)
    for case in cases:
        case.check()


@jax.jit
@jax.vmap
def _step_where(key, state, action, active):
    after, timestep = ENV.step(key, state, action)
    return jax.tree.map(lambda new, old: jnp.where(active, new, old), after, state), timestep.info


def _fast_outcomes(cases, seed):
    """An outcome of each case, played by the fast game."""
    actions = [cases[row % len(cases)]["actions"] for row in range(BATCH)]
    states, longest = batch([case["state"] for case in cases]), max(map(len, actions))
    before, info = states, {}
    for turn in range(longest):
        # Short sequences wait at the start, so that all end with the same step.
        late = [turn - longest + len(each) for each in actions]
        now = np.array([each[max(i, 0)] for each, i in zip(actions, late, strict=True)], np.int32)
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), turn), BATCH)
        before = states
        states, info = _step_where(keys, states, now, np.array(late) >= 0)
    births, games, valid = jax.device_get((before.game.births, states.game, states.valid))
    info = jax.device_get(info)
    # A new stage numbers those that stay afresh; UNDO brings all of them back as new ones.
    known = np.where(info["stage_completed"] & ~info["won"], games.births - games.stage, births)
    undone = now == 5 + Program.UNDO
    known = np.where(undone & ~info["invalid_action"], 0, known)
    table = games.entities
    for row, after in enumerate(positions.dump_all(states)[: len(cases)]):
        transmissions = table.order[row][table.kind[row] == TRANSMISSION]
        yield recordings.outcome(
            after,
            sorted(transmissions >= known[row]),
            {name: info[name][row] for name in FLAGS},
            np.flatnonzero(valid[row]).tolist(),
            {name.removeprefix("reward/"): value[row] for name, value in info.items()},
        )


def test_every_recorded_observation():
    for recorded in recordings.read("observations.jsonl.gz"):
        game = plain.load(recorded["state"])
        wanted = recordings.recorded_observation(recorded)
        np.testing.assert_allclose(plain.observe(game), wanted, atol=1e-4)
        assert sorted(plain.legal(game)) == recorded["mask"]


def same_distribution(one, other):
    """Whether two rows of counts may come from one distribution, by a chi-squared test."""
    one, other = np.asarray(one), np.asarray(other)
    seen = (one + other) > 0
    return seen.sum() < 2 or stats.chi2_contingency([one[seen], other[seen]])[1] > SIGNIFICANCE


def same_counts(one, other):
    values = sorted(one.keys() | other.keys())
    return same_distribution(*([each.get(value, 0) for value in values] for each in (one, other)))


def test_every_recorded_spawn():
    """33 positions; in eight, few cells are empty and out of the line of fire, or none at all."""
    all_types = Counter()
    for recorded in recordings.read("spawns.jsonl.gz"):
        cells, types = Counter(), Counter()
        for seed in range(150):
            game, chance = plain.load(recorded["state"]), plain.Dice(seed)
            known = list(game.transmissions)
            plain.step(game, recorded["action"], chance)
            new = [each for each in game.transmissions if each not in known]
            assert len(new) <= 1
            cells.update(["{},{}".format(*each.cell) for each in new] or ["none"])
            types.update(str(each.type) for each in new)
        assert cells.keys() == recorded["cells"].keys()
        assert same_counts(cells, recorded["cells"])
        assert same_counts(types, recorded["types"])
        all_types += types
    assert stats.chisquare(list(all_types.values())).pvalue > SIGNIFICANCE


@pytest.fixture(scope="module")
def layouts():
    """New games and, by walking onto the exit of stage 7, games in stage 8."""
    new = [plain.new_game(plain.Dice(seed)) for seed in range(1200)]
    last = []
    for seed in range(800):
        row, col = plain.CORNERS[seed % 4]
        game = plain.load(position((row, abs(col - 1)), stage=7, exit=[row, col]))
        plain.step(game, RIGHT if col else LEFT, plain.Dice(seed))
        last.append(game)
    return {"new_game_stage_1": new, "stage_8_empty_board": last}


def counts_of(game):
    """What of a new stage is counted in the recordings."""
    row_col = "{},{}".format
    player, contents = game.player, game.cells.values()
    blocks = [content for content in contents if content.is_block]
    yield "blocks", len(blocks)
    yield "bonus", f"{player.credits},{player.energy},{player.data_siphons}"
    yield "player", row_col(*player.cell)
    yield "exit", f"{row_col(*player.cell)}->{row_col(*game.exit)}"
    yield "n_trans", len(game.transmissions)
    for block in blocks:
        yield "kinds", block.kind
        if block.points:
            yield "points", block.points
        else:
            yield "program", f"{block.program}:{block.spawn_count}"
    for content in contents:
        for letter, amount in (("c", content.credits), ("e", content.energy)):
            if amount:
                yield "amount", f"{letter}{amount}"
                yield "res_on", content.kind
    for each in game.transmissions:
        yield "trans_type", each.type


@pytest.mark.parametrize("where", ["new_game_stage_1", "stage_8_empty_board"])
def test_layouts(layouts, where):
    recorded, games = recordings.layouts()[where], layouts[where]
    counts = defaultdict(Counter)
    for name, value in (count for game in games for count in counts_of(game)):
        counts[name][str(value)] += 1
    if where == "stage_8_empty_board":
        del counts["bonus"]  # Each of ours is left as stage 7 was.
    for name, ours in counts.items():
        assert ours.keys() == recorded[name].keys(), name
        assert same_counts(ours, recorded[name]), name

    # All cells together, and each on its own: one odd cell hardly shows among 32.
    theirs, number = np.array(recorded["block_cell"]), recorded["n"]
    ours = np.sum([[c.is_block for c in game.cells.values()] for game in games], axis=0)
    assert same_distribution(theirs, ours)
    for cell in np.flatnonzero(theirs):
        table = [[theirs[cell], number - theirs[cell]], [ours[cell], len(games) - ours[cell]]]
        assert stats.chi2_contingency(table, correction=False).pvalue > SIGNIFICANCE, cell
    for game in games:
        programs = [content.program for content in game.cells.values() if content.program >= 0]
        assert len(programs) == len(set(programs))
        pickups = {cell for cell, content in game.cells.items() if content.kind == plain.PICKUP}
        assert pickups == {*plain.CORNERS} - {game.exit, game.player.cell}
