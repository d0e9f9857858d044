"""Episodes as pages and GIFs, and what wrappers draw."""

import io
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import ppo_mask as pm
from ppo_mask.envs import Actions, drawing
from ppo_mask.envs.drawing import Decision, Frame
from ppo_mask.envs.drawing._frames import as_picture
from ppo_mask.errors import RunError


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page)[1])


def test_a_page_lists_the_likeliest_of_many_actions():
    shares = [0.0] * 400
    shares[7], shares[311] = 0.75, 0.25
    decision = Decision((7, 311), tuple(shares), None)
    frame = Frame(0, "", (7, 311, 399), None, {}, 0.0, decision, "")
    after = Frame(1, "", (), (7, 311), {"reward": 1.0}, 1.0, None, "truncated")
    names = Actions.of((100, 300)).names
    page = drawing.page([frame, after], [["a"], ["b"]], names, title="<t>", summary="")
    assert '"among":"32 of 400"' in page
    assert "&lt;t&gt;" in page
    data = data_of(page)
    assert {7, 311} < set(data["actions"])
    first, second = data["frames"]
    assert dict(zip(data["actions"], first["probabilities"], strict=True))[311] == 0.25
    assert [data["pieces"][n] for n in (*first["pieces"], *second["pieces"])] == ["a", "b"]
    # Nothing about what is not shown.
    assert (first["allowed"], first["num_allowed"]) == ([7, 311], 3)
    assert data["names"] == {"7": "0:7", "311": "1:211"}


def test_a_film_has_a_picture_for_each_frame():
    pixels = [np.full((4, 6, 3), 100 * n, np.uint8) for n in range(3)]
    frames = [Frame(n, x, (), None, {}, 0.0, None, "") for n, x in enumerate(pixels)]
    moving = Image.open(io.BytesIO(drawing.film(frames, fps=4.0)))
    assert (moving.size, moving.n_frames) == ((420, 280), 3)


def test_text_keeps_what_a_terminal_would_color():
    html = drawing.html("<\x1b[41mS\x1b[0mF")
    assert html == "<pre>&lt;<mark>S</mark>F</pre>"


def test_wrappers_draw_what_they_wrap(monkeypatch):
    locks = pm.envs.probes.MaskedLocks()
    env = pm.TimeLimit(pm.TimeLimit(locks, 9), 5)
    state, timestep = env.reset(jax.random.key(0))
    assert drawing.draw(env, state, timestep) is None
    draw = staticmethod(lambda state, timestep: str(jax.tree.leaves(state)[0]))
    monkeypatch.setattr(type(locks), "draw", draw, raising=False)
    assert drawing.draw(env, state, timestep) == str(jax.tree.leaves(state)[0])
    draw = staticmethod(lambda state, timestep: jnp.zeros((2, 3, 3), jnp.uint8))
    monkeypatch.setattr(type(locks), "draw", draw)
    assert isinstance(drawing.draw(env, state, timestep), np.ndarray)


@pytest.mark.parametrize(
    "drawn",
    [
        np.full((2, 4, 4), 200, np.uint8),
        np.full((2, 4), 200),
        jnp.full((2, 4, 1), 200, jnp.uint8),
        jnp.full((2, 4, 3), 200 / 255),
        np.full((2, 4, 3), 200.0, np.float32),
    ],
)
def test_pictures_of_other_kinds_are_drawn(drawn):
    picture = as_picture(drawn)
    assert isinstance(picture, np.ndarray)
    np.testing.assert_array_equal(picture, np.full((2, 4, 3), 200, np.uint8), strict=True)


@pytest.mark.parametrize(
    ("drawn", "line"),
    [
        (np.zeros((3, 20, 30), np.uint8), r"draws uint8\[3, 20, 30\]; a picture is text, an Svg,"),
        (np.full((2, 2, 3), 300), r"draws int64\[2, 2, 3\]; "),
        (np.full((2, 2, 3), np.nan), r"draws float64\[2, 2, 3\]; "),
        (np.zeros((0, 2, 3)), r"draws float64\[0, 2, 3\]; "),
        (object(), r"draws object\[\]; "),
    ],
)
def test_what_is_no_picture_is_one_line(drawn, line):
    with pytest.raises(RunError, match=line):
        as_picture(drawn)
