"""What a person may see of a position, as plain values.

Text, terminal, SVG, pages and pictures all draw a :class:`Scene`, so this module alone decides
what they show. A scene leaves out what the player cannot see, unless ``reveal`` asks for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hackmatrix.positions import DATA, EXIT, PICKUP, QUESTION_DATA, QUESTION_PROGRAM, dump
from hackmatrix.rules.entities import CRYPTOG, TYPES
from hackmatrix.rules.game import MAX_HP, NUM_STAGES
from hackmatrix.rules.planes import SIZE
from hackmatrix.rules.programs import CARDS, amounts
from hackmatrix.rules.state import State


@dataclass(frozen=True)
class Enemy:
    """An enemy in a scene.

    Attributes:
        type: one of :data:`hackmatrix.rules.entities.TYPES`.
        hp: hit points left.
        stunned: whether the enemy sits out the next enemy turn.
        disabled: turns that the enemy sits out.
        from_siphon: whether a siphoned block brought the enemy.
        from_task: whether the schedule brought the enemy; False unless everything is revealed.
    """

    type: str
    hp: int
    stunned: bool
    disabled: int
    from_siphon: bool
    from_task: bool

    @property
    def marks(self) -> str:
        """Signs of the enemy's status and origin; see :mod:`hackmatrix.render.text`."""
        return "!" * self.stunned + "z" * bool(self.disabled) + _origin_marks(self)


@dataclass(frozen=True)
class Transmission:
    """An enemy to come.

    Attributes:
        turns: turns until the enemy arrives.
        type: the enemy's type; None if the scene hides it.
        from_siphon: see :class:`Enemy`; False unless everything is revealed.
        from_task: see :class:`Enemy`.
    """

    turns: int
    type: str | None
    from_siphon: bool
    from_task: bool

    @property
    def marks(self) -> str:
        """A sign for the transmission's origin, if the scene reveals the origin."""
        return _origin_marks(self)


def _origin_marks(seen: Enemy | Transmission) -> str:
    return "s" * seen.from_siphon + "t" * seen.from_task


@dataclass(frozen=True)
class Block:
    """A block.

    Attributes:
        content: ``data``, ``program``, or ``unknown``.
        points: the points of a data block, else 0.
        program: the name of a program block's program, else empty.
        spawn_count: transmissions that siphoning the block brings.
        question: whether the block hides its content from the player; the scene may reveal it.
    """

    content: str
    points: int
    program: str
    spawn_count: int
    question: bool


@dataclass(frozen=True)
class Cell:
    """One cell, and the entities on it.

    Attributes:
        row: the row; 0 at the bottom.
        col: the column; 0 at the left.
        block: the block on the cell; None for none.
        pickup: whether a data siphon lies here.
        exit: whether the cell is the exit.
        credits: visible credits.
        energy: visible energy.
        siphoned: whether the cell has been siphoned.
        center: whether the player stood here when siphoning.
        player: whether the player is here.
        enemies: the visible enemies, in list order. On a crowded cell, the first enemy hides the
            others unless everything is revealed.
        more: how many more enemies the player would see if the first enemy did not hide them.
        transmissions: the transmissions on the cell, in list order.
    """

    row: int
    col: int
    block: Block | None = None
    pickup: bool = False
    exit: bool = False
    credits: int = 0
    energy: int = 0
    siphoned: bool = False
    center: bool = False
    player: bool = False
    enemies: tuple[Enemy, ...] = ()
    more: int = 0
    transmissions: tuple[Transmission, ...] = ()


@dataclass(frozen=True)
class Scene:
    """One position.

    Attributes:
        stage: 1 to 8.
        turn: enemy turns played in this stage.
        next_spawn: the turn of the next scheduled spawn.
        interval: turns between scheduled spawns.
        pending: transmissions that siphoned blocks will bring in the next enemy turn.
        show: SHOW is on.
        calm: CALM is on.
        step: STEP is on.
        atk_uses: how often ATK+ was run in this stage.
        hp: the player's hp; ``credits``, ``energy``, ``siphons``, ``score`` and ``attack`` are the
            player's, too.
        programs: the numbers of the programs owned.
        cells: all 36 cells, row by row from the bottom left.
        revealed: whether the scene shows what the player cannot see.
    """

    stage: int
    turn: int
    next_spawn: int
    interval: int
    pending: int
    show: bool
    calm: bool
    step: bool
    atk_uses: int
    hp: int
    credits: int
    energy: int
    siphons: int
    score: int
    attack: int
    programs: tuple[int, ...]
    cells: tuple[Cell, ...]
    revealed: bool

    def values(self) -> list[tuple[str, str]]:
        """The player's and the stage's numbers as text, with their names, in display order."""
        plain = ("credits", "energy", "siphons", "attack", "score")
        return [
            ("hp", f"{self.hp}/{MAX_HP}"),
            *((name, str(getattr(self, name))) for name in plain),
            ("stage", f"{self.stage}/{NUM_STAGES}"),
            ("turn", str(self.turn)),
            ("next spawn at turn", f"{self.next_spawn} (every {self.interval})"),
        ]

    def flags(self) -> list[str]:
        """The programs in effect, the transmissions to come, and the uses of ATK+."""
        switches = (("show", self.show), ("calm", self.calm), ("step", self.step))
        flags = [name for name, on in switches if on]
        if self.pending:
            flags.append(f"{self.pending} pending")
        if self.atk_uses:
            flags.append(f"ATK+ used {self.atk_uses}")
        return flags


def scene(state: State, *, reveal: bool = False) -> Scene:
    """What a person may see of a state.

    Args:
        state: one position, not a batch.
        reveal: whether to show what the player cannot see: cryptogs, question blocks, resources
            under blocks, types of transmissions, and where entities came from.

    Raises:
        ValueError: the state has a leading axis.
    """
    batch = state.packed.order.shape[:-1]
    if batch:
        raise ValueError(f"expected one state, got a batch of shape {batch}")
    position = dump(state)
    _, _, hp, credits, energy, siphons, score, attack = position["player"]
    numbers = ("stage", "turn", "interval", "pending", "atk_uses")
    return Scene(
        **{name: position[name] for name in numbers},
        **{name: bool(position[name]) for name in ("show", "calm", "step")},
        next_spawn=position["next_task"],
        hp=hp,
        credits=credits,
        energy=energy,
        siphons=siphons,
        score=score,
        attack=attack,
        programs=tuple(position["owned"]),
        cells=_cells(position, reveal),
        revealed=reveal,
    )


def _cells(position: dict[str, Any], reveal: bool) -> tuple[Cell, ...]:
    cells: dict[tuple[int, int], dict[str, Any]] = {
        (row, col): {"enemies": [], "transmissions": []}
        for row in range(SIZE)
        for col in range(SIZE)
    }
    row, col = position["player"][:2]
    knows_types = reveal or bool(position["show"])
    for r, c, *content in position["cells"]:
        cells[r, c] |= _content(content, reveal)
    for type, r, c, hp, disabled, stunned, from_siphon, from_task in position["enemies"]:
        visible = knows_types or type != CRYPTOG or r == row or c == col
        enemy = Enemy(
            TYPES[type], hp, bool(stunned), disabled, bool(from_siphon), reveal and bool(from_task)
        )
        cells[r, c]["enemies"].append(enemy if visible else None)
    for r, c, turns, type, from_siphon, from_task in position["transmissions"]:
        name = TYPES[type] if knows_types else None
        origin = (reveal and bool(from_siphon), reveal and bool(from_task))
        cells[r, c]["transmissions"].append(Transmission(turns, name, *origin))
    cells[row, col]["player"] = True
    for found in cells.values():
        found["enemies"], found["more"] = _crowd(found["enemies"], reveal)
        found["transmissions"] = tuple(found["transmissions"])
    return tuple(Cell(r, c, **found) for (r, c), found in cells.items())


def _crowd(enemies: Sequence[Enemy | None], reveal: bool) -> tuple[tuple[Enemy, ...], int]:
    """The enemies that the player sees on one cell, and how many more the first enemy hides."""
    visible = tuple(enemy for enemy in enemies if enemy is not None)
    if reveal or not enemies:
        return visible, 0
    # The first enemy on a cell hides the others, even if it is hidden itself.
    return ((), 0) if enemies[0] is None else (visible[:1], len(visible) - 1)


def _content(values: Sequence[int], reveal: bool) -> dict[str, Any]:
    kind, points, program, spawn_count, credits, energy, siphoned, center = values
    question = kind in (QUESTION_DATA, QUESTION_PROGRAM)
    block = None
    if question and not reveal:
        block = Block("unknown", 0, "", 0, True)
    elif program >= 0:
        block = Block("program", 0, CARDS[program].name, spawn_count, question)
    elif question or kind == DATA:
        block = Block("data", points, "", spawn_count, question)
    ground = reveal or bool(siphoned) or block is None
    return {
        "block": block,
        "pickup": kind == PICKUP,
        "exit": kind == EXIT,
        "credits": credits if ground else 0,
        "energy": energy if ground else 0,
        "siphoned": bool(siphoned),
        "center": bool(center),
    }


def describe(cell: Cell) -> str:
    """A cell in words; an empty string if nothing is on it."""
    facts = ["player"] * cell.player
    for enemy in cell.enemies:
        words = [f"{enemy.type} hp {enemy.hp}"]
        words += ["stunned"] * enemy.stunned
        words += [f"disabled {enemy.disabled}"] if enemy.disabled else []
        facts.append(" ".join(words + _origin(enemy)))
    if cell.more:
        facts.append(f"{cell.more} more")
    for each in cell.transmissions:
        words = [f"transmission in {each.turns}"]
        words += [f"of a {each.type}"] if each.type else []
        facts.append(" ".join(words + _origin(each)))
    if cell.block:
        facts.append(_block_words(cell.block))
    facts += ["exit"] * cell.exit + ["data siphon"] * cell.pickup
    facts += filter(None, [amounts(cell.credits, cell.energy)])
    facts += ["siphoned"] * cell.siphoned + ["siphoned from here"] * cell.center
    return ", ".join(facts)


def _origin(entity: Enemy | Transmission) -> list[str]:
    return ["from a siphon"] * entity.from_siphon + ["from the schedule"] * entity.from_task


def _block_words(block: Block) -> str:
    if block.content == "unknown":
        return "question block"
    words = f"{block.points} points" if block.content == "data" else f"program {block.program}"
    spawns = f" spawns {block.spawn_count}" if block.spawn_count else ""
    return f"{'hidden ' * block.question}block {words}{spawns}"
