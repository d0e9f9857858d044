"""The linear layers of the library's networks, also for custom networks."""

import math
from typing import Any, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from ppo_mask.envs._shapes import require_env, trace_call
from ppo_mask.jax_tools import ArrayTree, flat_numbers
from ppo_mask.networks._products import bfloat16_product

Activation: TypeAlias = Literal["tanh", "relu", "gelu"]

_EPSILON = 1e-5  # added to a variance, as in Flax and PyTorch


def linear(n_in: int, n_out: int, gain: float, key: Key[Array, ""]) -> eqx.nn.Linear:
    """Makes a layer with orthogonal weights (Saxe et al. 2014, arXiv:1312.6120) and biases of 0.

    Args:
        n_in: size of the input.
        n_out: size of the output.
        gain: factor on the orthogonal matrix; √2 is common before a tanh.
        key: the random key of the weights.
    """
    # Compiling the random numbers takes longest. It takes less along one axis, and small layers
    # draw the same number, to share a program.
    numbers = jax.random.normal(key, (max(n_out * n_in, 4096),), jnp.float32)
    return layer_of(_orthogonal(numbers, n_out, n_in, jnp.float32(gain)))


def layer_of(weight: Float[Array, "n_out n_in"]) -> eqx.nn.Linear:
    """Makes a layer with given weights and biases of 0."""
    n_out, n_in = weight.shape
    layer = eqx.filter_eval_shape(lambda: eqx.nn.Linear(n_in, n_out, key=jax.random.key(0)))
    bias = jnp.asarray(np.zeros(n_out, np.float32))  # Compiles nothing, which jnp.zeros would.
    return eqx.tree_at(lambda x: (x.weight, x.bias), layer, (weight, bias))


def affine(
    layer: eqx.nn.Linear, x: Float[Array, "*batch n_in"], gain: float = 1.0
) -> Float[Array, "*batch n_out"]:
    """Applies a layer: ``gain · weight · x + bias``.

    Products have the weights' dtype; the sums of products, and the result, are float32 or wider.

    Args:
        layer: a layer with a bias, such as one from :func:`linear`.
        x: a vector, or a batch of vectors with any number of axes before the last.
        gain: factor on the weights; scaling a batch of ``x`` would cost more.
    """
    assert layer.bias is not None
    weight = layer.weight if gain == 1 else gain * layer.weight
    sums = _type_of_sums(weight)
    x = x.astype(weight.dtype)
    bias = jnp.expand_dims(layer.bias.astype(sums), tuple(range(x.ndim - 1)))
    if weight.dtype == jnp.bfloat16:
        return bfloat16_product(x, weight) + bias
    transposed = weight.T
    if len(transposed) < len(weight):
        # Without it, XLA's CPU code for the gradient of 64 × 4 weights takes 77 µs instead of 10.
        transposed = jax.lax.optimization_barrier(transposed)
    return jnp.matmul(x, transposed, preferred_element_type=sums) + bias


def activate(
    layer: eqx.nn.Linear,
    x: Float[Array, " n_in"],
    layer_norm: bool,
    activation: Activation = "tanh",
) -> Float[Array, " n_out"]:
    """Applies a layer and an activation.

    With ``layer_norm``, the weights of each input, and the biases, are shifted to mean 0 over the
    outputs, so that the outputs have mean 0. Shifting the outputs instead would cost more: a batch
    of outputs has more numbers than the weights, and outputs and gradients would be read once more.

    Args:
        layer: a layer with a bias, such as one from :func:`linear`.
        x: one vector.
        layer_norm: whether to normalize the outputs to mean 0 and variance 1 before the activation.
        activation: "tanh", "relu" or "gelu".
    """
    act = getattr(jax.nn, activation)
    if not layer_norm:
        return act(affine(layer, x))
    centered = jax.tree.map(_centered, layer)
    x = affine(centered, x)
    # Not jnp.square: for its gradient, XLA's CPU compiler calls a slow library function.
    variance = (x * x).sum() * (1 / x.size)
    return act(x * jax.lax.rsqrt(variance + _EPSILON))


def _centered(parameters: Float[Array, "n_out *n_in"]) -> Float[Array, "n_out *n_in"]:
    wide = parameters.astype(_type_of_sums(parameters))
    return (wide - wide.mean(axis=0, keepdims=True)).astype(parameters.dtype)


def _type_of_sums(x: Array) -> Any:
    return max(x.dtype, jnp.dtype(jnp.float32), key=lambda dtype: dtype.itemsize)


def check_sizes(network: Any, *names: str) -> None:
    """Checks the sizes of a network.

    Args:
        network: any object with the attributes that ``names`` lists.
        names: names of attributes that are sizes, or tuples of sizes.

    Raises:
        ValueError: a size is below 1; the message names the size.
    """
    for name in names:
        size: int | tuple[int, ...] = getattr(network, name)
        if (min(size, default=0) if isinstance(size, tuple) else size) < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def as_vector(inputs: ArrayTree, size: int) -> Float[Array, " size"]:
    """Joins a network's inputs into one vector of floats.

    Raises:
        ValueError: there are more or fewer numbers than the network takes.
    """
    x = flat_numbers(inputs)
    if x.size != size:
        hint = "ppo_mask.network_for(env, key=key) makes one that fits"
        raise ValueError(f"the network takes {size} numbers, got {x.size}; {hint}")
    return x


def observation_shapes(env: Any) -> Any:
    """Traces ``reset``, and returns the shapes and dtypes of an environment's observation.

    Raises:
        ValueError: the observation has no numbers, or an array that is not numeric.
        RunError: ``env`` is not an environment, or its ``reset`` breaks the protocol.
    """
    require_env(env)
    observation = trace_call("reset", env.reset, jax.random.key(0))[1].observation
    for path, leaf in jax.tree_util.tree_leaves_with_path(observation):
        if not (jnp.issubdtype(leaf.dtype, jnp.number) or leaf.dtype == bool):
            name = jax.tree_util.keystr(path)
            raise ValueError(f"observation{name} is {leaf.dtype}: a network takes numbers")
    if size_of(observation) == 0:
        raise ValueError("the observation has no numbers: a network has nothing to look at")
    return observation


def size_of(observation: Any) -> int:
    """Counts the elements of an observation's arrays or ``ShapeDtypeStruct`` leaves."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(observation))


@eqx.filter_jit  # Takes seconds if each operation is compiled alone.
def _orthogonal(
    numbers: Float[Array, " n"], rows: int, columns: int, gain: Float[Array, ""]
) -> Float[Array, "rows columns"]:
    # Several seeds run in turn: XLA's CPU runtime computes a batch of decompositions on the threads
    # that wait for the batch, so on two cores two batches would wait for each other forever.
    @jax.custom_batching.sequential_vmap
    def decompose(numbers: Array) -> Array:
        # What jax.nn.initializers.orthogonal does with its numbers.
        sides = max(rows, columns), min(rows, columns)
        q, r = jnp.linalg.qr(numbers[: math.prod(sides)].reshape(sides))
        q *= jnp.sign(jnp.diagonal(r))[None]
        return q.T if rows < columns else q

    return gain * decompose(numbers)
