"""What an action is: Discrete or MultiDiscrete, as in Gymnasium.

The field ``num_actions`` of an environment or a network says which. If ``num_actions`` is a number
``n``, an action is an integer below ``n``. If ``num_actions`` is a tuple ``(a, b, …)``, an action
is MultiDiscrete, with one integer for each part. The mask then concatenates the parts' masks, and
has a length of ``a + b + …``. :class:`Actions` answers what follows from that.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask.errors import ProtocolError
from ppo_mask.jax_tools import IntScalarLike, number_settings

NumActions: TypeAlias = int | tuple[int, ...]
"""The number of actions; if MultiDiscrete, a tuple with the number of each part."""

Action: TypeAlias = Int[Array, ""] | Int[Array, " parts"]
"""An action: an integer; if MultiDiscrete, an integer for each part."""

PartMask: TypeAlias = Callable[[Any, int], Any]
"""A function of the choices before part ``k``, in order, and of ``k``, which says which choices of
that part are allowed; None if the timestep's mask says so. ``k`` is a Python number."""

ActionLike: TypeAlias = IntScalarLike | Int[Array, " parts"] | Int[np.ndarray, " parts"]
"""An action as callers may pass it: an integer of any type, or an array of integers."""


@final
@dataclasses.dataclass(frozen=True)
class Actions:
    """The actions of an environment; :meth:`of` makes it.

    Example:
        >>> from ppo_mask.envs import Actions
        >>> discrete, multi = Actions.of(5), Actions.of((3, 5))
        >>> discrete.length, multi.length
        (5, 8)
        >>> discrete.shape, multi.shape
        ((), (2,))
        >>> str(discrete), str(multi), str(Actions.of((21,) * 10))
        ('5 actions', '3 x 5 actions', '10 choices of 21 actions')

    Attributes:
        sizes: the number of actions of each part; a Discrete action is a single part.
        has_parts: whether actions are MultiDiscrete.
    """

    sizes: tuple[int, ...]
    has_parts: bool

    @classmethod
    def of(cls, num_actions: Any) -> "Actions":
        """Reads ``num_actions``: a number; if MultiDiscrete, a tuple with that of each part.

        Raises:
            ProtocolError: it is not a positive int, or a tuple of some.
        """
        has_parts = isinstance(num_actions, tuple)
        sizes: Any = num_actions if has_parts else (num_actions,)
        if sizes and all(isinstance(n, int) and n >= 1 for n in sizes):
            return cls(sizes, has_parts)
        kind = " or a tuple of some" if isinstance(num_actions, tuple | list) else ""
        raise ProtocolError(f"num_actions is {num_actions!r}, not a positive int{kind}")

    @property
    def length(self) -> int:
        """The length of a mask: the number of actions, summed over the parts."""
        return sum(self.sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one action: ``()``; if MultiDiscrete, ``(parts,)``."""
        return (len(self.sizes),) if self.has_parts else ()

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each part begins in the mask."""
        return tuple(itertools.accumulate(self.sizes[:-1], initial=0))

    def slice_of(self, k: int) -> slice:
        """Says where part ``k`` is in a mask."""
        return slice(self.starts[k], self.starts[k] + self.sizes[k])

    @property
    def names(self) -> list[str]:
        """Each action's number; if MultiDiscrete, that of the part, and the number in it."""
        parts = enumerate(self.sizes)
        return [f"{part}:{n}" if self.has_parts else str(n) for part, m in parts for n in range(m)]

    def __str__(self) -> str:
        count, least, most = len(self.sizes), min(self.sizes), max(self.sizes)
        if not self.has_parts or 1 < count <= 4:
            return f"{' x '.join(map(str, self.sizes))} actions"
        size = f"{least}" if least == most else f"{least} to {most}"
        return f"{count} choice{'s' * (count > 1)} of {size} actions"

    def split(self, row: Any) -> Iterator[tuple[slice | np.ndarray, Any]]:
        """Splits the last axis, which holds the actions, into parts.

        Parts of equal size form one array, wherever they are, so that they are computed together
        without padding: a program grows with the number of sizes, not with that of parts.

        Args:
            row: a JAX or NumPy array ``[*batch, actions]``.

        Yields:
            An index of the parts, and their array ``[*batch, parts, size]``.
        """
        for size in dict.fromkeys(self.sizes):
            parts = np.flatnonzero(np.equal(self.sizes, size))
            places = np.take(self.starts, parts)[:, None] + np.arange(size)
            shape = *row.shape[:-1], *places.shape
            yield _index(parts), row[..., _index(places)].reshape(shape)

    def unsplit(self, results: Sequence[Array]) -> Array:
        """Joins the results of :meth:`split`'s arrays, in the order of the parts.

        Args:
            results: arrays ``[*batch, parts]``, or ``[*batch, parts * size]``.
        """
        joined, numbers = jnp.concatenate(results, axis=-1), np.arange(len(self.sizes))
        groups = list(self.split(np.arange(self.length)))
        if joined.shape[-1] == len(numbers):
            groups = [(parts, numbers[parts]) for parts, _ in groups]
        order = np.concatenate([places.reshape(-1) for _, places in groups])
        return joined[..., _index(np.argsort(order))]

    def each_part(self, function: Callable[[Any], Array], row: Array) -> Array:
        """Reduces the last axis, part by part, to a number for each part: ``[*batch, *shape]``.

        Args:
            function: maps an array ``[…, size]`` to an array ``[…]``.
            row: an array ``[*batch, actions]``.
        """
        if not self.has_parts:
            return function(row)
        return self.unsplit([function(parts) for _, parts in self.split(row)])

    def count(self, mask: Bool[Array, "*batch actions"]) -> Int[Array, "*counts"]:
        """Counts the actions that a mask allows; if MultiDiscrete, those of each part."""
        return self.each_part(lambda part: part.sum(axis=-1, dtype=jnp.int32), mask)

    def any_allowed(self, mask: Bool[Array, "*batch actions"]) -> Bool[Array, "*batch"]:
        """Whether a mask allows at least one action; if MultiDiscrete, one in each part."""
        allowed = self.each_part(lambda part: part.any(axis=-1), mask)
        return allowed.all(axis=-1) if self.has_parts else allowed

    def path_to_empty(
        self, mask: Bool[Array, "*batch actions"], action: Int[Array, "*batch_and_parts"]
    ) -> Int[Array, " parts"]:
        """Finds the first part without an allowed choice in any row of a batch.

        Returns:
            The choices of the parts before it, then -1 for it and those after it.
        """
        some = self.each_part(lambda part: part.any(axis=-1), mask).reshape(-1, len(self.sizes))
        row = some.all(axis=-1).argmin()
        before = np.arange(len(self.sizes)) < some[row].argmin()
        return jnp.where(before, action.reshape(some.shape)[row], -1)

    def describe_path(self, path: Int[np.ndarray, " parts"]) -> str:
        """Says which part :meth:`path_to_empty` has found; empty if actions have no parts."""
        chosen = [x for x in path.tolist() if x >= 0]
        after = f", after the choice of {', '.join(map(str, chosen))}" if chosen else ""
        return f" in part {len(chosen)} of {self} (counted from 0){after}" * self.has_parts

    def max_entropy(self, mask: Bool[Array, "*batch actions"]) -> Float[Array, "*batch"]:
        """The largest possible entropy under a mask: log n where n actions are allowed."""
        entropy = jnp.log(self.count(mask).astype(jnp.float32))
        return entropy.sum(axis=-1) if self.has_parts else entropy

    def sample(self, key: Key[Array, ""], mask: Bool[Array, " actions"]) -> Action:
        """Samples uniformly from the allowed actions."""
        with number_settings():
            scores = jnp.where(mask, jax.random.uniform(key, mask.shape), -1)
        return self.each_part(lambda part: part.argmax(axis=-1).astype(jnp.int32), scores)

    def choose_in_turn(
        self, part_mask: PartMask, choose: Callable[[int, Array, Array], Array]
    ) -> tuple[Int[Array, " parts"], Bool[Array, " actions"]]:
        """Chooses part after part, where a part's mask depends on the choices before it.

        Args:
            part_mask: gives each part's mask.
            choose: maps a part's number, the choices before it and its mask to a choice.

        Returns:
            The action, and the parts' masks along its path, concatenated.
        """
        prefix, masks = jnp.zeros(0, jnp.int32), list[Any]()
        for k in range(len(self.sizes)):
            masks.append(part_mask(prefix, k))
            choice = jnp.asarray(choose(k, prefix, masks[-1]), jnp.int32)
            prefix = jnp.concatenate([prefix, choice[None]])
        return prefix, jnp.concatenate(masks)

    def uniform_numbers(self, key: Key[Array, ""]) -> Float[Array, "*parts"]:
        """Samples a number from 0 to below 1 for an action; if MultiDiscrete, for each part.

        :meth:`ppo_mask.networks.AbstractMaskedDistribution.invert_cdf` makes the action. A loop
        samples the numbers of all its steps beforehand, because a random number in every step would
        take most of its kernels.
        """
        with number_settings():  # The numbers have 32 bits.
            if not self.has_parts:
                return jax.random.uniform(key)
            return jax.vmap(jax.random.uniform)(jax.random.split(key, len(self.sizes)))

    def convert(self, action: Any) -> Action:
        """Converts an action to an int32 array.

        Raises:
            ValueError: a MultiDiscrete action does not have one integer for each part.
        """
        if not self.has_parts:
            return _as_number(action)
        if not isinstance(action, jax.Array):
            action = np.asarray(action)
        if action.shape != self.shape or not jnp.issubdtype(action.dtype, jnp.integer):
            raise ValueError(
                f"action is {action.dtype}{list(action.shape)}, not int32{list(self.shape)}: one "
                f"of each part of {self}"
            )
        return jnp.asarray(action, jnp.int32)


def _as_number(action: IntScalarLike) -> Int[Array, ""]:
    return jnp.asarray(action, jnp.int32)


def _index(places: np.ndarray) -> slice | np.ndarray:
    """Returns a slice if the places are neighbors, which is cheaper, as is its gradient."""
    first, last = int(places.flat[0]), int(places.flat[-1])
    is_slice = np.array_equal(places.reshape(-1), np.arange(first, last + 1))
    return slice(first, last + 1) if is_slice else places
