"""Trains an agent on HackMatrix: the game's defaults, and the parts wired together."""

import dataclasses

from hackmatrix import HackMatrix
from hackmatrix.board_network import BoardActorCritic
from hackmatrix.curriculum import starting_stages
from hackmatrix.metrics import METRICS
from hackmatrix.networks import PlayerCentredMLP, flat_mlp, player_centred_gru
from ppo_mask.runner import (
    LoggingSettings,
    Phases,
    RunConfig,
    Task,
    TrainingSettings,
    main,
    setting,
)


@dataclasses.dataclass(frozen=True)
class GameSettings:
    """HackMatrix."""

    undo_depth: int = setting(8, "positions that UNDO can go back through in a stage")
    max_steps: int | None = setting(None, "actions after which a game is cut off; none: no limit")
    curriculum: Phases | None = setting(
        None,
        "starting stages and their weights by progress, a YAML file; none: stage 1",
        changeable=True,
    )


TASK = Task[GameSettings](
    lambda game: HackMatrix(game.undo_depth, game.max_steps, compact=True),
    networks={
        "mlp": lambda env, sizes, key: PlayerCentredMLP(
            sizes.hidden_dim, sizes.num_layers, key=key
        ),
        "board": lambda env, sizes, key: BoardActorCritic(
            sizes.hidden_dim, sizes.num_layers, key=key
        ),
        "recurrent": lambda env, sizes, key: player_centred_gru(sizes.hidden_dim, key=key),
        "flat": lambda env, sizes, key: flat_mlp(sizes.hidden_dim, sizes.num_layers, key=key),
    },
    metrics=METRICS,
    figures={"stage": "stats/mean_stage", "highest": "stats/highest_stage"},
    curriculum=lambda game: starting_stages(game.curriculum),
)
# Programs are rare among the actions; with less entropy the policy forgets them early.
DEFAULTS = RunConfig(
    environment=GameSettings(),
    training=TrainingSettings(ent_coef=0.15),
    logging=LoggingSettings(project="hackmatrix"),
)

if __name__ == "__main__":
    raise SystemExit(main(TASK, DEFAULTS, description="Trains an agent on HackMatrix with PPO."))
