"""``watch``: shows an episode that a run's policy plays, as text, as a page or as a GIF."""

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ppo_mask.devices.interrupts import second_interrupt_ends
from ppo_mask.envs import Actions
from ppo_mask.envs._host import host_env_in, raise_failure
from ppo_mask.envs.drawing import Decision, Frame, Picture, draw, film, html, page
from ppo_mask.envs.drawing._frames import name_action
from ppo_mask.errors import RunError
from ppo_mask.games import Seat
from ppo_mask.runner._settings import RunConfig
from ppo_mask.runner._task import Task
from ppo_mask.runner.commands._load import TrainedRun
from ppo_mask.runner.commands._options import add_command, add_files, refuse_existing, tell, write
from ppo_mask.runner.commands._players import add_players, load_players
from ppo_mask.search import advance
from ppo_mask.training._health import all_finite, describe_not_finite

_TOP_ACTIONS = 8


def add_watch(commands: Any, task: Task[Any], defaults: RunConfig[Any]) -> None:
    """Adds the command to a program's command line."""
    parser = add_command(
        commands,
        "watch",
        lambda options: _run(options, task, defaults),
        "show an episode that a run's policy plays",
    )
    add_players(parser, task, several=False, max_steps=200)
    parser.add_argument(
        "--play",
        action="store_true",
        help="choose the actions yourself; the policy plays the other seats of a game",
    )
    add_files(parser)


def _run(options: argparse.Namespace, task: Task[Any], defaults: RunConfig[Any]) -> int:
    files = [path for path in (options.html, options.gif) if path]
    refuse_existing(files, options.force)
    (run,) = load_players(options, task, defaults)
    names = Actions.of(run.env.num_actions).names
    if options.play:
        if Actions.of(run.env.num_actions).has_parts or files:
            raise RunError("--play is for the terminal, and for actions of one part")
        if isinstance(run.env, Seat):
            opponent = Seat(run.env.game, run.policy, run.env.begins)
            run = dataclasses.replace(run, env=opponent)
    frames = list[Frame]()
    with second_interrupt_ends():
        for frame in _play(run, options, as_text=not files):
            frames.append(frame)
            if not files:
                print(_text(frame, names), end="\n\n")
    last = frames[-1]
    summary = f"{last.end} after {last.step} steps"
    print(f"{summary}\nreturn {last.return_:.4g}")
    title = f"{run.name}, seed {options.seed}"
    contents = dict[str, str | bytes]()
    if options.gif:
        contents[options.gif] = film(frames, options.fps)
    if options.html:
        pieces = [[html(frame.scene)] for frame in frames]
        contents[options.html] = page(frames, pieces, names, title=title, summary=summary)
    for path, content in contents.items():
        write(path, content, options.force)
    return 0


def _play(run: TrainedRun[Any], options: argparse.Namespace, as_text: bool) -> Iterator[Frame]:
    """Plays an episode; the scene of each frame is a picture, or text if that is asked for."""
    env, model, host = run.env, run.policy.model, host_env_in(run.env)
    actions = Actions.of(env.num_actions)
    names, starts = actions.names, np.array(actions.starts)

    is_greedy = run.plays_greedily(options.sample)

    @eqx.filter_jit
    def decide(state: Any, timestep: Any, hidden: Any, key: Any, search_key: Any) -> Any:
        seen = state, timestep.observation, timestep.action_mask, hidden
        distribution, value, hidden = advance(run.search, model, env, search_key, *seen)
        numbers = [] if is_greedy else [actions.uniform_numbers(key)]
        action, path = distribution.choose(partial(env.part_mask, state), *numbers)
        return action, path.mask, path.probs, value, hidden

    def show(state: Any, timestep: Any) -> Picture:
        picture = draw(env, state, raise_failure(env, timestep))
        if isinstance(picture, str) or (picture is not None and not as_text):
            return picture
        if step == 0 and (host is not None or picture is not None):
            tell(_NO_TEXT if as_text else _NO_PICTURE)
        shown = ("state", state) if host is None else ("observation", timestep.observation)
        return _listed(*shown)

    if not all_finite(model):
        raise RunError(describe_not_finite(model))
    if host is not None:
        host.prepare_to_draw(as_text)
    reset, take_step = eqx.filter_jit(env.reset), eqx.filter_jit(env.step)
    key, reset_key = jax.random.split(jax.random.key(options.seed))
    step, action, rewards, return_ = 0, None, dict[str, float](), 0.0
    state, timestep = reset(reset_key)
    hidden, end = run.policy.initial_hidden(), ""
    while True:
        scene = show(state, timestep)
        if not np.isfinite(np.float32(return_)):
            raise RunError(describe_not_finite(model))
        if end:
            yield Frame(step, scene, (), action, rewards, return_, None, end)
            return
        key, action_key, step_key, search_key = jax.random.split(key, 4)
        chosen, mask, probabilities, value, hidden = decide(
            state, timestep, hidden, action_key, search_key
        )
        if not np.isfinite(probabilities).all():
            raise RunError(describe_not_finite(model))
        place = np.asarray(chosen) + starts
        numbers = place.tolist() if place.ndim == 0 else tuple(place.tolist())
        known = float(value) if np.isfinite(value) else None
        decision = Decision(numbers, tuple(probabilities.tolist()), known)
        allowed = tuple(np.flatnonzero(mask).tolist())
        shown = None if options.play else decision
        yield Frame(step, scene, allowed, action, rewards, return_, shown, end)
        if options.play:
            numbers = _ask([names[x] for x in allowed], allowed)
            chosen = jnp.int32(numbers)
        state, timestep = take_step(step_key, state, chosen)
        step, action, rewards = step + 1, numbers, {"reward": float(timestep.reward)}
        return_ += rewards["reward"]
        if timestep.terminated or timestep.truncated:
            end = "terminated" if timestep.terminated else "truncated"
        elif step == options.max_steps:
            end = "cut off"


def _ask(names: Sequence[str], allowed: Sequence[int]) -> int:
    """Asks for an allowed action, by its name or number, until there is one."""
    print(f"allowed: {', '.join(names)}")
    while True:
        try:
            word = input("your action: ").strip()
        except EOFError as error:
            raise RunError("the game has been left") from error
        for name, action in zip(names, allowed, strict=True):
            if word in (name, str(action)):
                return action


_NO_TEXT = "the environment draws no text; --html FILE and --gif FILE show its pictures, if any"
_NO_PICTURE = (
    "the environment draws nothing; for Gymnasium, the function that makes it needs an argument "
    "render_mode"
)


def _text(frame: Frame, names: Sequence[str]) -> str:
    """A frame as text: the last action, the picture, and what the policy makes of it."""
    lines = list[str]()
    if frame.action is not None:
        action = name_action(frame.action, names)
        lines.append(f"step {frame.step}: action {action}, reward {frame.reward:.4g}")
    lines.append(frame.scene.rstrip("\n"))
    decision = frame.decision
    if decision is not None:
        ranked = sorted(frame.allowed, key=lambda action: -decision.probabilities[action])
        chosen = np.atleast_1d(decision.action)
        shares = [
            f"{'▸' if action in chosen else ''}{names[action]} "
            f"{100 * decision.probabilities[action]:.0f}%"
            for action in ranked[:_TOP_ACTIONS]
        ]
        among = f"{len(frame.allowed)} of {len(names)} allowed"
        value = "" if decision.value is None else f", value {decision.value:.4g}"
        lines.append(f"policy: {'  '.join(shares)}   ({among}{value})")
    return "\n".join(lines)


def _listed(name: str, tree: Any) -> str:
    arrays = jax.tree_util.tree_leaves_with_path(tree)
    return "\n".join(
        f"{jax.tree_util.keystr(path).lstrip('.') or name} = "
        f"{np.array2string(np.asarray(x), threshold=100)}"
        for path, x in arrays
    )
