"""Trains on an environment of another library, by its name.

pip install 'ppo-mask[adapters]'
python examples/train_elsewhere.py --library jumanji --name Snake-v1 --normalize-observations
python examples/train_elsewhere.py --library pgx --name connect_four --opponent random
"""

import dataclasses
from typing import Any

from jaxtyping import Array

from ppo_mask.adapters.gymnax import GymnaxEnv
from ppo_mask.adapters.jumanji import JumanjiEnv
from ppo_mask.adapters.navix import NavixEnv
from ppo_mask.adapters.pgx import PgxEnv, random_opponent
from ppo_mask.envs import AbstractEnv, FlatObservation
from ppo_mask.networks import MLPActorCritic
from ppo_mask.runner import NetworkSettings, RunConfig, Task, TrainingSettings, main, setting


@dataclasses.dataclass(frozen=True)
class Elsewhere:
    """The environment."""

    library: str = setting(
        "gymnax", "where it is from", one_of=("gymnax", "jumanji", "navix", "pgx")
    )
    name: str = setting("CartPole-v1", "what its library calls it")
    opponent: str = setting(
        "none", "who plays the others in pgx's games of several", one_of=("none", "random")
    )


def make_env(settings: Elsewhere) -> AbstractEnv[Any]:
    """The environment, its observation in a row."""
    if settings.library == "gymnax":
        env = GymnaxEnv(settings.name)
    elif settings.library == "jumanji":
        env = JumanjiEnv(settings.name)
    elif settings.library == "navix":
        env = NavixEnv(settings.name)
    else:
        env = PgxEnv(settings.name, random_opponent if settings.opponent == "random" else None)
    return FlatObservation(env)


def make_model(env: AbstractEnv[Any], network: NetworkSettings, key: Array) -> MLPActorCritic:
    """An MLP with layer norm, for returns of hundreds; see docs/tuning.md."""
    assert isinstance(env, FlatObservation)
    size, actions = env.observation_size, env.num_actions
    return MLPActorCritic(
        size, actions, network.hidden_dim, network.num_layers, layer_norm=True, key=key
    )


TASK = Task[Elsewhere](make_env, make_model)
DEFAULTS = RunConfig(Elsewhere(), TrainingSettings(total_timesteps=500_000, num_envs=32, lr=1e-3))

if __name__ == "__main__":
    raise SystemExit(main(TASK, DEFAULTS, description="Trains on other libraries' environments."))
