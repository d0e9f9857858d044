"""A rollout as training data."""

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ppo_mask.acting import Decision, RolloutState, Transition
from ppo_mask.networks import Memory, Model
from ppo_mask.networks._model import is_recurrent


class Batch(eqx.Module):
    """Training data: a whole rollout, or some of its rows.

    A row is one step of one environment. The axes are [steps, envs, …] for a rollout, and [rows, …]
    for rows.

    For a recurrent model, a row is all steps of one environment. The axes are [1, envs, steps, …]
    for a rollout, and [rows, steps, …] for rows.

    Attributes:
        decision: the model's inputs, action and value at each step.
        advantage: an estimate of how much better the action was than ``decision.value``.
        return_: the value's target.
        memory: hidden states and ends of episodes; None for a model without a hidden state.
    """

    decision: Decision
    advantage: Float[Array, "*batch"]
    return_: Float[Array, "*batch"]
    memory: Memory | None = None


def make_batch(
    model: Model,
    before: RolloutState,
    transitions: Transition,
    advantage: Float[Array, "steps envs"],
    return_: Float[Array, "steps envs"],
) -> Batch:
    """Makes the batch to learn from.

    Args:
        model: the model to train.
        before: the environments before the rollout, with the hidden states of a recurrent model.
        transitions: the rollout, with axes [steps, envs, …].
        advantage: an estimate of how much better each action was than the value.
        return_: the value's targets.
    """
    if not is_recurrent(model):
        return Batch(transitions.decision, advantage, return_)
    steps = transitions.decision, advantage, return_, transitions.ended
    decision, advantage, return_, ended = jax.tree.map(lambda x: x.swapaxes(0, 1), steps)
    batch = Batch(decision, advantage, return_, Memory(before.hidden, ended))
    return jax.tree.map(lambda x: x[None], batch)
