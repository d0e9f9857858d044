"""Remakes a trained policy, to train on from it: wider, aware of time, or surer of its actions.

python examples/remake_policy.py checkpoints/mine wider --widen 2
hackmatrix train --initial-policy wider --hidden-dim 512
"""

import argparse
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

import ppo_mask as pm
from hackmatrix.networks import PlayerCenteredMLP
from hackmatrix.networks.features import NUM_FEATURES, NUM_FEATURES_WITH_TIME
from hackmatrix.play.agents import NETWORKS
from hackmatrix.task import TASK
from ppo_mask.errors import RunError
from ppo_mask.networks.layers import layer_of

Layers = tuple[eqx.nn.Linear, ...]


def widen(mlp: pm.MLPActorCritic, factor: int, key: Key[Array, ""]) -> pm.MLPActorCritic:
    """An MLP of more hidden units that computes the same.

    This is Net2Net's widening (Chen et al. 2016, arXiv:1511.05641).

    Every hidden unit is there ``factor`` times. Each copy has a random share of the weights that
    the unit gave its value on with, so that the copies learn different things from now on.

    Args:
        mlp: the network. Its layers may be normalized: copies change neither mean nor variance.
        factor: times that it becomes as wide.
        key: draws the shares.
    """
    shared, layers = mlp.shared_layers, mlp.num_layers
    keys = jax.random.split(key, 3)
    return _with_layers(
        mlp,
        _widen_layers(mlp.trunk, factor, 0, layers, keys[0]),
        _widen_layers(mlp.actor, factor, shared, layers, keys[1]),
        _widen_layers(mlp.critic, factor, shared, layers, keys[2]),
        hidden_dim=factor * mlp.hidden_dim,
    )


def _widen_layers(
    layers: Layers, factor: int, first: int, num_hidden: int, key: Key[Array, ""]
) -> Layers:
    """The layers from number ``first`` on; the one after the last hidden one is a head."""
    keys = jax.random.split(key, len(layers))
    return tuple(
        _widen_layer(layer, 1 if n == 0 else factor, 1 if n == num_hidden else factor, key)
        for n, (layer, key) in enumerate(zip(layers, keys, strict=True), first)
    )


def _widen_layer(layer: eqx.nn.Linear, n_in: int, n_out: int, key: Key[Array, ""]) -> eqx.nn.Linear:
    """So many copies of its inputs and of its outputs."""
    assert layer.bias is not None
    weight = jnp.tile(layer.weight, (n_out, 1))
    shares = jax.random.dirichlet(key, jnp.full(n_in, 2.0), weight.shape)
    weight = jnp.concatenate([weight * shares[..., copy] for copy in range(n_in)], axis=1)
    bias = jnp.tile(layer.bias, n_out)
    return eqx.tree_at(lambda it: it.bias, layer_of(weight), bias)


def with_more_inputs(mlp: pm.MLPActorCritic, more: int) -> pm.MLPActorCritic:
    """An MLP that takes more numbers after those it takes now, and does not heed them yet."""

    def widen(layers: Layers) -> Layers:
        weight = jnp.pad(layers[0].weight, ((0, 0), (0, more)))
        first = eqx.tree_at(lambda it: it.bias, layer_of(weight), layers[0].bias)
        return (first, *layers[1:])

    towers = mlp.actor, mlp.critic
    parts = (widen(mlp.trunk), *towers) if mlp.shared_layers else (mlp.trunk, *map(widen, towers))
    return _with_layers(mlp, *parts, observation_size=mlp.observation_size + more)


def _with_layers(
    mlp: pm.MLPActorCritic, trunk: Layers, actor: Layers, critic: Layers, **sizes: Any
) -> pm.MLPActorCritic:
    """An MLP of these layers and sizes, and otherwise as one that there is."""
    hyperparameters = {**mlp.hyperparameters, **sizes}
    new = pm.MLPActorCritic(**hyperparameters, key=jax.random.key(0))  # Nothing drawn stays.
    return eqx.tree_at(lambda it: (it.trunk, it.actor, it.critic), new, (trunk, actor, critic))


def sharpen(mlp: pm.MLPActorCritic, factor: float) -> pm.MLPActorCritic:
    """The same policy with its logits multiplied: the larger, the surer it is of its actions."""
    head = mlp.actor[-1]
    assert head.bias is not None
    new = factor * head.weight, factor * head.bias
    return eqx.tree_at(lambda it: (it.actor[-1].weight, it.actor[-1].bias), mlp, new)


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line, and saves the new policy."""
    parser = argparse.ArgumentParser(description="Remake a policy of the game's default network.")
    parser.add_argument("policy", help="a run, a checkpoint, a saved policy, champion or steady")
    parser.add_argument("folder", help="a new one, for the new policy")
    parser.add_argument("--widen", type=int, default=1, metavar="N", help="times as many units")
    parser.add_argument("--time-aware", action="store_true", help="for hackmatrix --time-aware")
    parser.add_argument("--sharpen", type=float, default=1, metavar="X", help="times the logits")
    parser.add_argument("--seed", type=int, default=0, help="of the shares (default: 0)")
    options = parser.parse_args(arguments)
    if options.widen < 1:
        parser.error(f"--widen must be at least 1, got {options.widen}")
    path = TASK.policies.get(options.policy, options.policy)
    try:
        model = pm.load_policy(path, NETWORKS).model
    except RunError as error:
        parser.error(str(error))
    if not isinstance(model, PlayerCenteredMLP) or not isinstance(
        mlp := model.network, pm.MLPActorCritic
    ):
        parser.error(f"{options.policy} is not of the network mlp")
    if options.widen > 1:
        mlp = widen(mlp, options.widen, jax.random.key(options.seed))
    if options.time_aware and not model.time_aware:
        mlp = with_more_inputs(mlp, NUM_FEATURES_WITH_TIME - NUM_FEATURES)
    time_aware = options.time_aware or model.time_aware
    mlp = sharpen(mlp, options.sharpen)
    model = PlayerCenteredMLP(network=mlp, time_aware=time_aware, key=jax.random.key(0))
    pm.save_policy(model, options.folder)


if __name__ == "__main__":
    main()
