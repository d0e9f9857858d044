"""Networks: a masked policy and a value function, behind a reader of observations.

In: an observation, a mask and, for recurrent networks, a hidden state. Out: a
:class:`MaskedCategorical` (for MultiDiscrete actions, a :class:`MaskedMultiCategorical`) and a
value. A :class:`Model` is a reader and a network: the reader decides what the numbers of an
observation mean, and the model adds normalization and precision. :func:`network_for` makes one.
:mod:`~ppo_mask.networks.layers` has the linear layers, for custom networks.
"""

from ._actor_critic import AbstractActorCritic, AbstractRecurrentActorCritic
from ._conv import ConvActorCritic
from ._default import describe_network, network_for
from ._distribution import (
    AbstractMaskedDistribution,
    MaskedCategorical,
    MaskedMultiCategorical,
    masked_distribution,
)
from ._gru import GRUActorCritic
from ._mlp import MLPActorCritic
from ._model import (
    Memory,
    Model,
    add_normalization,
    forward,
    to_bfloat16,
    trainable,
    update_statistics,
    vmap_axes,
)
from ._policy import ModelLike, Policy, as_model
from ._reader import AbstractReader, ArrayReader, IdentityReader
from ._sets import SetActorCritic, SetReader
from ._uniform import UniformActorCritic

__all__ = [
    "AbstractActorCritic",
    "AbstractMaskedDistribution",
    "AbstractReader",
    "AbstractRecurrentActorCritic",
    "ArrayReader",
    "ConvActorCritic",
    "GRUActorCritic",
    "IdentityReader",
    "MLPActorCritic",
    "MaskedCategorical",
    "MaskedMultiCategorical",
    "Memory",
    "Model",
    "ModelLike",
    "Policy",
    "SetActorCritic",
    "SetReader",
    "UniformActorCritic",
    "add_normalization",
    "as_model",
    "describe_network",
    "forward",
    "masked_distribution",
    "network_for",
    "to_bfloat16",
    "trainable",
    "update_statistics",
    "vmap_axes",
]
