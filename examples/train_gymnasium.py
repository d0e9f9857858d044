"""Trains on a Gymnasium environment, written in Python, by its id.

pip install 'ppo-mask[gymnasium]'
python examples/train_gymnasium.py --env-id CartPole-v1 --total-timesteps 100_000
python examples/train_gymnasium.py --env-id my_module:MyGame-v0 --num-workers 4 --num-envs 32
python examples/train_gymnasium.py --env-id FrozenLake-v1 --env-kwargs '{"is_slippery": false}'
"""

import dataclasses
import json
import os
import sys
from typing import Any

from ppo_mask.adapters.from_gymnasium import GymnasiumEnv
from ppo_mask.errors import RunError
from ppo_mask.ppo import PPO
from ppo_mask.runner import RunConfig, RunSettings, Task, main, setting


@dataclasses.dataclass(frozen=True)
class InPython:
    """The environment."""

    env_id: str = setting("CartPole-v1", "its id in Gymnasium, such as my_module:Name-v0")
    env_kwargs: str = setting("{}", "its keyword arguments, as an object in JSON")
    num_workers: int = setting(0, "processes to step it in; 0: this one", at_least=0)
    max_episode_steps: int | None = setting(None, "where to truncate episodes", at_least=1)
    mask: str | None = setting(None, "the entry (of infos or observation) or method with its mask")


def make_env(settings: InPython) -> GymnasiumEnv:
    """Makes the environment. Nothing flattens its observation: convolutions need images."""
    return GymnasiumEnv(
        settings.env_id,
        num_workers=settings.num_workers,
        max_episode_steps=settings.max_episode_steps,
        env_kwargs=read_arguments(settings.env_kwargs),
        mask=settings.mask,
    )


def read_arguments(text: str) -> dict[str, Any]:
    """Parses the environment's arguments from JSON."""
    try:
        return dict(**json.loads(text))
    except (TypeError, ValueError):
        raise RunError(
            f"--env-kwargs must be an object in JSON, such as '{{\"size\": 3}}'; got {text!r}"
        ) from None


TASK = Task[InPython](make_env)
DEFAULTS = RunConfig(
    InPython(),
    PPO(num_envs=8, num_steps=128, learning_rate=1e-3),
    run=RunSettings(total_timesteps=200_000),
)

if __name__ == "__main__":
    sys.path.append(os.getcwd())  # Finds your own module in the current folder.
    raise SystemExit(main(TASK, DEFAULTS, description="Trains on an environment of Gymnasium."))
