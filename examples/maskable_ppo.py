"""Trains sb3-contrib's MaskablePPO on HackMatrix; needs pip install 'ppo-mask[sb3]'."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
from sb3_contrib import MaskablePPO  # pyright: ignore[reportMissingImports] - large, not in dev


def main(
    arguments: Sequence[str] | None = None, callback: Callable[..., bool] | None = None
) -> None:
    """Trains, then plays one game with the trained policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200_000, help="of training (default 200,000)")
    parser.add_argument("--seed", type=int, default=0, help="of everything (default 0)")
    options = parser.parse_args(arguments)

    env = gymnasium.make("hackmatrix.gymnasium:HackMatrix-v0", max_steps=500)
    model: Any = MaskablePPO("MlpPolicy", env, seed=options.seed, verbose=1, device="cpu")
    model.learn(options.steps, callback=callback)

    observation, info = env.reset(seed=options.seed)
    total, ended = 0.0, False
    while not ended:
        mask = env.get_wrapper_attr("action_masks")()
        action, _ = model.predict(observation, action_masks=mask)
        observation, reward, terminated, truncated, info = env.step(action)
        total, ended = total + float(reward), terminated or truncated
    print(f"one game: return {total:.2f}, in stage {info['stage']}")


if __name__ == "__main__":
    main()
