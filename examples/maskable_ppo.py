"""Trains sb3-contrib's MaskablePPO on HackMatrix, and saves what it learned for `hackmatrix watch`.

    pip install 'ppo-mask[sb3]'
    python examples/maskable_ppo.py --timesteps 1_000_000 --save-freq 100_000
    python examples/maskable_ppo.py --timesteps 2_000_000 --resume latest

Checkpoints are Stable-Baselines3's own. A resumed run goes on with the weights and Adam's state,
but with other random numbers. With ``--timesteps 0 --resume FILE``, nothing is trained, and the
checkpoint becomes a policy to watch. Where Weights & Biases is installed, it gets the log, too.
"""

import argparse
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ppo_mask as pm
from hackmatrix.networks import flat_mlp
from ppo_mask.runner.commands import number

# Stable-Baselines3's names for the layers of its MlpPolicy.
ACTOR = ("mlp_extractor.policy_net.0", "mlp_extractor.policy_net.2", "action_net")
CRITIC = ("mlp_extractor.value_net.0", "mlp_extractor.value_net.2", "value_net")


def as_model(parameters: Mapping[str, np.ndarray]) -> pm.Model:
    """Adapts an MlpPolicy: the same two tanh MLPs, as a model of this library.

    Args:
        parameters: the policy's ``state_dict()``, in NumPy's arrays.
    """
    width = parameters[f"{ACTOR[0]}.bias"].size
    model = flat_mlp(width, num_layers=2, key=jax.random.key(0))

    def arrays(model: pm.Model) -> list[Any]:
        network: Any = model.network
        layers = (*network.actor, *network.critic)
        return [x for layer in layers for x in (layer.weight, layer.bias)]

    names = [f"{layer}.{kind}" for layer in (*ACTOR, *CRITIC) for kind in ("weight", "bias")]
    return eqx.tree_at(arrays, model, [jnp.asarray(parameters[name]) for name in names])


def checkpoint_of(folder: Path, resume: str) -> Path:
    """Finds the checkpoint that ``--resume`` names, a file or ``latest``."""
    found = folder.glob("maskable_ppo_*_steps.zip")
    newest = max(found, key=lambda file: int(file.stem.split("_")[-2]), default=folder / "none.zip")
    file = newest if resume == "latest" else Path(resume)
    if not file.is_file():
        raise SystemExit(f"error: there is no checkpoint {file}; --resume takes a file or latest")
    return file


def logger(to_wandb: bool) -> Any:
    """Makes a logger that prints, and logs to Weights & Biases if asked to."""
    from stable_baselines3.common.logger import KVWriter, configure  # pyright: ignore

    made: Any = configure(None, ["stdout"])
    if to_wandb:
        import wandb

        run = wandb.init(project="hackmatrix", name="maskable_ppo")

        class Writer(KVWriter):  # pyright: ignore[reportUntypedBaseClass]
            def write(self, key_values: dict[str, Any], key_excluded: Any, step: int = 0) -> None:
                run.log(key_values, step=step)

            def close(self) -> None:
                run.finish()

        made.output_formats.append(Writer())
    return made


def main(
    arguments: Sequence[str] | None = None, callback: Callable[..., bool] | None = None
) -> Path:
    """Trains, and returns the folder of the saved policy."""
    parser = argparse.ArgumentParser(description="Trains sb3-contrib's MaskablePPO on HackMatrix.")
    parser.add_argument(
        "--timesteps", type=number(0), default=200_000, help="in all, also if resumed"
    )
    parser.add_argument(
        "--save-freq", type=number(1), default=50_000, help="steps between checkpoints"
    )
    parser.add_argument("--resume", metavar="FILE", help="a checkpoint, or latest")
    parser.add_argument("--no-wandb", action="store_true", help="never log to Weights & Biases")
    parser.add_argument("--folder", type=Path, default=Path("maskable_ppo"), help="for all files")
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args(arguments)

    import gymnasium
    import stable_baselines3.common.callbacks as sb3  # pyright: ignore[reportMissingImports]
    import torch  # pyright: ignore[reportMissingImports]
    from sb3_contrib import MaskablePPO  # pyright: ignore[reportMissingImports] - large, not in dev

    torch.set_num_threads(1)  # The networks are small: more threads wait for each other.
    env = gymnasium.make("hackmatrix.gymnasium:HackMatrix-v0", max_steps=500)
    ppo: Any = MaskablePPO
    if flags.resume:
        ppo = ppo.load(checkpoint_of(flags.folder, flags.resume), env=env, device="cpu")
    else:
        ppo = ppo("MlpPolicy", env, ent_coef=0.1, seed=flags.seed, verbose=1, device="cpu")
    ppo.set_logger(logger(not flags.no_wandb and importlib.util.find_spec("wandb") is not None))
    left = max(0, flags.timesteps - ppo.num_timesteps)
    each = sb3.CheckpointCallback(flags.save_freq, str(flags.folder), "maskable_ppo")
    callbacks = [each, *([sb3.ConvertCallback(callback)] if callback else [])]
    if left:
        ppo.learn(left, sb3.CallbackList(callbacks), reset_num_timesteps=not flags.resume)
        ppo.save(flags.folder / f"maskable_ppo_{ppo.num_timesteps}_steps.zip")
    ppo.logger.close()

    parameters = {name: x.numpy() for name, x in ppo.policy.state_dict().items()}
    policy = flags.folder / f"policy-{ppo.num_timesteps}"
    if not policy.exists():
        pm.save_policy(as_model(parameters), policy)
    print(f"saved {policy}; hackmatrix watch {policy}")
    return policy


if __name__ == "__main__":
    main()
