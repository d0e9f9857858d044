"""``watch``: prints an episode that a run's policy plays, step by step."""

import argparse
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ppo_mask.envs import TimeStep, host_env_in
from ppo_mask.networks import advance
from ppo_mask.runner._settings import RunConfig
from ppo_mask.runner._task import Task
from ppo_mask.runner.commands._evaluate import add_play, add_run
from ppo_mask.runner.commands._load import TrainedRun, load_run
from ppo_mask.runner.commands._options import add_command, number


def add_watch(commands: Any, task: Task[Any], defaults: RunConfig[Any]) -> None:
    """Adds the command to a program's command line."""
    parser = add_command(
        commands,
        "watch",
        lambda options: _run(options, task, defaults),
        "print an episode that a run's policy plays",
    )
    add_run(parser)
    parser.add_argument(
        "--max-steps", type=number(1), default=200, metavar="N", help="(default: 200)"
    )
    add_play(parser)


def _run(options: argparse.Namespace, task: Task[Any], defaults: RunConfig[Any]) -> int:
    run: TrainedRun[Any] = load_run(task, defaults, options.run, options.checkpoint_dir)
    env, model = run.env, run.policy.model

    @eqx.filter_jit
    def decide(timestep: Any, hidden: Any, key: Any) -> Any:
        distribution, value, hidden = advance(
            model, timestep.observation, timestep.action_mask, hidden
        )
        action = distribution.sample(key) if options.sample else distribution.mode()
        return action, jnp.exp(distribution.log_prob(action)), value, hidden

    host = host_env_in(env)

    def shown(state: Any, timestep: TimeStep) -> str:
        # Compiled code cannot raise an error from an environment in Python, so ask the host.
        jax.block_until_ready(timestep)
        if host is not None and (failure := host.take_failure()) is not None:
            raise failure
        if task.render is not None:
            return task.render(state)
        if host is None:
            return _listed("state", state)
        return _listed("observation", timestep.observation)  # The state is in Python.

    reset, step = eqx.filter_jit(env.reset), eqx.filter_jit(env.step)
    key, reset_key = jax.random.split(jax.random.key(options.seed))
    state, timestep = reset(reset_key)
    hidden, total = run.policy.initial_hidden(), 0.0
    print(shown(state, timestep))
    for number_of_step in range(1, options.max_steps + 1):
        key, action_key, step_key = jax.random.split(key, 3)
        action, probability, value, hidden = decide(timestep, hidden, action_key)
        state, timestep = step(step_key, state, action)
        after = shown(state, timestep)
        total += float(timestep.reward)
        print(
            f"\nstep {number_of_step}: action {action.tolist()} ({100 * float(probability):.0f}%), "
            f"reward {float(timestep.reward):.4g}, value {float(value):.4g}\n{after}"
        )
        if timestep.terminated or timestep.truncated:
            break
    print(f"\nreturn {total:.4g}")
    return 0


def _listed(name: str, tree: Any) -> str:
    arrays = jax.tree_util.tree_leaves_with_path(tree)
    return "\n".join(
        f"{jax.tree_util.keystr(path).lstrip('.') or name} = "
        f"{np.array2string(np.asarray(x), threshold=100)}"
        for path, x in arrays
    )
