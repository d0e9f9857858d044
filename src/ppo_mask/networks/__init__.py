"""Networks: a policy and a value function, under a mask that cannot be forgotten.

In: an observation, a mask and, for recurrent networks, a hidden state. Out: a
:class:`MaskedCategorical` and a value. Normalization and bfloat16 are wrappers around a network,
and networks themselves. :mod:`~ppo_mask.networks.layers` are for networks of your own.
"""

from ._actor_critic import AbstractActorCritic as AbstractActorCritic
from ._actor_critic import AbstractFeatureActorCritic as AbstractFeatureActorCritic
from ._actor_critic import AbstractRecurrentActorCritic as AbstractRecurrentActorCritic
from ._actor_critic import Memory as Memory
from ._actor_critic import advance as advance
from ._actor_critic import forward as forward
from ._actor_critic import initial_hidden as initial_hidden
from ._actor_critic import is_recurrent as is_recurrent
from ._actor_critic import reset_hidden as reset_hidden
from ._actor_critic import split_features as split_features
from ._actor_critic import static_fields as static_fields
from ._bfloat16 import BFloat16ActorCritic as BFloat16ActorCritic
from ._bfloat16 import to_bfloat16 as to_bfloat16
from ._distribution import MaskedCategorical as MaskedCategorical
from ._gru import GRUActorCritic as GRUActorCritic
from ._mlp import MLPActorCritic as MLPActorCritic
from ._normalize import NormalizedActorCritic as NormalizedActorCritic
from ._normalize import RunningMoments as RunningMoments
from ._normalize import add_normalization as add_normalization
from ._normalize import trainable as trainable
from ._normalize import update_statistics as update_statistics

__all__ = [
    "AbstractActorCritic",
    "AbstractFeatureActorCritic",
    "AbstractRecurrentActorCritic",
    "BFloat16ActorCritic",
    "GRUActorCritic",
    "MLPActorCritic",
    "MaskedCategorical",
    "Memory",
    "NormalizedActorCritic",
    "RunningMoments",
    "add_normalization",
    "advance",
    "forward",
    "initial_hidden",
    "is_recurrent",
    "reset_hidden",
    "split_features",
    "static_fields",
    "to_bfloat16",
    "trainable",
    "update_statistics",
]
