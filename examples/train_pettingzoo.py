"""Trains one player of a PettingZoo game, by the game's name.

pip install 'ppo-mask[pettingzoo]'
python examples/train_pettingzoo.py --game leduc_holdem_v4
python examples/train_pettingzoo.py --game connect_four_v3 --opponent self
"""

import dataclasses
import importlib
import os
import sys
from typing import Any

from jaxtyping import Array

from ppo_mask.adapters.pettingzoo import PettingZooEnv
from ppo_mask.checkpoints import load_policy
from ppo_mask.envs import AbstractEnv
from ppo_mask.games import Opponent, random_opponent
from ppo_mask.networks import Model, network_for
from ppo_mask.ppo import PPO
from ppo_mask.runner import NetworkSettings, RunConfig, RunSettings, Task, main, setting
from ppo_mask.training import SelfPlay


@dataclasses.dataclass(frozen=True)
class Seat:
    """The game."""

    game: str = setting("tictactoe_v3", "its name in pettingzoo.classic, or a module with an env()")
    opponent: str = setting(
        "random",
        "who plays the other seats: random; self, which is a copy of the learner; or a saved "
        "policy or run",
    )
    eval_opponent: str = setting(
        "random",
        "the opponent in evaluations if --opponent is self: random, or a saved policy or run",
    )
    renew_every: int = setting(10, "updates between two copies of the learner", at_least=1)
    num_workers: int = setting(0, "processes to play the games in; 0: this one", at_least=0)


def find_opponent(name: str) -> Opponent:
    """Loads the opponent of that name."""
    return random_opponent if name == "random" else load_policy(name).model


def make_env(settings: Seat) -> PettingZooEnv:
    """Makes the environment for evaluations."""
    is_self = settings.opponent == "self"
    opponent = find_opponent(settings.eval_opponent if is_self else settings.opponent)
    module = settings.game if "." in settings.game else f"pettingzoo.classic.{settings.game}"
    try:
        make = importlib.import_module(module).env
    except (ImportError, AttributeError) as error:
        raise ValueError(f"there is no game {settings.game}: {error}") from error
    return PettingZooEnv(make, opponent, num_workers=settings.num_workers)


def make_curriculum(settings: Seat) -> SelfPlay | None:
    """Makes the self-play curriculum, if ``--opponent self`` asks for it."""
    if settings.opponent != "self":
        return None
    return SelfPlay(lambda env: env.opponent, every=settings.renew_every)


def make_model(env: AbstractEnv[Any], network: NetworkSettings, key: Array) -> Model:
    """Makes an MLP with layer norm: boards are small, and convolutions slow on a CPU."""
    sizes: dict[str, Any] = {"hidden_dim": network.hidden_dim, "num_layers": network.num_layers}
    return network_for(env, "mlp", key=key, layer_norm=True, **sizes)


TASK = Task[Seat](make_env, make_model, curriculum=make_curriculum)
DEFAULTS = RunConfig(
    Seat(),
    PPO(num_envs=32, learning_rate=1e-3, gamma=1.0),
    run=RunSettings(total_timesteps=200_000),
)

if __name__ == "__main__":
    sys.path.append(os.getcwd())  # Finds your own module in the current folder.
    raise SystemExit(main(TASK, DEFAULTS, description="Trains one player of a PettingZoo game."))
