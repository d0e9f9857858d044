"""Running mean and variance, of observations and of returns."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

_EPSILON = 1e-8
_LIMIT = 10.0


class RunningMoments(eqx.Module):
    """The elementwise mean and variance of all arrays so far.

    Batches are merged as in Chan, Golub and LeVeque (1983). Each merge is a weighted mean, not a
    growing sum; only the count grows. In float32 the count stops growing after 2²⁴ batches; from
    then on, older batches slowly lose weight.

    Args:
        shape: the shape of one array.

    Attributes:
        mean: 0 at first.
        variance: the population variance; 1 at first.
        count: number of arrays.
    """

    mean: Float[Array, "*shape"]
    variance: Float[Array, "*shape"]
    count: Float[Array, ""]

    def __init__(self, shape: Sequence[int]):
        self.mean = jnp.zeros(tuple(shape), jnp.float32)
        self.variance = jnp.ones(tuple(shape), jnp.float32)
        self.count = jnp.zeros((), jnp.float32)

    @property
    def deviation(self) -> Float[Array, "*shape"]:
        """Standard deviation; never quite 0, so that divisions by it are safe."""
        return jnp.sqrt(self.variance + _EPSILON)

    def update(self, batch: Float[Array, "batch *shape"]) -> "RunningMoments":
        """Merges a batch into the moments."""
        batch = batch.astype(jnp.float32)
        # Two passes: the second pass corrects the rounding error of the first mean.
        mean = batch.mean(axis=0)
        residual = batch - mean[None]
        correction = residual.mean(axis=0)
        mean = mean + correction
        variance = jnp.maximum(jnp.square(residual).mean(axis=0) - jnp.square(correction), 0)

        count = self.count + batch.shape[0]
        weight = batch.shape[0] / count
        shift = mean - self.mean
        spread = weight * (1 - weight) * jnp.square(shift)
        new = (
            self.mean + weight * shift,
            (1 - weight) * self.variance + weight * variance + spread,
            count,
        )
        return eqx.tree_at(lambda m: (m.mean, m.variance, m.count), self, new)

    def standardize(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Shifts and scales to mean 0 and variance 1, and clips to ±10."""
        scaled = (x.astype(jnp.float32) - self.mean) / self.deviation
        return jnp.clip(scaled, -_LIMIT, _LIMIT).astype(x.dtype)
