"""A package of somebody's, whose programs are kept."""

from pathlib import Path
from typing import Any

from ppo_mask.programs import KeptPrograms

SOURCE = """
import collections
import dataclasses
import enum
import functools
import logging
import operator
import types
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

FACTOR, ZERO = 2.0, 0.0
TABLE = np.arange(3.0)
SLICE = slice(1)
NESTED = {"of": [(1.0, {2.0})]}

class Kind(enum.Enum):
    ONE = 1

class Scale(eqx.Module):
    by: float = 1.0
    kind: Kind = Kind.ONE

    def __call__(self, x):
        return x * self.by

class Settings:
    offset = 0.0

SETTINGS = Settings()

@dataclasses.dataclass
class Derived:
    a: float = 1.0

    def __post_init__(self):
        self.b = self.a

DERIVED = Derived()

class Caller:
    def __init__(self, by):
        self.func, self.by = abs, by

    @functools.cached_property
    def twice(self):
        return 2 * self.by

CALLER = Caller(1.0)

class Slotted:
    __slots__ = ("a",)

SLOTTED = Slotted()
SLOTTED.a = 1.0
class OneSlot:
    __slots__ = "reward"

ONE_SLOT = OneSlot()
ONE_SLOT.reward = 1.0

class Tile(enum.IntEnum):
    WALL = 1

Tile.WALL.reward = 1.0

class Table(dict):
    scale = 1.0

class Line(collections.deque):
    pass

class Moves:
    def _go(self, by):
        return by

    go = functools.partialmethod(_go, by=1.0)

DICT, DEFAULTS, LINE = Table(a=1.0), collections.defaultdict(float), Line([1.0])
SPACE = types.SimpleNamespace(by=1.0, function=len, table=np.zeros(3000))
MASKED, OBJECTS = np.ma.array([1.0], mask=[False]), np.array([[1.0], None], object)
RANDOM, STRONG = np.random.default_rng(0), jnp.array(2.0, jnp.float32)
LOG = logging.getLogger("somebodys_game")
__HIDDEN = 1.0
PICK = operator.itemgetter(0)
LOOK_UP = {1: 2.0}.get

@jax.custom_jvp
def smooth(x):
    return x

smooth.defjvp(lambda primals, tangents: (primals[0], tangents[0]))

def product(a, b):
    return a * b

SLOPE = jax.grad(product)
SET = {product, Slotted, Moves, OneSlot, Line}

@functools.singledispatch
def reward(what):
    return 0.0

@jax.jit
def inner(x):
    return x + ZERO

def helper(x, plus=0.0):
    return inner(x) * FACTOR + TABLE.sum() + plus

@eqx.filter_jit
def compute(x, extra=None):
    y = helper(x) + SETTINGS.offset
    return {"y": extra(y) if callable(extra) else y, "x": (x, [None, x])}

def plus(amount):
    return lambda x: x + amount

def made(by):
    class Made(eqx.Module):
        def __call__(self, x):
            return x * by
    return Made()

def called_back(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

def with_a_function(x):
    return x, helper

def with_a_number(x):
    return x, 3.0

def weakly(x):
    return x, jnp.asarray(2.0)

def later(x):
    from somebodys_game.late import plus
    return plus(x)
"""


def kept(folder: Path, game: Any, *args: Any) -> Any:
    """What a process computes that has traced nothing yet."""
    return KeptPrograms(folder, {game.__name__}).kept(game.compute)(*args)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*")) if folder.exists() else []


def look_at(folder: Path) -> int:
    """How many files have been written since the last look, be it in place of others."""
    new = [path for path in files(folder) if path.stat().st_mode & 0o777 == 0o600]
    for path in new:
        path.chmod(0o640)
    return len(new)
