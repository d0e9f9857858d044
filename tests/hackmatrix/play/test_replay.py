"""Games as they were played: what is in their frames, and in the pages and films of them."""

import dataclasses
import html.parser
import io
import json
import re

import jax
import numpy as np
import pytest
from PIL import Image

from hackmatrix import HackMatrix
from hackmatrix.cli.watch import film
from hackmatrix.networks import PlayerCenteredMLP
from hackmatrix.play.agents import Agent, named_agent
from hackmatrix.play.replay import Replay, Session, record
from hackmatrix.render.page import page
from hackmatrix.render.picture import png
from hackmatrix.render.sheet import sheet
from hackmatrix.rules.rewards import COMPONENTS

NETWORK = PlayerCenteredMLP(8, 1, key=jax.random.key(0))
LONG = 200


@pytest.fixture(scope="module")
def fighter():
    return record(named_agent("fighter"), 1)


@pytest.fixture(scope="module")
def network():
    return record(Agent("network", NETWORK, False, HackMatrix()), 2)


@pytest.fixture(scope="module")
def long(fighter):
    """As many frames as different games have, one after the other."""
    frames, seed = list(fighter.frames), 100
    while len(frames) <= LONG:
        frames += record(named_agent("fighter"), seed).frames
        seed += 1
    numbered = [dataclasses.replace(frame, step=n) for n, frame in enumerate(frames[: LONG + 1])]
    return Replay("several", 0, numbered)


def data_of(content):
    return json.loads(re.search(r'id="data">(.*?)</script>', content)[1])


def test_frames_say_what_led_to_them_and_what_may_come(network):
    first, *_, last = network.frames
    assert (first.step, first.action, first.rewards, first.return_) == (0, None, {}, 0.0)
    assert last.end
    assert last.decision is None
    assert last.allowed == ()
    total = 0.0
    for before, after in zip(network.frames[:-1], network.frames[1:], strict=True):
        assert after.step == before.step + 1
        assert after.action == before.decision.action
        assert after.action in before.allowed
        assert tuple(after.rewards) == COMPONENTS
        total += after.reward
        assert after.return_ == pytest.approx(total, abs=1e-4)
        probabilities = np.array(before.decision.probabilities)
        assert probabilities.sum() == pytest.approx(1, abs=1e-5)
        assert set(np.flatnonzero(probabilities)) == set(before.allowed)
        assert before.decision.value is not None


def test_a_seed_is_a_game(fighter):
    again = record(named_agent("fighter"), 1)
    assert again == fighter
    assert record(named_agent("fighter"), 2).frames[0] != fighter.frames[0]


@pytest.mark.slow
def test_what_is_revealed_changes_nothing_else(network):
    again = record(Agent("network", NETWORK, False, HackMatrix()), 2, reveal=True)
    assert [f.action for f in again.frames] == [f.action for f in network.frames]
    assert again.frames[0].scene.revealed


@pytest.mark.slow
def test_a_game_is_the_same_by_compact_observations(network):
    env = HackMatrix(compact=True)
    assert record(Agent("network", NETWORK, False, env), 2).frames == network.frames


def test_stages_and_summary(fighter):
    assert fighter.stages[0] == (0, 1)
    assert [stage for _, stage in fighter.stages] == list(range(1, len(fighter.stages) + 1))
    assert len(fighter.stages) > 2
    for step, stage in fighter.stages[1:]:
        assert fighter.frames[step].scene.stage == stage
        assert fighter.frames[step - 1].scene.stage == stage - 1
    assert fighter.summary().startswith("fighter, seed 1: died in stage")


def test_a_game_can_be_cut_off():
    short = record(named_agent("fighter"), 1, max_steps=3)
    assert [frame.end for frame in short.frames] == ["", "", "", "cut off"]


def test_a_game_of_ones_own():
    game = Session(HackMatrix(), 5)
    before = game.frame()
    game.act(before.allowed[0])
    after = game.frame()
    assert after.action == before.allowed[0]
    assert after.decision is None
    assert not game.over
    game.act(27)  # HACK, which nobody owns: the game ends.
    assert game.over
    assert game.frame().end == "ended by an invalid action"


class _Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [v for k, v in attrs if k in ("src", "href", "action", "srcset", "data")]


def test_a_page_needs_nothing_else(network):
    content = page(network)
    links = _Links()
    links.feed(content)
    assert links.found == ["data:,"]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", content)
    assert "@import" not in content
    assert "url(" not in content
    assert "{{" not in content


def test_a_page_holds_the_whole_game(network):
    data = data_of(page(network))
    assert len(data["frames"]) == len(network.frames)
    for shown, frame in zip(data["frames"], network.frames, strict=True):
        assert shown["action"] == frame.action
        assert shown["allowed"] == list(frame.allowed)
        assert shown["return"] == pytest.approx(frame.return_, abs=1e-3)
        assert sum(shown["rewards"].values()) == pytest.approx(frame.reward, abs=1e-3)
        if frame.decision:
            assert shown["choice"] == frame.decision.action
            np.testing.assert_allclose(
                shown["probabilities"], frame.decision.probabilities, atol=1e-4
            )


def test_a_page_of_200_steps_is_small(long):
    assert len(long.frames) == LONG + 1
    assert len(page(long).encode()) < 2_000_000


def test_names_cannot_break_a_page(fighter):
    content = page(dataclasses.replace(fighter, name="</script><b>"))
    assert "</script><b>" not in content


def test_notebooks_show_a_replay(fighter):
    assert fighter._repr_html_().startswith("<iframe srcdoc=")


def test_pictures_and_films(fighter):
    short = Replay("fighter", 1, fighter.frames[:6])
    picture = Image.open(io.BytesIO(png(sheet(short.frames[0].scene), 300)))
    assert picture.width == 300
    assert len(picture.getcolors(1 << 16)) > 50
    moving = Image.open(io.BytesIO(film(short, 4.0)))
    assert moving.n_frames == 6
    assert moving.info["duration"] == 250
    first = moving.convert("RGB").tobytes()
    moving.seek(4)
    assert moving.convert("RGB").tobytes() != first
