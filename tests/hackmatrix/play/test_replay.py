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

from games import ENV
from hackmatrix.cli.watch import film
from hackmatrix.networks import player_centered_mlp
from hackmatrix.play.agents import Agent, load_agent
from hackmatrix.play.replay import Replay, Session, record
from hackmatrix.render.page import page
from hackmatrix.render.picture import png
from hackmatrix.render.scene import scene
from hackmatrix.render.sheet import sheet
from hackmatrix.rules.rewards import COMPONENTS
from recorded import row, states

NETWORK = player_centered_mlp(8, 1, key=jax.random.key(0))


@pytest.fixture(scope="module")
def fighter():
    return record(load_agent("fighter"), 1)


@pytest.fixture(scope="module")
def network():
    """A whole game, drawn from probabilities of a network with a value."""
    return record(Agent("network", NETWORK, False, ENV), 2)


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


def test_a_seed_is_a_game_and_what_is_revealed_changes_nothing_else(fighter):
    again, other = (record(load_agent("fighter"), seed, max_steps=3) for seed in (1, 2))
    assert again.frames[:3] == fighter.frames[:3]
    assert other.frames[0] != fighter.frames[0]
    assert [frame.end for frame in again.frames] == ["", "", "", "cut off"]
    revealed = record(load_agent("fighter"), 1, reveal=True, max_steps=3)
    assert [f.action for f in revealed.frames] == [f.action for f in again.frames]
    assert revealed.frames[0].scene.revealed


def test_stages_and_summary(fighter):
    assert fighter.stages[0] == (0, 1)
    assert [stage for _, stage in fighter.stages] == list(range(1, len(fighter.stages) + 1))
    assert len(fighter.stages) > 2
    for step, stage in fighter.stages[1:]:
        assert fighter.frames[step].scene.stage == stage
        assert fighter.frames[step - 1].scene.stage == stage - 1
    assert fighter.summary().startswith("fighter, seed 1: died in stage")


def test_a_game_of_ones_own():
    game = Session(ENV, 5)
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


def test_a_page_of_100_steps_is_small(network):
    """Of positions that have little in common."""
    scenes = [scene(row(states(), number)) for number in range(100)]
    frames = [dataclasses.replace(network.frames[1], step=n, scene=x) for n, x in enumerate(scenes)]
    assert len(page(Replay("several", 0, frames)).encode()) < 1_200_000


def test_names_cannot_break_a_page_that_notebooks_show(fighter):
    shown = re.fullmatch(r'<iframe srcdoc="([^"]*)"[^>]*></iframe>', fighter._repr_html_())
    assert shown is not None
    assert html.unescape(shown[1]) == page(fighter)
    assert "</script><b>" not in page(dataclasses.replace(fighter, name="</script><b>"))


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
