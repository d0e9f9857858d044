"""Conditionals that stay cheap under ``vmap``.

``jax.vmap`` turns ``lax.cond`` into ``select``: both branches run for every member of the batch.
An expensive branch that is seldom taken, such as generating a new level, then runs at full cost on
every step. :func:`rarely` gathers the few members that need the branch, runs the branch on these
alone, a fixed number at a time, and scatters the results back. When no member needs the branch,
the branch does not run.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, ArrayLike, Bool, Int, Shaped, UInt32

from ppo_mask.jax_tools._programs import by_platform, keep_settings

Operand = TypeVar("Operand")
Result = TypeVar("Result")

_MIN_CHUNK = 16  # enough members to fill vector lanes
_MAX_COST, _INDEX_BITS = 255, 23
_NOBODY = np.uint32(0xFFFFFFFF)


def rarely(
    pred: Bool[Array, ""],
    true_fun: Callable[[Operand], Result],
    operand: Operand,
    otherwise: Result,
    share: int = 32,
    cost: Int[Array, ""] | int = 0,
    short: bool = False,
) -> Result:
    """A conditional for expensive, seldom needed work, which stays cheap under ``vmap``.

    The result is that of ``lax.cond(pred, true_fun, lambda _: otherwise, operand)``, batched or
    not. Under ``vmap``, ``true_fun`` runs only for members whose ``pred`` holds, in chunks of fixed
    size; padding fills the last chunk. Not differentiable in reverse mode.

    Args:
        pred: whether to run ``true_fun``.
        true_fun: a pure function that closes over no traced value; ``operand`` has all its inputs.
        operand: the argument of ``true_fun``, a tree of arrays. Arrays that are also in
            ``otherwise`` are changed in place, without a copy.
        otherwise: the result where ``pred`` is False, structured as the result of ``true_fun``.
        share: the size of a chunk is the batch's size divided by ``share``, but at least 16. Choose
            ``share`` so that about one member in ``share`` needs ``true_fun`` in a call.
        cost: 0 to 255, higher for members whose loops in ``true_fun`` run longer. Members of
            similar cost share a chunk, so that short loops do not wait for long ones.
        short: whether ``true_fun`` ends soon for every member. An accelerator then runs
            ``true_fun`` for all members, because gathering a few members would take longer.

    Returns:
        A tree of the structure of ``otherwise``.

    Raises:
        ValueError: a batch has more than 2²³ members.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> @jax.vmap
        ... def refill(stock):
        ...     return pm.rarely(stock == 0, lambda x: x + 10, stock, otherwise=stock)
        >>> print(refill(jnp.array([3, 0, 5])))
        [ 3 10  5]
    """

    given, structure = jax.tree.flatten(operand)
    base = jax.tree.leaves(otherwise)
    # An array that is also in `otherwise` is read from the array of results, without a copy. A
    # member's entry there has its old value until `true_fun` runs for this member.
    places = [next((i for i, x in enumerate(base) if x is leaf), None) for leaf in given]
    in_place = [i for i in places if i is not None]

    @jax.jit  # Traced once, for the unbatched and the batched form.
    @keep_settings  # The settings may differ when the caller's program is batched.
    def run(*leaves: Any) -> Result:
        shared, others = iter(leaves[: len(in_place)]), iter(leaves[len(in_place) :])
        ordered = [next(others if i is None else shared) for i in places]
        return true_fun(jax.tree.unflatten(structure, ordered))

    @custom_vmap
    def single(pred: Any, cost: Any, otherwise: Any, *leaves: Any) -> Any:
        del cost
        base = jax.tree.leaves(otherwise)
        shared = (base[i] for i in in_place)
        return jax.lax.cond(pred, run, lambda *_: otherwise, *shared, *leaves)

    @single.def_vmap
    def _(size: int, batched: Any, pred: Any, cost: Any, otherwise: Any, *leaves: Any) -> Any:  # pyright: ignore
        # Arrays that all members share, such as parameters, are neither copied nor gathered.
        per_member = tuple(batched[3:])
        own = _broadcast(size, tuple(batched[:3]), (pred, cost, otherwise))
        out = _batch(run, in_place, per_member, share, short)(*own, *leaves)
        return out, jax.tree.map(lambda _: True, out)

    leaves = (leaf for leaf, i in zip(given, places, strict=True) if i is None)
    # With a Python number as cost, all members cost the same, and their order does not matter.
    costs = None if isinstance(cost, int) else jnp.asarray(cost, jnp.int32)
    return single(pred, costs, otherwise, *leaves)


def one_for_all(pick: Callable[[Array], Array], value: Shaped[Array, ""]) -> Shaped[Array, ""]:
    """Reduces a batch's values to one shared value; outside of ``jax.vmap`` returns ``value``.

    Under ``vmap``, a loop or branch should have one condition for the whole batch. If each member
    has its own condition, ``vmap`` runs every branch, and adds a select to every iteration of a
    loop. Nested ``vmap`` works, too.

    Args:
        pick: reduces the vector of a batch's values to a scalar of the same dtype, as ``jnp.any``
            does for booleans.
        value: the value of one member.
    """

    @custom_vmap
    def shared(value: Any) -> Any:
        return value

    @shared.def_vmap
    def _(size: int, batched: Any, values: Any) -> Any:  # pyright: ignore
        del size, batched
        return one_for_all(pick, pick(values)), False

    return shared(value)


def _batch(
    run: Callable[..., Any],
    in_place: list[int],
    per_member: tuple[bool, ...],
    share: int,
    short: bool,
) -> Callable[..., Any]:
    """Returns the function that evaluates :func:`rarely` for a whole batch.

    The function's argument ``leaves[i]`` has a batch axis if ``per_member[i]`` is True.
    """
    axes = [0] * len(in_place) + [0 if own else None for own in per_member]

    def arguments(out: Any, leaves: Any) -> list[Any]:
        base = jax.tree.leaves(out)
        return [*(base[i] for i in in_place), *leaves]

    def all_at_once(pred: Any, cost: Any, otherwise: Any, *leaves: Any) -> Any:
        del cost
        new = jax.vmap(run, axes, axis_size=pred.size)(*arguments(otherwise, leaves))

        def choose(old: Array, new: Array) -> Array:
            return jnp.where(pred.reshape(-1, *(1 for _ in old.shape[1:])), new, old)

        return jax.tree.map(choose, otherwise, new)

    def in_chunks(pred: Any, cost: Any, otherwise: Any, *leaves: Any) -> Any:
        batch = pred.size
        chunk = min(batch, max(_MIN_CHUNK, batch // share))
        if chunk == batch:  # Nothing to pick.
            operands = (pred, cost, otherwise, *leaves)
            return jax.lax.cond(pred.any(), all_at_once, lambda *_: otherwise, *operands)

        def some_left(carry: Any) -> Array:
            served, waiting, _ = carry
            return waiting[served] != _NOBODY

        def serve(carry: Any) -> Any:
            # `waiting` is in the carry, so that XLA does not compute it again for each use.
            served, waiting, out = carry
            rows = _rows(jax.lax.dynamic_slice(waiting, (served,), (chunk,)), batch)
            # Padding gets the last member's arguments, and the results of padding are dropped.
            picked = jnp.minimum(rows, batch - 1)
            args = [
                x if axis is None else x.at[picked].get(mode="promise_in_bounds")
                for x, axis in zip(arguments(out, leaves), axes, strict=True)
            ]
            new = jax.vmap(run, axes, axis_size=chunk)(*args)
            out = jax.tree.map(lambda o, n: o.at[rows].set(n, mode="drop"), out, new)
            return served + chunk, waiting, out

        begin = (jnp.uint32(0), _waiting(pred, cost, padding=chunk), otherwise)
        return jax.lax.while_loop(some_left, serve, begin)[2]

    @custom_vmap
    def many(pred: Any, cost: Any, otherwise: Any, *leaves: Any) -> Any:
        elsewhere = all_at_once if short else in_chunks
        return by_platform(in_chunks, elsewhere, pred, cost, otherwise, *leaves)

    @many.def_vmap
    def _(size: int, batched: Any, *args: Any) -> Any:  # pyright: ignore
        shared_batched = any(b for b, own in zip(batched[3:], per_member, strict=True) if not own)
        own = (True, True, True, *per_member)
        spread = (shared_batched or o for o in own)
        args = tuple(
            _broadcast(size, b, x) if s else x
            for s, b, x in zip(spread, batched, args, strict=True)
        )
        if shared_batched:  # Batches whose shared values differ, such as seeds, run in turn.
            out = jax.lax.map(lambda each: many(*each), args)
        else:  # A batch of batches becomes one larger batch.
            members = args[0].shape[1]
            flat = (
                jax.tree.map(lambda x: x.reshape(size * members, *x.shape[2:]), x) if o else x
                for o, x in zip(own, args, strict=True)
            )
            out = jax.tree.map(lambda x: x.reshape(size, members, *x.shape[1:]), many(*flat))
        return out, jax.tree.map(lambda _: True, out)

    return many


def _broadcast(size: int, batched: Any, tree: Any) -> Any:
    def spread(x: ArrayLike, batched: bool) -> Array:
        # A constant arrives as a NumPy value if a loop around the call is batched.
        x = jnp.asarray(x)
        return x if batched else jnp.broadcast_to(x, (size, *x.shape))

    return jax.tree.map(spread, tree, batched)


def _waiting(
    pred: Bool[Array, " batch"], cost: Int[Array, " batch"] | None, padding: int
) -> UInt32[Array, " padded"]:
    """Sorts the members for which ``pred`` holds, costly ones first; the rest is ``_NOBODY``.

    Each word of the result holds a member's cost and index, so that one sort of one array is
    enough. :func:`_rows` extracts the index.
    """
    batch = pred.shape[0]
    if batch > 1 << _INDEX_BITS:
        raise ValueError(f"a batch may have {1 << _INDEX_BITS:,} members at most, got {batch:,}")
    rank = np.arange(batch, dtype=np.uint32)
    if cost is not None:
        cheapness = (_MAX_COST - jnp.clip(cost, 0, _MAX_COST)).astype(jnp.uint32)
        rank = cheapness << _INDEX_BITS | rank
    rank = jnp.pad(jnp.where(pred, rank, _NOBODY), (0, padding), constant_values=_NOBODY)
    return jax.lax.sort(rank, is_stable=False)


def _rows(waiting: UInt32[Array, " n"], batch: int) -> UInt32[Array, " n"]:
    """Extracts the indices from :func:`_waiting`'s words; ``_NOBODY`` becomes ``batch``."""
    return jnp.where(waiting == _NOBODY, batch, waiting & ((1 << _INDEX_BITS) - 1))
