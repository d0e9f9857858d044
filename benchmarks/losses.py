"""What a policy loses: its lost games by stage and cause.

    python benchmarks/losses.py --policy champion

``--json FILE`` writes the facts of each lost game. ``hackmatrix watch --seed`` plays the game again
if the policy takes its likeliest action.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from hackmatrix.actions import ACTION_NAMES, FIRST_PROGRAM, NUM_ACTIONS
from hackmatrix.env import HackMatrix
from hackmatrix.play.agents import agent_of
from hackmatrix.positions import dump_all
from hackmatrix.rules import plain
from hackmatrix.rules.entities import CRYPTOG, TYPES
from hackmatrix.rules.game import MAX_HP, NUM_STAGES
from hackmatrix.rules.programs import Program
from hackmatrix.rules.state import State
from hackmatrix.task import DEFAULTS, TASK
from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.jax_tools import IntScalarLike
from ppo_mask.runner.commands import add_players, load_players, number
from ppo_mask.training import evaluate

_SEEDS = 1_000_000  # games have seeds below this number
_SOON = 12  # enemy turns
_TRIES = 8  # an action is safe if the player survives it with so many dice


@dataclass(frozen=True)
class Loss:
    """The facts of a lost game."""

    seed: int
    stage: int
    turns: int  # enemy turns played in the stage
    entry_hp: int  # when the stage began
    hp: int  # before the last action
    action: str  # the last
    safe: list[str]  # actions that the player would have survived instead, UNDO apart
    beside: list[str]  # the types of the enemies next to the player at the end
    siphoned: int  # how many of these a siphoned block had brought
    unseen: bool  # these are cryptogs, and the player saw no cryptog before its last action
    unspent: list[int]  # credits, energy, data siphons
    programs: list[str]  # owned

    @property
    def cause(self) -> str:
        """The first cause whose condition holds."""
        return next(name for name, holds in CAUSES.items() if holds(self))


CAUSES: dict[str, Callable[[Loss], bool]] = {
    "siphoned too much": lambda loss: len(loss.beside) <= 2 * loss.siphoned,
    "unseen": lambda loss: bool(loss.safe) and loss.unseen,
    "walked into": lambda loss: bool(loss.safe),
    "few hp": lambda loss: loss.entry_hp < MAX_HP,
    "cornered soon": lambda loss: loss.turns <= _SOON,
    "cornered late": lambda loss: True,
}
"""Each cause with its condition; see :attr:`Loss.cause`."""


class Remembering(AbstractEnv[Any]):
    """The game from a sampled seed. ``info`` also holds the facts that :func:`losses` needs."""

    env: HackMatrix
    num_actions: int = eqx.field(default=NUM_ACTIONS, static=True, init=False)

    def reset(self, key: Key[Array, ""]) -> tuple[Any, TimeStep]:
        seed = jax.random.randint(key, (), 0, _SEEDS)
        reset_key, step_key, _ = jax.random.split(jax.random.key(seed), 3)  # as `watch` does
        state, timestep = self.env.reset(reset_key)
        hp = jnp.zeros(NUM_STAGES + 1, jnp.int32).at[1].set(state.game.player.hp)
        facts = {"seed": seed, "entry_hp": hp, "action": jnp.int32(-1)}
        return (state, seed, step_key, hp), _told(timestep, (state, state), **facts)

    def step(self, key: Key[Array, ""], state: Any, action: IntScalarLike) -> tuple[Any, TimeStep]:
        before, seed, step_key, hp = state
        now = jax.random.fold_in(step_key, before.game.steps)
        after, timestep = self.env.step(now, before, action)
        stage = after.game.stage
        hp = hp.at[stage].set(jnp.where(hp[stage] == 0, after.game.player.hp, hp[stage]))
        facts = {"seed": seed, "entry_hp": hp, "action": jnp.int32(action)}
        return (after, seed, step_key, hp), _told(timestep, (before, after), **facts)


def _told(timestep: TimeStep, positions: tuple[State, State], **facts: Any) -> TimeStep:
    """The timestep, with the facts, and with both positions without their histories."""
    both = jax.tree.map(lambda *x: jnp.stack(x), *positions)
    both = eqx.tree_at(lambda s: s.history, both, jax.tree.map(lambda x: x[:, :0], both.history))
    info = timestep.info | facts | {"positions": both}
    return eqx.tree_at(lambda t: t.info, timestep, info)


def losses(info: dict[str, Any]) -> list[Loss]:
    """The lost games, given the ``info`` of the last step of every game."""
    lost = np.flatnonzero(info["died"])
    before, after = (
        dump_all(jax.tree.map(lambda x, place=place: x[lost, place], info["positions"]))
        for place in range(2)
    )
    numbers = (info[name][lost].tolist() for name in ("seed", "action", "entry_hp"))
    return [loss_of(*facts) for facts in zip(*numbers, before, after, strict=True)]


def loss_of(
    seed: int, action: int, entry_hp: Sequence[int], before: plain.Position, after: plain.Position
) -> Loss:
    """The facts, given the hp at the start of each stage, and the positions around ``action``."""
    game, end = plain.load(before), plain.load(after)
    player, (row, col) = game.player, game.player.cell
    beside = [enemy for enemy in end.enemies if enemy.cell in plain.neighbors(end.player.cell)]
    seen = [e for e in game.enemies if game.show or e.cell[0] == row or e.cell[1] == col]
    others = sorted(plain.legal(game) - {action})
    return Loss(
        seed=seed,
        stage=end.stage,
        turns=end.turn,
        entry_hp=entry_hp[end.stage],
        hp=player.hp,
        action=ACTION_NAMES[action],
        safe=[ACTION_NAMES[other] for other in others if is_safe(game, other)],
        beside=[TYPES[enemy.type] for enemy in beside],
        siphoned=sum(enemy.from_siphon for enemy in beside),
        unseen=all(e.type == CRYPTOG for e in beside) and all(e.type != CRYPTOG for e in seen),
        unspent=[player.credits, player.energy, player.data_siphons],
        programs=[Program(program).card.name for program in sorted(game.owned)],
    )


def is_safe(game: plain.Game, action: int) -> bool:
    """Whether the player survives the enemy turn; after a program, with its best next action."""
    for seed in range(_TRIES):
        after = game.snapshot()
        result = plain.step(after, action, plain.Dice(seed))
        goes_on = action >= FIRST_PROGRAM and not result.completed and after.turn == game.turn
        following = [each for each in plain.legal(after) if each < FIRST_PROGRAM]
        if result.died or (goes_on and not any(is_safe(after, each) for each in following)):
            return False
    return True


def table(info: dict[str, Any], found: Sequence[Loss]) -> str:
    """Markdown: for each stage, the games that began it, the share that it ended, and the causes.

    There is one share for the games that began the stage with 3 hp, and one for those with 2. No
    game begins a stage with 1 hp, as completing a stage gives 1 hp.
    """
    causes = Counter((loss.stage, loss.cause) for loss in found)
    head = ["stage", "games", "lost with 3 hp", "lost with 2 hp", *CAUSES]
    rows = [head, ["---"] * len(head)]
    for stage in range(1, NUM_STAGES + 1):
        hp, is_lost = info["entry_hp"][:, stage], info["died"] & (info["stage"] == stage)
        groups = hp == MAX_HP, hp == MAX_HP - 1
        shares = [f"{100 * is_lost[g].mean():.1f} %" if g.any() else "" for g in groups]
        counts = (causes[stage, cause] for cause in CAUSES)
        rows.append([str(stage), str((hp > 0).sum()), *shares, *map(str, counts)])
    totals = Counter(loss.cause for loss in found)
    rows.append(["all", "", "", "", *(str(totals[cause]) for cause in CAUSES)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line, plays, and prints the table."""
    parser = argparse.ArgumentParser(description="Where and why a policy loses.")
    add_players(parser, TASK, several=False, max_steps=1000)
    parser.add_argument("--episodes", type=number(1), default=1000, help="games (default: 1000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each lost game there")
    options = parser.parse_args(arguments)
    agent = agent_of(load_players(options, TASK, DEFAULTS)[0], sample=options.sample)
    info = evaluate(
        agent.model,
        Remembering(agent.env),
        jax.random.key(options.seed),
        options.episodes,
        greedy=agent.greedy,
        max_steps=options.max_steps,
    ).final_info
    found = losses(info)
    if options.json:
        facts = [{"cause": loss.cause, **asdict(loss)} for loss in found]
        options.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    print(f"{agent.name} lost {len(found)} of {options.episodes} games\n\n{table(info, found)}")


if __name__ == "__main__":
    main()
