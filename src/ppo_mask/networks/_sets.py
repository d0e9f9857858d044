"""Sets of candidates: a reader that finds them, and a network that scores each candidate."""

import itertools
import math
from typing import Any, TypeAlias, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.nn import standardize
from jaxtyping import Array, Bool, Float, Key

from ppo_mask.envs.actions import Actions, NumActions
from ppo_mask.jax_tools import ArrayTree, flat_numbers
from ppo_mask.jax_tools._trees import plain_dicts
from ppo_mask.networks._actor_critic import AbstractActorCritic
from ppo_mask.networks._distribution import AbstractMaskedDistribution, masked_distribution
from ppo_mask.networks._reader import AbstractReader
from ppo_mask.networks.layers import Activation, affine, check_sizes, linear

Sets: TypeAlias = tuple[tuple[str | None, ...], ...]
"""For each set, the names of its arrays, and last that of its mask; None if all are there."""


@final
class SetReader(AbstractReader):
    """Reads observations in which some arrays describe the elements of sets, such as items.

    The arrays of a set have an axis of its elements first. Their numbers are joined to one vector
    of features for each element, as they are: large integers had better be scaled before. A mask
    says which elements are there. What belongs to no set becomes a vector, but for an array called
    ``action_mask``, which a network gets in any case.

    Attributes:
        sets: for each set, the names of its arrays, and last the name of its mask, or None if all
            elements are always there. A name is that of an entry of the observation: an array or,
            but for a mask, a tree of arrays.

    Example:
        >>> import jax.numpy as jnp, ppo_mask as pm
        >>> observation = {
        ...     "items": {"size": jnp.array([1.0, 2.0]), "price": jnp.array([3.0, 4.0])},
        ...     "is_there": jnp.array([True, False]),
        ...     "room": jnp.array(5.0),
        ... }
        >>> reader = pm.networks.SetReader((("items", "is_there"),))
        >>> ((items, is_there),), rest = reader.join(reader.features(observation))
        >>> items.tolist()
        [[3.0, 1.0], [4.0, 2.0]]
        >>> is_there.tolist(), rest.tolist()
        ([True, False], [5.0])
    """

    sets: Sets = eqx.field(static=True)

    def features(self, observation: ArrayTree) -> dict[str, list[Array]]:
        """Names the arrays, and leaves out the ``action_mask`` unless it belongs to a set."""
        named, arrays = set(itertools.chain(*self.sets)), by_name(observation).items()
        return {name: x for name, x in arrays if name != "action_mask" or name in named}

    def join(self, numbers: ArrayTree) -> Any:
        """Joins the arrays of each set, and those that belong to none.

        Returns:
            A tuple with each set's features ``[elements, features]`` and mask ``[elements]``; and a
            vector.

        Raises:
            ValueError: the observation has no array of a name, or a set's arrays do not fit.
        """
        named = set(itertools.chain(*self.sets))
        rest = [numbers[name] for name in sorted(numbers) if name not in named]
        return tuple(_join(numbers, *names) for names in self.sets), flat_numbers(rest)


def by_name(observation: Any) -> dict[str, list[Any]]:
    """Lists the arrays in each entry of an observation."""
    found: dict[str, list[Any]] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(plain_dicts(observation)):
        found.setdefault(jax.tree_util.keystr(path[:1], simple=True), []).append(leaf)
    return found


def _join(arrays: dict[str, list[Array]], *names: str | None) -> tuple[Array, Array]:
    """Joins the arrays of one set; the last name is that of its mask."""
    for name in names:
        if name is not None and name not in arrays:
            raise ValueError(f"the observation has no {name!r}; it has {', '.join(arrays)}")
    features = [x for name in names[:-1] for x in arrays[name or ""]]
    mask = names[-1]
    valid = jnp.ones(features[0].shape[:1], bool) if mask is None else arrays[mask][0]
    if valid.ndim != 1 or valid.dtype != bool or {x.shape[:1] for x in features} != {valid.shape}:
        shapes = ", ".join(f"{x.dtype}{list(x.shape)}" for x in (*features, valid))
        raise ValueError(f"{names} are no set, whose arrays have one length, and a mask: {shapes}")
    columns = [x.astype(jnp.float32).reshape(len(valid), -1) for x in features]
    return jnp.concatenate(columns, axis=-1), valid


@final
class SetActorCritic(AbstractActorCritic):
    """Scores the elements of sets: an action is one of them, a pair of two sets', or several.

    Each element's features, with the rest of the observation, become a vector. In each block, one
    head of attention looks at the elements of the same set, and one at those of the other sets
    (if there are none, at the same again); then an MLP follows, as in a transformer (Vaswani et al.
    2017, arXiv:1706.03762) whose inputs are normalized first, without learned scale and offset.
    Scores are those of a pointer network (Vinyals et al. 2015, arXiv:1506.03134). The value is that
    of the means over each set's elements.

    What an action is follows from ``num_actions``:

    - a number of at least n · m, where the first two sets have n and m elements: action
      ``i * m + j`` is the pair (i, j). Its score is a product of the two elements' vectors. An
      element attends only to those elements of the other set with which the mask allows a pair.
    - another number of at least n: action ``i`` is element i of the first set.
    - several parts: part k is an element of set k, and has as many choices.
    - n parts of equal size, at least m: an assignment. Part ``i`` says what element i of the first
      set gets, and its choice ``j`` is the pair (i, j).

    Actions beyond the elements or pairs are scored from the pooled sets; in an assignment, the
    choices of part ``i`` beyond m, such as "nothing", from the vector of element i.

    An element that is not there changes no probability of another and no value, to the bit;
    permuting the elements of a set permutes the probabilities. The policy starts nearly uniform.

    Args:
        key: the random key of the initial weights.

    Attributes:
        set_shapes: for each set, the number of elements and of features.
        rest_size: number of entries in the rest of the observation.
        num_actions: number of actions; if MultiDiscrete, a number for each part.
        hidden_dim: size of an element's vector.
        num_layers: number of blocks.
        activation: of the MLPs: "tanh", "relu" or "gelu".
        embeddings: for each set, the layer of the features.
        context: the layer of the rest of the observation.
        blocks: for each block, the layers before and after the attention, and those of the MLP.
        pointers: for each set, the layer of the vectors that are multiplied, or that gives a score.
        others: the head of the actions, or of each part's choices, that are no elements.
        critic: the value's head.

    Raises:
        ValueError: a size is below 1, or the actions are no elements of the sets.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> network = pm.SetActorCritic(((3, 2),), 1, num_actions=3, key=jax.random.key(0))
        >>> items, is_there = jnp.ones((3, 2)), jnp.array([True, True, False])
        >>> distribution, value = network((((items, is_there),), jnp.ones(1)), is_there)
        >>> print(distribution.probs.round(1))
        [0.5 0.5 0. ]
    """

    set_shapes: tuple[tuple[int, int], ...] = eqx.field(static=True)
    rest_size: int = eqx.field(static=True)
    num_actions: NumActions = eqx.field(static=True)
    hidden_dim: int = eqx.field(static=True)
    num_layers: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)
    embeddings: tuple[eqx.nn.Linear, ...]
    context: eqx.nn.Linear
    blocks: tuple[tuple[eqx.nn.Linear, ...], ...]
    pointers: tuple[eqx.nn.Linear, ...]
    others: eqx.nn.Linear | None
    critic: eqx.nn.Linear

    def __init__(
        self,
        set_shapes: tuple[tuple[int, int], ...],
        rest_size: int,
        num_actions: NumActions,
        hidden_dim: int = 64,
        num_layers: int = 2,
        activation: Activation = "tanh",
        *,
        key: Key[Array, ""],
    ):
        self.set_shapes, self.rest_size, self.num_actions = set_shapes, rest_size, num_actions
        self.hidden_dim, self.num_layers, self.activation = hidden_dim, num_layers, activation
        check_sizes(self, "num_actions", "hidden_dim", "num_layers")
        are_pairs, is_assignment, count = self._layout
        parts = len(Actions.of(num_actions).sizes)
        keys = iter(jax.random.split(key, 2 * len(set_shapes) + 4 * num_layers + 4))

        def layer(n_in: int, n_out: int, gain: float) -> eqx.nn.Linear:
            return linear(n_in, n_out, gain, next(keys))

        size, half = hidden_dim, -(-hidden_dim // 2)
        self.embeddings = tuple(layer(n, size, 1.0) for _, n in set_shapes)
        self.context = layer(rest_size + 1, size, 1.0)
        of_block = (size, 6 * half, 6**0.5), (2 * half, size, 0.5), (size, 2 * size, 2**0.5)
        of_block = *of_block, (2 * size, size, 0.5)
        self.blocks = tuple(tuple(layer(*x) for x in of_block) for _ in range(num_layers))
        widths = [(size, 0.01), (size, 1.0)] if are_pairs else [(1, 0.01)] * parts
        self.pointers = tuple(layer(size, *x) for x in widths)
        pooled = (len(set_shapes) + 1) * size
        seen = size if is_assignment else pooled
        self.others = layer(seen, count, 0.01) if count else None
        self.critic = layer(pooled, 1, 1.0)

    def __call__(
        self, observation: Any, action_mask: Bool[Array, " actions"]
    ) -> tuple[AbstractMaskedDistribution, Float[Array, ""]]:
        sets, rest = observation
        given = tuple(x.shape for x, _ in sets), rest.size
        if given != (wanted := (self.set_shapes, self.rest_size)):
            raise ValueError(f"the network takes sets, and other numbers, of {wanted}, got {given}")
        act, valid = getattr(jax.nn, self.activation), [valid for _, valid in sets]
        are_pairs, is_assignment, count = self._layout
        sees = [[jnp.broadcast_to(y, (len(x), len(y))) for y in valid] for x in valid]
        if are_pairs:  # An element sees those with which the mask allows a pair.
            rows, columns = sees[0][1].shape
            each = columns + count * is_assignment
            allowed = action_mask[: rows * each].reshape(rows, each)[:, :columns]
            sees[0][1], sees[1][0] = sees[0][1] & allowed, sees[1][0] & allowed.T
        bias = jax.tree.map(lambda x: jnp.where(x, 0.0, -1e9), sees)
        # One more number is 1: else normalizing would hide the size of an element's features.
        context = affine(self.context, jnp.append(rest, 1))
        elements = [
            standardize(affine(layer, jnp.where(valid[:, None], x, 0)) + context)
            for layer, (x, valid) in zip(self.embeddings, sets, strict=True)
        ]
        for before, after, hidden, out in self.blocks:
            mixed = _attend([affine(before, standardize(x)) for x in elements], bias)
            elements = [x + affine(after, y) for x, y in zip(elements, mixed, strict=True)]
            elements = [x + affine(out, act(affine(hidden, standardize(x)))) for x in elements]
        elements = [standardize(x) for x in elements]
        sums = [there.astype(x.dtype) @ x for x, there in zip(elements, valid, strict=True)]
        means = [x / jnp.maximum(there.sum(), 1) for x, there in zip(sums, valid, strict=True)]
        pooled = jnp.concatenate([*means, context])
        scores = [affine(layer, x) for layer, x in zip(self.pointers, elements, strict=False)]
        if are_pairs:
            scores = [scores[0] @ scores[1].T * self.hidden_dim**-0.5]
        if self.others is not None:
            scores.append(affine(self.others, elements[0] if is_assignment else pooled))
        flat = scores if is_assignment else [x.reshape(-1) for x in scores]
        logits = jnp.concatenate(flat, axis=-1).reshape(-1)
        distribution = masked_distribution(logits, action_mask, self.num_actions)
        return distribution, affine(self.critic, pooled)[0]

    @property
    def _layout(self) -> tuple[bool, bool, int]:
        """Whether actions are pairs, whether parts assign them, and how many others there are.

        In an assignment, the others are those of each part.
        """
        lengths, actions = [n for n, _ in self.set_shapes], Actions.of(self.num_actions)
        (each, *_), parts, has_two = actions.sizes, len(actions.sizes), len(lengths) > 1
        if not actions.has_parts:
            count = math.prod(lengths[:2])
            if has_two and count <= each:
                return True, False, each - count
            if lengths[0] <= each:
                return False, False, each - lengths[0]
        elif actions.sizes == tuple(lengths[:parts]):
            return False, False, 0
        elif has_two and actions.sizes == (each,) * lengths[0] and lengths[1] <= each:
            return True, True, each - lengths[1]
        raise ValueError(
            f"{actions} do not fit sets of {lengths} elements: an action is one of the first set "
            "or a pair of the first two; or each part is one of a set of its own, or one of the "
            "second set for each of the first"
        )


def _attend(projected: list[Array], bias: list[list[Array]]) -> list[Array]:
    """Attends to the elements of the same set, and to those of the other sets, with a head each."""

    def mean(q: Array, k: Array, v: Array, bias: Array) -> Array:
        scores = q @ k.T * q.shape[-1] ** -0.5 + bias
        # Where none is seen, all weigh the same, and what is not there has no features.
        weights = jnp.exp(scores - jax.lax.stop_gradient(scores.max(-1, keepdims=True)))
        return weights @ v / weights.sum(-1, keepdims=True)

    heads, mixed = [jnp.split(x, 6, axis=-1) for x in projected], list[Array]()
    for i, (q, k, v, q_others, *_) in enumerate(heads):
        others = [j for j in range(len(heads)) if j != i] or [i]
        keys, values = (jnp.concatenate([heads[j][part] for j in others]) for part in (4, 5))
        seen = jnp.concatenate([bias[i][j] for j in others], axis=-1)
        across = mean(q_others, keys, values, seen)
        mixed.append(jnp.concatenate([mean(q, k, v, bias[i][i]), across], axis=-1))
    return mixed
