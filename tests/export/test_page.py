"""The page on which a person plays 2048 beside an exported policy."""

import functools
import json
import re

import jax
import numpy as np
import pytest

from chromium import PHONE
from source import ROOT, load

KEYS = ("ArrowUp", "ArrowRight", "ArrowDown", "ArrowLeft")
PAGE = ROOT / "docs" / "play" / "2048.html"


@pytest.fixture(scope="module")
def arrays():
    text = PAGE.with_suffix(".js").read_text()
    assert len(text) < 200_000
    return json.loads(text.removeprefix("const POLICY = ").rstrip(";\n"))


@pytest.fixture(scope="module")
def file():
    return PAGE


rules = functools.cache(lambda: load("examples/game_2048.py"))


def moved(board):
    """The board after each move and its points, by the rules of the example."""
    slid = rules().slid
    boards, points = [], []
    for way in range(4):  # Turned so that the move is one to the left, and back.
        turns = (1, 2, 3, 0)[way]
        lines = [slid(line) for line in np.rot90(board, turns).tolist()]
        boards.append(np.rot90([line for line, _ in lines], -turns))
        points.append(sum(score for _, score in lines))
    return boards, points


def choose(arrays, board, boards):
    """What the policy does, if its arrays are an MLP's."""
    x = np.eye(12)[np.minimum(board, 11)].reshape(-1)
    for n in range(3):
        weight, bias = (np.array(arrays[f"network.actor.{n}.{x}"]) for x in ("weight", "bias"))
        x = weight @ (np.tanh(x) if n else x) + bias
    changes = [(board != after).any() for after in boards]
    return int(np.where(changes, x, -np.inf).argmax())


def test_the_policy_plays_better_than_chance(arrays):
    random, total = np.random.default_rng(0), 0
    for _ in range(5):
        board = np.zeros((4, 4), int)
        boards, points = [board], [0]
        while True:
            empty = np.argwhere(board == 0)
            board[tuple(random.choice(empty))] = 1 + (random.random() < 0.1)
            boards, points = moved(board)
            if all((board == after).all() for after in boards):
                break
            way = choose(arrays, board, boards)
            board, total = boards[way].copy(), total + points[way]
    assert total / 5 > 2500  # Of random moves, it is 1,100.


def test_the_example_has_these_rules():
    game, random = rules(), np.random.default_rng(0)
    for board in random.integers(0, 4, (20, 4, 4)):
        boards, points = game.moved(jax.numpy.asarray(board.reshape(16)))
        assert boards.reshape(4, 4, 4).tolist() == [x.tolist() for x in moved(board)[0]]
        assert points.tolist() == moved(board)[1]
    assert game.slid([2, 2, 2, 1]) == ([3, 2, 1, 0], 8)
    state, timestep = game.Game2048().reset(jax.random.key(0))
    assert (state > 0).sum() == 2
    first = int(timestep.action_mask.argmax())
    after, seen = game.Game2048().step(jax.random.key(1), state, jax.numpy.int32(first))
    assert (after != game.moved(state)[0][first]).sum() == 1
    assert seen.observation.sum() == 16


def seen(shown, player):
    """A player's tiles and score, as the page shows them."""
    tiles = shown.eval_on_selector_all(f"#{player} .board i", "all => all.map(i => i.textContent)")
    board = [int(np.log2(int(tile))) if tile else 0 for tile in tiles]
    score = shown.inner_text(f"#{player} .score").replace(",", "")
    return np.array(board).reshape(4, 4), int(score)


@pytest.mark.browser
def test_the_policy_moves_with_the_persons_keys(opened, arrays):
    shown = opened()
    assert shown.inner_text("#status") == "Press an arrow key to begin."
    for _ in range(30):
        before = {player: seen(shown, player) for player in ("you", "policy")}
        after = {player: moved(board) for player, (board, _) in before.items()}
        changes = [(before["you"][0] != board).any() for board in after["you"][0]]
        assert [shown.is_enabled(f"#way{way}") for way in range(4)] == changes
        ways = {"you": changes.index(True)}
        ways["policy"] = choose(arrays, before["policy"][0], after["policy"][0])
        named = shown.inner_text("#chances .next span >> nth=0")
        assert named == ("up", "right", "down", "left")[ways["policy"]]
        shown.keyboard.press(KEYS[changes.index(False)] if False in changes else "a")
        assert (seen(shown, "you")[0] == before["you"][0]).all()  # Nothing moves.
        shown.keyboard.press(KEYS[ways["you"]])
        for player, way in ways.items():
            (board, score), (boards, points) = seen(shown, player), after[player]
            assert score == before[player][1] + points[way]
            new = board != boards[way]
            assert new.sum() == 1
            assert (boards[way][new] == 0).all()


@pytest.mark.browser
def test_a_game_ends_and_another_begins(opened):
    shown = opened(PHONE)
    assert shown.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    shown.clock.install()
    shown.evaluate("while (!isOver(you)) act(Math.floor(4 * Math.random()))")
    shown.clock.run_for(200_000)  # The policy plays on alone.
    said = (
        r"(You win|The network wins|A draw): you [\d,]+, the network [\d,]+\. Enter plays again\."
    )
    assert re.fullmatch(said, shown.inner_text("#status"))
    shown.keyboard.press("Enter")
    (mine, my_score), (its, its_score) = seen(shown, "you"), seen(shown, "policy")
    assert (mine == its).all()
    assert (my_score, its_score) == (0, 0)
    shown.keyboard.press("p")
    shown.clock.run_for(1000)
    assert seen(shown, "you")[1] == 0
    assert shown.evaluate("policy.moves") > 20
