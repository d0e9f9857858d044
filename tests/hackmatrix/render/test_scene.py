"""What is seen of recorded positions: every fact is drawn, and what is hidden is not."""

import json
import re
import xml.etree.ElementTree as ElementTree

import jax
import jax.numpy as jnp
import pytest

from games import position
from hackmatrix import positions
from hackmatrix.play.replay import Frame, Replay
from hackmatrix.render import scene, svg, text
from hackmatrix.render.page import page
from hackmatrix.rules.programs import CARDS
from own_process import python
from recorded import row, starts, states

NAMES = ("virus", "daemon", "glitch", "cryptog")
CRYPTOG = 3
VALUES = 10  # pieces of a page before the cells
SVG = "{http://www.w3.org/2000/svg}"


def cells_of(image):
    """Of each cell of an SVG: its words, and the labels that are drawn on it."""
    found = []
    for group in ElementTree.fromstring(image).iter(f"{SVG}g"):
        x, y = map(float, re.findall(r"[\d.]+", group.attrib["transform"]))
        title = group.findtext(f"{SVG}title") or ""
        labels = [label.text for label in group.iter(f"{SVG}text")]
        found.append((x, y, title.split(", "), labels))
    found = found[:36]
    left, bottom = min(x for x, *_ in found), max(y for _, y, *_ in found)
    return {
        (round((bottom - y) / 100), round((x - left) / 100)): (words, labels)
        for x, y, words, labels in found
    }


def html_cells(replay):
    """Of each frame of the page: its 36 cells, as in :func:`cells_of`."""
    content = page(replay)
    data = json.loads(re.search(r'id="data">(.*?)</script>', content)[1])
    board = ElementTree.fromstring(re.search(r'<div id="board">(.*?)</div>', content)[1])
    places = [group.attrib["transform"] for group in board.iter(f"{SVG}g")]
    for frame in data["frames"]:
        groups = [
            f'<g transform="{place}">{data["pieces"][cell]}</g>'
            for place, cell in zip(places, frame["pieces"][VALUES:], strict=False)
        ]
        yield cells_of(f'<svg xmlns="http://www.w3.org/2000/svg">{"".join(groups)}</svg>')


@pytest.fixture(scope="module")
def recorded():
    """Positions as they were recorded, their pictures, and those with everything revealed."""
    pictures = [(starts()[n], svg(one), svg(one, reveal=True)) for n, one in chosen()]
    assert len(pictures) == 40
    return pictures


def chosen():
    return [(n, row(states(), n)) for n in range(0, 400, 10)]


def test_entities_are_drawn_and_hidden_ones_are_not(recorded):
    for start, *pictures in recorded:
        hidden, revealed = map(cells_of, pictures)
        here, show = start["player"][:2], start["show"]
        assert "player" in hidden[tuple(here)][0]
        occupied = set()
        for type, r, c, hp, disabled, stunned, from_siphon, from_task in start["enemies"]:
            words = [f"{NAMES[type]} hp {hp}", "stunned" * stunned]
            words += [f"disabled {disabled}" if disabled else "", "from a siphon" * from_siphon]
            phrase = " ".join(filter(None, words))
            everything = " ".join(filter(None, [phrase, "from the schedule" * from_task]))
            assert everything in revealed[r, c][0]
            assert str(hp) in revealed[r, c][1]
            if (r, c) not in occupied:
                seen = bool(type != CRYPTOG or show or r == here[0] or c == here[1])
                assert (phrase in hidden[r, c][0]) == seen
                assert (NAMES[type] in hidden[r, c][1]) == seen
            occupied.add((r, c))
        for r, c, turns, type, from_siphon, from_task in start["transmissions"]:
            phrase = f"transmission in {turns}"
            known = f"{phrase} of a {NAMES[type]}"
            origin = ["from a siphon"] * from_siphon + ["from the schedule"] * from_task
            assert " ".join([known, *origin]) in revealed[r, c][0]
            assert (known if show else phrase) in hidden[r, c][0]
            assert str(turns) in hidden[r, c][1]


def test_blocks_and_what_lies_about_are_drawn_and_questions_are_not(recorded):
    for start, *pictures in recorded:
        hidden, revealed = map(cells_of, pictures)
        for r, c, kind, points, program, spawns, credits, energy, siphoned, center in start[
            "cells"
        ]:
            (words, labels), (all_words, all_labels) = hidden[r, c], revealed[r, c]
            block, question = kind in (1, 2, 3, 4), kind in (3, 4)
            if block:
                name = str(points) if kind in (1, 3) else CARDS[program].name
                content = f"{points} points" if kind in (1, 3) else f"program {name}"
                spawning = f" spawns {spawns}" if spawns else ""
                assert f"{'hidden ' * question}block {content}{spawning}" in all_words
                assert name in all_labels
                assert (f"x{spawns}" in all_labels) == (spawns > 0)
            if question:
                assert "question block" in words
                assert "?" in labels
                assert not any("points" in word or "program" in word for word in words)
                assert f"x{spawns}" not in labels
            assert ("data siphon" in words) == (kind == 5)
            assert ("exit" in words) == (kind == 6)
            assert ("siphoned" in words) == bool(siphoned)
            assert ("siphoned from here" in words) == bool(center)
            if lying := f"{credits}c" if credits else f"{energy}e" if energy else "":
                assert lying in all_words
                assert (lying in words) == (not block or bool(siphoned))


def test_the_players_values_and_programs_are_drawn(recorded):
    names = ("credits", "energy", "siphons", "score", "attack")
    for start, image, _ in recorded:
        labels = [label.text for label in ElementTree.fromstring(image).iter(f"{SVG}text")]
        _, _, hp, *amounts = start["player"]
        wanted = dict(zip(names, map(str, amounts), strict=True)) | {"stage": f"{start['stage']}/8"}
        # After "hp", each name is followed by its number.
        assert dict(zip(labels[1:13:2], labels[2:13:2], strict=True)) == wanted
        assert f"stage {start['stage']}, hp {hp}</title>" in image
        assert f"turn {start['turn']}" in image
        assert f"next spawn at turn {start['next_task']} (every {start['interval']})" in image
        assert ("CALM" in "".join(x for x in labels if "turn" in x)) == bool(start["calm"])
        owned = [CARDS[number].name for number in sorted(start["owned"])]
        assert re.findall(r"<title>program (.*?), price", image) == owned
        assert {*owned} <= {*labels}


@pytest.mark.parametrize("reveal", [False, True])
def test_the_page_shows_the_same(recorded, reveal):
    scenes = [scene(state, reveal=reveal) for _, state in chosen()]
    frames = [Frame(n, seen, (), None, {}, 0.0, None, "") for n, seen in enumerate(scenes)]
    pages = html_cells(Replay("nobody", 0, frames))
    for shown, (_, *pictures) in zip(pages, recorded, strict=True):
        assert shown == cells_of(pictures[reveal])


def test_a_crowd_is_counted_and_revealed():
    three = [(0, 4, 4, 2), (1, 4, 4, 3), (3, 4, 4, 1)]
    state = positions.load(position(enemies=three, transmissions=[(4, 4)]))
    words, labels = cells_of(svg(state))[4, 4]
    assert words == ["virus hp 2", "1 more", "transmission in 50"]
    assert "+1" in labels
    words, labels = cells_of(svg(state, reveal=True))[4, 4]
    assert words[:3] == ["virus hp 2", "daemon hp 3", "cryptog hp 1"]
    assert "+1" in labels  # Three are drawn; the words have all four.
    assert "|vir2+2 >50v|" in text(state, reveal=True)
    assert "|viru2da3cr1|" in text(positions.load(position(enemies=three)), reveal=True)


def test_a_hidden_cryptog_hides_those_that_come_after_it():
    behind = positions.load(position(enemies=[(CRYPTOG, 4, 4), (0, 4, 4)]))
    assert cells_of(svg(behind))[4, 4][0] == [""]


def test_notebooks_show_a_state_and_not_a_batch():
    state = positions.load(position())
    assert state._repr_svg_() == svg(state)
    assert states()._repr_svg_() is None
    drawn_inside = []
    jax.make_jaxpr(lambda s: (drawn_inside.append(s._repr_svg_()), jnp.int32(0))[1])(state)
    assert drawn_inside == [None]
    for show in (svg, text):
        with pytest.raises(ValueError, match="expected one state, got a batch"):
            show(states())


@pytest.mark.slow
def test_states_and_replays_show_themselves_after_a_bare_import():
    program = """
import jax
from hackmatrix import HackMatrix

state, _ = jax.jit(HackMatrix().reset)(jax.random.key(0))
print(state)
assert state._repr_svg_().startswith("<svg ")

from hackmatrix.play.replay import Frame, Replay
from hackmatrix.render import scene

frame = Frame(0, scene(state), (), None, {}, 0.0, None, "won")
assert Replay("nobody", 0, [frame])._repr_html_().startswith("<iframe ")
"""
    assert python("-c", program).stdout.startswith("hp 3/3 ")
