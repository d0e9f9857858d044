"""Gradient steps: from minibatches of a rollout to new parameters."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Scalar

from ppo_mask.devices.sharding import mean_over_devices, shard_over_envs
from ppo_mask.errors import WrongPart, naming
from ppo_mask.jax_tools import ArrayTree, number_settings
from ppo_mask.jax_tools._loops import mean_over_parts, scan_until
from ppo_mask.jax_tools._parts import as_floats, check_changes, parts_of
from ppo_mask.networks import trainable
from ppo_mask.training._minibatches import cache_sized_parts, gather_rows
from ppo_mask.training._names import check_logged_names

Loss = Callable[..., Any]
"""A function of a model and a minibatch that returns one number and metrics by name."""

Trained = TypeVar("Trained")


def take_gradient_steps(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    model: Trained,
    opt_state: ArrayTree,
    batch: ArrayTree,
    rows: Int[Array, "gradient_steps parts rows"],
    *,
    beside: Callable[[Array], ArrayTree] | None = None,
    step_sizes: Float[Array, " gradient_steps"] | None = None,
    stop: Callable[[dict[str, Array]], Bool[Array, ""]] | None = None,
    mesh: Mesh | None = None,
) -> tuple[Trained, ArrayTree, dict[str, Float[Array, " gradient_steps"]]]:
    """Takes a gradient step on each minibatch, in turn.

    Minibatches are gathered one at a time, because a rollout may be gigabytes.

    Args:
        loss: a function ``(model, minibatch) -> (number, metrics)``, where the number is a mean
            over the minibatch. To use arrays of its own, such as hyperparameters, it must be a tree
            that holds them: a method of an ``equinox.Module``, or an ``equinox.Partial``.
        optimizer: any optax transformation.
        model: the model to train, or any other module: a tree of models, a predictor, an encoder.
        opt_state: the optimizer's state for ``trainable(model)[0]``.
        batch: any tree of arrays with axes [steps, envs, …].
        rows: the rows of each minibatch, from :func:`shuffle_rows`.
        beside: computes what a row needs of its whole minibatch, given the minibatch's row numbers:
            arrays with axes [parts, rows, …]. The loss's minibatch is then a pair of the batch's
            rows and these arrays.
        step_sizes: if given, the optimizer's result is a direction, and each step goes this far
            against it.
        stop: tells from a step's metrics whether to discard this step and all later ones.
        mesh: the devices that the environments are split over, if there are several.

    Returns:
        The model, the optimizer's state, and metrics with a number for each gradient step, 0 for
        steps not taken: those of the loss, the gradient's norm ``grad_norm``, and
        ``gradient_steps``, 1 for each step taken. :func:`mean_over_steps` makes one number of each.

    Raises:
        WrongPart: the loss does not return one number and metrics, a metric's name is taken, or a
            weight is not float32.
    """
    require_float32(model)
    params, static = trainable(model)

    def gradient(
        params: ArrayTree, fixed: Any, batch: ArrayTree, rows: Array, others: ArrayTree
    ) -> ArrayTree:
        static, loss = fixed

        def of_part(part: tuple[Array, ArrayTree]) -> ArrayTree:
            rows, others = part
            minibatch = gather_rows(batch, rows)
            minibatch = minibatch if beside is None else (minibatch, others)

            def loss_of_params(params: ArrayTree, minibatch: ArrayTree) -> Any:
                with naming("the loss"):
                    return _checked(loss(eqx.combine(params, static), minibatch))

            return jax.grad(loss_of_params, has_aux=True)(params, minibatch)

        parts = cache_sized_parts((rows, others), params, mesh)
        return mean_over_devices(mesh, mean_over_parts(of_part, parts))

    @jax.named_scope("gradient_step")  # Its name in profiles.
    def step(carry: ArrayTree, xs: tuple[Array, Array | None]) -> tuple[ArrayTree, ArrayTree]:
        params, opt_state = carry
        rows, step_size = xs
        others = () if beside is None else beside(rows)
        on_devices = shard_over_envs(mesh, gradient, (None, None, 1, 1, 1), None)
        grad, metrics = on_devices(params, (static, loss), batch, rows, others)
        with naming("the optimizer"):
            with number_settings():  # Optax relies on JAX's defaults.
                direction, opt_state = optimizer.update(grad, opt_state, params)
                if step_size is None:
                    params = optax.apply_updates(params, direction)
            if step_size is not None:
                params = jax.tree.map(lambda p, d: p - step_size * d, params, direction)
            check_changes("the optimizer", "its state", carry[1], opt_state)
        norm = optax.tree.norm(ravel_pytree(grad)[0])
        taken = {"grad_norm": norm, "gradient_steps": jnp.float32(1)}
        metrics = with_own(metrics, taken)
        names[:] = metrics
        # One output of the loop for all: each more is a kernel in every step.
        return (params, opt_state), jnp.stack([x.astype(jnp.float32) for x in metrics.values()])

    names: list[str] = []
    until = None if stop is None else lambda row: stop(dict(zip(names, row, strict=True)))
    start = params, opt_state
    (params, opt_state), table, _ = scan_until(until, step, start, (rows, step_sizes))
    metrics = dict(zip(names, table.T, strict=True))
    return eqx.combine(params, static), opt_state, metrics


def require_float32(model: Any) -> None:
    """Checks the weights of what is trained; see :func:`~ppo_mask.networks.trainable`.

    Raises:
        WrongPart: a weight has another dtype; the message names the first one.
    """
    for path, weight in jax.tree_util.tree_leaves_with_path(trainable(model)[0]):
        if weight.dtype != jnp.float32:
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            asked = "weights must be float32: make the layers with dtype=jnp.float32"
            raise WrongPart(f"{name} is {weight.dtype}, and {asked}")


def mean_over_steps(metrics: dict[str, Float[Array, " gradient_steps"]]) -> dict[str, Scalar]:
    """Averages the metrics of :func:`take_gradient_steps` over the steps taken.

    ``gradient_steps`` becomes their number; without any, all others are 0.
    """
    taken = metrics["gradient_steps"].sum()
    means = {name: x.sum() / jnp.maximum(taken, 1) for name, x in metrics.items()}
    return means | {"gradient_steps": taken}


def with_own(metrics: dict[str, Array], own: dict[str, Array]) -> dict[str, Array]:
    """Adds an algorithm's own metrics to those of its loss.

    Raises:
        ValueError: a metric of the loss has the name of another.
    """
    check_logged_names(metrics, own)
    return metrics | own


def _checked(result: Any) -> tuple[Scalar, dict[str, Scalar]]:
    """Checks the result of a loss, and converts its numbers to arrays."""
    wanted = "the loss must return a pair: one number, and metrics by name"
    number, metrics = parts_of(wanted, result, 2)
    number = as_floats(number, (), f"{wanted}; the number is")
    return number, numbers(metrics, wanted)


def numbers(metrics: Any, wanted: str) -> dict[str, Scalar]:
    """Checks metrics by name, and converts them to arrays of floats.

    Raises:
        WrongPart: the metrics are no dictionary, or one of them is not one number; the message
            begins with ``wanted``.
    """
    if not isinstance(metrics, dict):
        raise WrongPart(f"{wanted}; it returned a {type(metrics).__name__}")
    named: dict[str, Any] = cast(Any, metrics)
    return {name: as_floats(x, (), f"{wanted}; the metric {name} is") for name, x in named.items()}
