"""sb3-contrib's environments with invalid actions, by ids of Gymnasium, and MaskablePPO on them.

pip install 'ppo-mask[sb3]'
python benchmarks/invalid_actions.py

``InvalidActions-v0`` shows one of 80 numbers, which the agent has to name; 60 of the 80 are invalid
in each step. ``InvalidParts-v0`` shows two numbers of 10, with 10 of the 20 invalid. An episode has
100 steps, and a correct answer gives 1.
"""

# sb3-contrib is large, so the extra ``dev`` does not have it.
# pyright: reportMissingImports=false

from typing import Any

import gymnasium

_ENVS = "sb3_contrib.common.envs:InvalidActionEnv"
SIZES = {
    "InvalidActions-v0": ("Discrete", {"dim": 80, "n_invalid_actions": 60}),
    "InvalidParts-v0": ("MultiDiscrete", {"dims": [10, 10], "n_invalid_actions": 10}),
}
for name, (kind, sizes) in SIZES.items():
    gymnasium.register(name, entry_point=f"{_ENVS}{kind}", kwargs=sizes)


def main() -> None:
    """Prints MaskablePPO's mean returns, with the hyperparameters of ``results.py``'s rows."""
    import torch
    from sb3_contrib import MaskablePPO
    from sb3_contrib.common.maskable.evaluation import evaluate_policy
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)  # More threads are slower on networks this small.
    for name in SIZES:
        for seed in range(3):
            envs = make_vec_env(name, 8, seed=seed)
            model: Any = MaskablePPO("MlpPolicy", envs, n_steps=256, gamma=0.4, seed=seed)
            model.learn(61_440)
            found, _ = evaluate_policy(model, envs, n_eval_episodes=256, deterministic=False)
            print(f"{name}, seed {seed}: return {found:.2f}", flush=True)


if __name__ == "__main__":
    main()
