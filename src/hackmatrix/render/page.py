"""A replay, and the page that shows it.

The page stores each distinct drawing of a cell once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from importlib.resources import files

from hackmatrix.actions import ACTION_NAMES, FIRST_PROGRAM, program_price
from hackmatrix.render.shapes import Drawing
from hackmatrix.render.sheet import board
from hackmatrix.render.svg import drawn, inside
from hackmatrix.render.tiles import BACKGROUND, TILE
from hackmatrix.rules.planes import SIZE
from hackmatrix.rules.programs import CARDS
from ppo_mask.envs import drawing
from ppo_mask.envs.drawing import Frame


@dataclass(frozen=True)
class Replay:
    """A game from its start, as far as it was played.

    Attributes:
        name: the name of the player or policy.
        seed: the seed of the game.
        frames: at least one frame.
    """

    name: str
    seed: int
    frames: list[Frame] = field(repr=False)

    @cached_property
    def stages(self) -> list[tuple[int, int]]:
        """The first step of each stage, paired with the stage."""
        marks: list[tuple[int, int]] = []
        for frame in self.frames:
            if not marks or frame.scene.stage != marks[-1][1]:
                marks.append((frame.step, frame.scene.stage))
        return marks

    def summary(self) -> str:
        """One line about the game."""
        last = self.frames[-1]
        return (
            f"{self.name}, seed {self.seed}: {last.end or 'not over'} in stage {last.scene.stage} "
            f"after {last.step} steps, score {last.scene.score}, return {last.return_:.2f}"
        )

    def _repr_html_(self) -> str:
        """The page in an iframe, for a notebook."""
        return (
            f'<iframe srcdoc="{escape(page(self))}" width="100%" height="760" '
            'style="border:0"></iframe>'
        )


def page(replay: Replay) -> str:
    """The page of a replay, with a slider and keys to move through the frames."""
    cells = tuple(board(replay.frames[0].scene))  # The page's script changes the cells.
    empty = drawn(Drawing(SIZE * TILE, SIZE * TILE, BACKGROUND, "the board", cells))
    scenery = files("hackmatrix.render").joinpath("scenery.html").read_text(encoding="utf-8")
    return drawing.page(
        replay.frames,
        [list(_pieces(frame)) for frame in replay.frames],
        [f"{name}<small>{program_price(n)}</small>" for n, name in enumerate(ACTION_NAMES)],
        title=f"HackMatrix: {replay.name}, seed {replay.seed}",
        summary=replay.summary(),
        scenery=scenery.replace("{{board}}", empty.replace("<g ", '<g data-piece="" ')),
        marks=replay.stages,
        marked="stage",
    )


def _pieces(frame: Frame) -> Iterator[str]:
    """Yields what the scenery's pieces contain: the values, the cells, the programs."""
    scene = frame.scene
    (_, hp), *values = scene.values()
    yield escape(hp) if hp.startswith("3") else f'<span class="loss">{escape(hp)}</span>'
    yield from (escape(f"{value}") for _, value in values)
    yield escape("  ".join(scene.flags()))
    yield from map(inside, board(scene))
    cards = [
        f'<li class="{"" if FIRST_PROGRAM + number in frame.allowed else "no"}">'
        f"{escape(f'{CARDS[number].name} {CARDS[number].price}')}</li>"
        for number in scene.programs
    ]
    yield "".join(cards) or '<li class="no">no programs</li>'
