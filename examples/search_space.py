"""What sweep.py and search_optuna.py share: the environments, and the file with a search space."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxtyping import Array, Key

from hackmatrix import HackMatrix
from hackmatrix.networks import player_centered_mlp
from ppo_mask.envs import AbstractEnv
from ppo_mask.envs.probes import MaskedLocks
from ppo_mask.errors import RunError
from ppo_mask.networks import Model, network_for
from ppo_mask.ppo import PPO
from ppo_mask.runner import did_you_mean, finite_number, load_yaml

ENVS = ("locks", "hackmatrix")
LOCKS, GAME = MaskedLocks(), HackMatrix(max_steps=1000, compact=True)


def make(name: str) -> tuple[AbstractEnv[Any], Callable[[Key[Array, ""]], Model]]:
    """Returns an environment, and a function that makes a fresh model. Put your own here."""
    if name == "hackmatrix":
        return GAME, lambda key: player_centered_mlp(128, 2, key=key)
    return LOCKS, lambda key: network_for(LOCKS, hidden_dim=32, key=key)


def read_space(path: Path) -> dict[str, list[Any]]:
    """Reads a search space: settings of ``PPO``, each with the list of its values.

    Raises:
        RunError: the file is not of this form, or ``PPO`` has no such setting or value.
    """
    space, known = load_yaml(path), [field.name for field in dataclasses.fields(PPO)]
    if not isinstance(space, dict) or not space:
        raise RunError(f"{path} must have settings with lists of values, as learning_rate: [0.001]")
    found: dict[str, list[Any]] = {}
    for name, values in space.items():
        if name not in known:
            raise RunError(f"{path}: PPO has no setting {name}{did_you_mean(str(name), known)}")
        if not isinstance(values, list) or not values:
            raise RunError(f"{path}: {name} must have a list of values, got {values!r}")
        # To YAML, 1e-3 is a text, and 0 is no float.
        if any(isinstance(x, (float, str)) for x in values):
            values = [finite_number(x, f"{path}: {name}") for x in values]
        found[name] = values
        for value in values:
            given: dict[str, Any] = {name: value}
            try:
                PPO(**given)
            except (TypeError, ValueError) as error:
                raise RunError(f"{path}: {error}") from error
    return found
