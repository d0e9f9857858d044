"""Networks: a masked policy and a value function.

In: an observation, a mask and, for recurrent networks, a hidden state. Out: a
:class:`MaskedCategorical` (for MultiDiscrete actions, a :class:`MaskedMultiCategorical`) and a
value. Normalization and bfloat16 wrap a network, and the wrappers are networks themselves.
:mod:`~ppo_mask.networks.layers` has the linear layers, for custom networks.
"""

from ._actor_critic import (
    AbstractActorCritic,
    AbstractFeatureActorCritic,
    AbstractRecurrentActorCritic,
    Memory,
    advance,
    describe_model,
    forward,
    initial_hidden,
    is_recurrent,
    reset_hidden,
    split_features,
    static_fields,
    vmap_axes,
)
from ._bfloat16 import BFloat16ActorCritic, to_bfloat16
from ._conv import ConvActorCritic
from ._default import describe_network, network_for
from ._distribution import (
    AbstractMaskedDistribution,
    MaskedCategorical,
    MaskedMultiCategorical,
    masked_distribution,
    uniform_numbers,
)
from ._gru import GRUActorCritic
from ._mlp import MLPActorCritic
from ._normalize import (
    NormalizedActorCritic,
    RunningMoments,
    add_normalization,
    trainable,
    update_statistics,
)
from ._policy import ModelLike, Policy, as_model

__all__ = [
    "AbstractActorCritic",
    "AbstractFeatureActorCritic",
    "AbstractMaskedDistribution",
    "AbstractRecurrentActorCritic",
    "BFloat16ActorCritic",
    "ConvActorCritic",
    "GRUActorCritic",
    "MLPActorCritic",
    "MaskedCategorical",
    "MaskedMultiCategorical",
    "Memory",
    "ModelLike",
    "NormalizedActorCritic",
    "Policy",
    "RunningMoments",
    "add_normalization",
    "advance",
    "as_model",
    "describe_model",
    "describe_network",
    "forward",
    "initial_hidden",
    "is_recurrent",
    "masked_distribution",
    "network_for",
    "reset_hidden",
    "split_features",
    "static_fields",
    "to_bfloat16",
    "trainable",
    "uniform_numbers",
    "update_statistics",
    "vmap_axes",
]
