"""Writes a policy to a file that programs without JAX can use."""

import dataclasses
import json
from functools import partial
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ppo_mask.acting import start_rollout
from ppo_mask.acting._rollout import collect
from ppo_mask.checkpoints import architecture_of
from ppo_mask.checkpoints._checkpoint import named_arrays
from ppo_mask.checkpoints._files import write_whole
from ppo_mask.checkpoints._runs import expand_user
from ppo_mask.envs import AbstractEnv, Actions, VectorEnv
from ppo_mask.envs._env import masks_parts_in_turn
from ppo_mask.envs._host import host_env_in, raise_failure
from ppo_mask.errors import RunError, naming
from ppo_mask.networks import Model, ModelLike, as_model

_FORMAT = 3  # of the .npz
_NUM_INPUTS, _NUM_ENVS = 256, 8  # to compare on
_TOLERANCE = 1e-5


def export_policy(policy: ModelLike, env: AbstractEnv[Any], path: str | Path) -> None:
    """Writes a policy to a file for programs without JAX; docs/export.md describes the files.

    Args:
        policy: the policy, or its model or network. A model of the precision "bfloat16" is exported
            in float32, in which its parameters are.
        env: the environment that it plays in. Its ``action_names``, if it has any, are stored.
        path: the file, which is replaced if it exists: ``.onnx`` for onnxruntime, or ``.npz`` for
            the arrays alone. An ``.onnx`` is written only if onnxruntime computes from it what JAX
            computes, to within 1e-5, for 256 observations of the environment.

    Raises:
        RunError: the file's name ends in something else, the network computes what cannot be
            exported, or the results differ. Then nothing was written.

    Example:
        >>> import tempfile
        >>> import jax, numpy as np
        >>> import ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks()
        >>> policy = pm.Policy(pm.network_for(env, key=jax.random.key(0)))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pm.export_policy(policy, env, f"{folder}/policy.npz")
        ...     print(np.load(f"{folder}/policy.npz")["network.actor.2.weight"].shape)
        (32, 256)
    """
    path = Path(expand_user(str(path)))
    if path.suffix not in (".onnx", ".npz"):
        raise RunError(f"the file to write must end in .onnx or .npz, got {path}")
    model = dataclasses.replace(as_model(policy), precision="float32")
    names = getattr(env, "action_names", Actions.of(env.num_actions).names)
    about = {"ppo_mask": version("ppo-mask"), "actions": list(names)}
    with naming(f"the export of {type(model.network).__name__}"):
        is_npz = path.suffix == ".npz"
        write_whole(path, _as_npz(model, about) if is_npz else _as_onnx(model, env, about))


def _as_npz(model: Model, about: dict[str, Any]) -> bytes:
    about = {"format": _FORMAT, **about, "architecture": architecture_of(model)}
    arrays = {name: np.asarray(x) for name, x in named_arrays(model).items()}
    out = BytesIO()
    np.savez(out, allow_pickle=False, description=np.array(json.dumps(about)), **arrays)
    return out.getvalue()


def _as_onnx(model: Model, env: AbstractEnv[Any], about: dict[str, Any]) -> bytes:
    try:
        import onnxruntime

        from ppo_mask.export._onnx import translate
    except ImportError as error:
        needs = "pip install 'ppo-mask[onnx]'"
        raise RunError(f"an .onnx needs onnx and onnxruntime; install them with {needs}") from error
    acts, given = jax.vmap(partial(act, model)), inputs_of(model, env)
    hidden = named_arrays({"hidden": model.initial_hidden()})
    about["initial_hidden"] = {name: x.tolist() for name, x in hidden.items()}
    content = translate(acts, given, {name: json.dumps(x) for name, x in about.items()})
    with jax.default_matmul_precision("highest"):
        ours = jax.device_get(named_arrays(jax.jit(acts)(given)))
    session = onnxruntime.InferenceSession(content)
    theirs = session.run([*ours], jax.device_get(named_arrays(given)))
    _compare(ours, dict(zip(ours, theirs, strict=True)), Actions.of(env.num_actions).starts)
    return content


def act(model: Model, given: dict[str, Any]) -> dict[str, Any]:
    """Does what the file does, for one observation."""
    inputs = (given[name] for name in ("observation", "action_mask", "hidden"))
    distribution, value, hidden = model.advance(*inputs)
    prefix = given["prefix"]
    distribution = distribution.choose()[1] if prefix is None else distribution.given(prefix)
    # Whatever the probabilities are, even NaN, what is not allowed comes last.
    scores = jnp.where(distribution.mask, jnp.nan_to_num(distribution.probs), -1)
    action = Actions.of(distribution.choices).each_part(lambda x: x.argmax(axis=-1), scores)
    chosen = {"action": action.astype(jnp.int32), "probabilities": distribution.probs}
    return {**chosen, "value": value, "next_hidden": hidden}


def inputs_of(model: Model, env: AbstractEnv[Any]) -> dict[str, Any]:
    """Returns inputs of a policy, from steps of its own play."""
    vector_env, key, seen = VectorEnv(env, _NUM_ENVS), jax.random.key(0), list[Any]()
    state, play = eqx.filter_jit(start_rollout)(vector_env, model, key), eqx.filter_jit(collect)
    for of_play in jax.random.split(key, _NUM_INPUTS // _NUM_ENVS):
        state, played = raise_failure(env, play(vector_env, model, state, of_play, 3))
        prefix = played.decision.action[-1] if masks_parts_in_turn(env) else None
        inputs = {"observation": state.observation, "action_mask": state.action_mask}
        seen.append({**inputs, "hidden": state.hidden, "prefix": prefix})
    if (host_env := host_env_in(env)) is not None:
        host_env.release()
    return jax.tree.map(lambda *x: jnp.concatenate(x), *seen)


def _compare(ours: dict[str, Any], theirs: dict[str, Any], starts: Any) -> None:
    """Checks that the results of JAX and of onnxruntime are the same."""
    chances = ours["probabilities"]
    for found in (ours, theirs):  # Two actions may be equally likely but for rounding.
        places = found["action"].reshape(len(chances), -1) + np.array(starts)
        found["action"] = np.take_along_axis(chances, places, axis=1)
    for name, x in ours.items():
        if not np.allclose(theirs[name], x, _TOLERANCE, _TOLERANCE, equal_nan=True):
            difference = abs(x - theirs[name]).max()
            what = f"differ by {difference:.1e} in {name}, more than {_TOLERANCE:g}"
            raise RunError(f"JAX and onnxruntime {what}; nothing was written")
