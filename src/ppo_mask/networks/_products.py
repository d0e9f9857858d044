"""Matrix products in bfloat16 that have products in bfloat16 as their gradient, too.

JAX's own gradient multiplies float32 by bfloat16, for which XLA converts both to float32.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, BFloat16, Float32

from ppo_mask.jax_tools import by_platform


def bfloat16_product(
    x: BFloat16[Array, "*batch n_in"], weight: BFloat16[Array, "n_out n_in"]
) -> Float32[Array, "*batch n_out"]:
    """Computes ``x · weightᵀ``, and sums in float32.

    A primitive of its own, since its gradient for a batch needs the whole batch: ``jax.vmap`` of a
    ``jax.custom_vjp`` would compute a gradient of the weights for each row.
    """
    return _product.bind(x, weight)


def _multiply(x: Array, y: Array) -> Array:
    return jnp.matmul(x, y, preferred_element_type=jnp.float32)


def _compute(x: Array, weight: Array) -> Array:
    return _multiply(x, weight.T)


def _compute_on_cpu(x: Array, weight: Array) -> Array:
    return _multiply(x, _transpose_in_memory(weight))


def _transpose_in_memory(x: Array) -> Array:
    """Transposes a matrix in memory.

    XLA's CPU compiler uses a CPU's instructions for bfloat16 only if both factors lie in memory in
    the order of the product. It would make a transpose a part of the product, but does not look
    into a conditional.
    """
    always = x[0, 0] == x[0, 0]  # But for NaN, which stays NaN.
    return jax.lax.cond(always, jnp.transpose, lambda x: jnp.full_like(x.T, jnp.nan), x)


def _shape(x: ShapedArray, weight: ShapedArray) -> ShapedArray:
    return ShapedArray((*x.shape[:-1], weight.shape[0]), jnp.float32)


def _gradient_of_x(cotangent: Array, x: Any, weight: Array) -> Array:
    return _multiply(cotangent.astype(weight.dtype), weight).astype(weight.dtype)


def _gradient_of_weight(cotangent: Array, x: Array, weight: Any) -> Array:
    n_out, n_in = weight.aval.shape
    rows = cotangent.astype(x.dtype).reshape(-1, n_out)
    columns = by_platform(_transpose_in_memory, jnp.transpose, rows)
    return _multiply(columns, x.reshape(-1, n_in)).astype(x.dtype)


def _batch(factors: tuple[Array, Array], axes: tuple[Any, Any]) -> tuple[Array, int]:
    x, weight = factors
    if axes[1] is None:
        return bfloat16_product(jnp.moveaxis(x, axes[0], 0), weight), 0
    return jax.vmap(_compute, axes)(x, weight), 0


_product = Primitive("bfloat16_product")
_product.def_impl(jax.jit(bfloat16_product))
_product.def_abstract_eval(_shape)
_lower = partial(mlir.lower_fun, multiple_results=False)
mlir.register_lowering(_product, _lower(_compute))
mlir.register_lowering(_product, _lower(_compute_on_cpu), platform="cpu")
ad.defbilinear(_product, _gradient_of_x, _gradient_of_weight)
batching.primitive_batchers[_product] = _batch
