"""A model as NumPy arrays, with everything that another program needs to run the model.

The file is a plain ``.npz``. Its arrays are named by their places in the model, such as
``network.actor.0.weight``. One more array, ``description``, is JSON with

- ``format``: the version of the format, 2.
- ``architecture``: classes and sizes of the reader, the network, and its parts.
- ``mlp``: ``layer_norm`` and ``policy_gain`` of each :class:`ppo_mask.networks.MLPActorCritic`.
- ``actions``: the names of the 28 actions.
- ``observation``: the meaning of each of the 1,545 numbers (:func:`observation_layout`).

examples/numpy_policy.py reads the file with NumPy alone, and plays.
"""

import json
from io import BytesIO
from typing import Any

import jax
import numpy as np

from hackmatrix.actions import ACTION_NAMES
from hackmatrix.observation import CELL_FIELDS, CHANNELS, OBSERVATION_SIZE, PLAYER_NUMBERS, channels
from hackmatrix.rules.entities import TYPES
from hackmatrix.rules.planes import NUM_CELLS
from hackmatrix.rules.programs import CARDS, NUM_PROGRAMS
from ppo_mask.checkpoints import architecture_of, named_arrays
from ppo_mask.networks import MLPActorCritic, Model

_FORMAT = 2


def export_policy(model: Model) -> bytes:
    """Makes the content of the ``.npz`` file."""
    mlps = [x for x in jax.tree.leaves(model, is_leaf=_is_mlp) if _is_mlp(x)]
    description = {
        "format": _FORMAT,
        "architecture": architecture_of(model),
        "mlp": [{"layer_norm": m.layer_norm, "policy_gain": m.policy_gain} for m in mlps],
        "actions": ACTION_NAMES,
        "observation": observation_layout(),
    }
    arrays = {name: np.asarray(x) for name, x in named_arrays(model).items()}
    out = BytesIO()
    np.savez(out, allow_pickle=False, description=np.array(json.dumps(description)), **arrays)
    return out.getvalue()


def observation_layout() -> dict[str, Any]:
    """The meaning of each number of an observation.

    Returns:
        - ``size``: how many numbers there are.
        - ``player``: names of the player's numbers, which come first.
        - ``programs``: names of the programs, which have one number each.
        - ``cells``: how many cells follow, row by row from the bottom left.
        - ``channels``: names and divisors of each cell's numbers.
    """
    names: list[tuple[str, int]] = [("", 0)] * CHANNELS
    for name, field in CELL_FIELDS.items():
        place = range(CHANNELS)[channels(name)]
        several = {"enemy_type": TYPES, "program": tuple(card.name for card in CARDS)}.get(name)
        for n, channel in enumerate(place):
            names[channel] = (f"{name} {several[n]}" if several else name, field.largest)
    return {
        "size": OBSERVATION_SIZE,
        "player": [number.formula() for number in PLAYER_NUMBERS],
        "programs": [card.name for card in CARDS[:NUM_PROGRAMS]],
        "cells": NUM_CELLS,
        "channels": names,
    }


def _is_mlp(x: Any) -> bool:
    return isinstance(x, MLPActorCritic)
