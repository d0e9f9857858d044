"""The plain rules against recordings of the original; ``test_engine.py`` compares the fast game.

For every closed case, over 64 tries: each outcome is a recorded one, and each outcome recorded in
at least 15% of the trials comes up.
"""

from collections import Counter, defaultdict

import numpy as np
import pytest
from scipy import stats

import recordings
from games import LEFT, RIGHT, position
from hackmatrix.actions import ACTION_NAMES
from hackmatrix.rules import plain

TRIES = 64
SHARE = 0.15
SIGNIFICANCE = 1e-4


def play(case, seed):
    """The outcome of a case by the plain rules."""
    game, chance = plain.load(case["state"]), plain.Dice(seed)
    for action in case["actions"]:
        known = list(game.transmissions)
        result = plain.step(game, action, chance)
    return recordings.outcome(game, known, result)


def test_every_recorded_case():
    for case in recordings.read("cases.jsonl.gz"):
        name = f"{case['kind']} {ACTION_NAMES[case['actions'][-1]]}"
        recorded = list(map(recordings.recorded_outcome, case["outcomes"]))
        counts = np.array([outcome["count"] for outcome in case["outcomes"]])
        missing = set(np.flatnonzero(counts >= SHARE * counts.sum()).tolist())
        for seed in range(TRIES):
            if seed == 0 or missing:
                outcome = play(case, seed)
                found = {i for i, known in enumerate(recorded) if outcome.agrees(known)}
                assert found or not case["closed"], f"{name}: {outcome}\nis none of {recorded}"
                missing -= found
        assert not missing, f"{name}: {missing} of {recorded} never came up"


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
