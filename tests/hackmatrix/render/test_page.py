"""A replay's page in Chromium."""

from pathlib import Path

import pytest

from chromium import DESKTOP, PHONE
from hackmatrix.play.agents import load_agent
from hackmatrix.play.replay import record
from hackmatrix.render.page import page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def replay():
    return record(load_agent("fighter"), 1)


@pytest.fixture(scope="module")
def file(replay, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "replay.html"
    path.write_text(page(replay), encoding="utf-8")
    return path


def step(shown):
    return int(shown.inner_text("#where").split()[1].split("/")[0])


def board(shown):
    """Where the player is drawn, and what all cells say."""
    return shown.eval_on_selector_all("#board g", "gs => gs.map(g => g.textContent)")


def test_the_scrubber_moves_the_board(opened, replay):
    shown = opened()
    start = board(shown)
    assert sum("player" in cell for cell in start) == 1
    shown.fill("#scrubber", "40")
    assert step(shown) == 40
    assert board(shown) != start
    frame = replay.frames[40]
    values = dict(frame.scene.values())
    assert shown.inner_text("#values dd >> nth=0") == values["hp"]
    assert shown.inner_text("#values dd >> nth=6") == values["stage"]
    assert f"{frame.return_:.2f}" in shown.inner_text("#where")
    shown.fill("#scrubber", "0")
    assert board(shown) == start


def test_the_keyboard_alone_goes_through_the_game(opened, replay):
    shown = opened()
    last = len(replay.frames) - 1
    keys = "ArrowRight ArrowRight ArrowLeft End ArrowRight Home ArrowLeft PageDown PageDown PageUp"
    second, third = (step for step, _ in replay.stages[1:3])
    expected = [1, 2, 1, last, last, 0, 0, second, third, second]
    for key, where in zip(keys.split(), expected, strict=True):
        shown.keyboard.press(key)
        assert step(shown) == where, key
    began = step(shown)
    shown.keyboard.press(" ")
    shown.wait_for_function(f"Number(scrubber.value) > {began + 2}")
    shown.keyboard.press(" ")
    stopped = step(shown)
    shown.wait_for_timeout(600)
    assert step(shown) == stopped
    # All controls can be reached, and space on a button presses that button.
    shown.focus("#next")
    shown.keyboard.press(" ")
    assert step(shown) == stopped + 1


def test_actions_that_are_not_allowed_are_shown_as_such(opened, replay):
    shown = opened()
    shown.fill("#scrubber", "7")
    rows = shown.eval_on_selector_all("#actions li", "rows => rows.map(row => row.className)")
    assert len(rows) == 28
    allowed = [n for n, name in enumerate(rows) if "no" not in name.split()]
    assert tuple(allowed) == replay.frames[7].allowed
    chosen = [n for n, name in enumerate(rows) if "chosen" in name.split()]
    assert chosen == [replay.frames[7].decision.action]
    assert shown.inner_text(f"#actions li >> nth={chosen[0]}").endswith("100%")


def test_buttons_marks_and_charts_can_be_clicked(opened, replay):
    shown = opened()
    shown.click("#end")
    assert step(shown) == len(replay.frames) - 1
    assert "The episode is over: died" in shown.inner_text("#last")
    shown.click("#first")
    shown.click(".marks button >> nth=2")
    assert step(shown) == replay.stages[2][0]
    shown.click(".plot >> nth=0")
    assert abs(step(shown) - len(replay.frames) / 2) < 3


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_it_fits_a_desktop_and_a_phone(opened, size, scheme, tmp_path: Path):
    shown = opened(size, scheme)
    shown.keyboard.press("PageDown")
    assert shown.evaluate("document.documentElement.scrollWidth") <= size[0]
    scrubber = shown.locator("#scrubber").bounding_box()
    assert scrubber is not None
    assert scrubber["y"] + scrubber["height"] <= size[1]  # always in view
    background = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(8, 11, 17)") == (scheme == "dark")
    shown.screenshot(path=tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000
