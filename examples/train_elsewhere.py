"""Trains on an environment of another library, by its name.

pip install 'ppo-mask[adapters]'
python examples/train_elsewhere.py --library jumanji --name Snake-v1 --network conv
python examples/train_elsewhere.py --library pgx --name connect_four --opponent self
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxtyping import Array

from ppo_mask.adapters.gymnax import GymnaxEnv
from ppo_mask.adapters.jumanji import JumanjiEnv
from ppo_mask.adapters.navix import NavixEnv
from ppo_mask.adapters.pgx import PgxGame
from ppo_mask.checkpoints import load_policy
from ppo_mask.envs import AbstractEnv
from ppo_mask.games import Opponent, Seat, random_opponent
from ppo_mask.networks import Model, network_for
from ppo_mask.ppo import PPO
from ppo_mask.runner import NetworkSettings, RunConfig, RunSettings, Task, main, setting
from ppo_mask.training import SelfPlay


@dataclasses.dataclass(frozen=True)
class Elsewhere:
    """The environment."""

    library: str = setting("gymnax", "its library", one_of=("gymnax", "jumanji", "navix", "pgx"))
    name: str = setting("CartPole-v1", "its name in its library")
    opponent: str | None = setting(
        None,
        "who plays the other players in a pgx game: random; self, which is a copy of the learner; "
        "or a saved policy or run",
    )
    eval_opponent: str = setting(
        "random",
        "the opponent in evaluations if --opponent is self: random, or a saved policy or run",
    )
    renew_every: int = setting(10, "updates between two copies of the learner", at_least=1)
    pool: int = setting(
        1,
        "opponents side by side if --opponent is self: older copies, and from 2 on the opponent of "
        "evaluations; divides --num-envs",
        at_least=1,
    )
    join_above: float = setting(
        0.6,
        "in a pool, a copy joins that gets more than this share of points against the newest",
        at_least=0,
        at_most=1,
    )


def find_opponent(name: str) -> Opponent:
    """Loads the opponent with this name."""
    return random_opponent if name == "random" else load_policy(name).model


def make_env(settings: Elsewhere) -> AbstractEnv[Any]:
    """Makes the environment for evaluations."""
    if settings.library != "pgx" and settings.opponent is not None:
        raise ValueError(f"{settings.library} has no opponents: leave opponent out, or set it none")
    if settings.library == "gymnax":
        return GymnaxEnv(settings.name)
    if settings.library == "jumanji":
        return JumanjiEnv(settings.name)
    if settings.library == "navix":
        return NavixEnv(settings.name)
    is_self = settings.opponent == "self"
    opponent = settings.eval_opponent if is_self else settings.opponent
    return Seat(PgxGame(settings.name), None if opponent is None else find_opponent(opponent))


def make_curriculum(settings: Elsewhere) -> SelfPlay | None:
    """Makes the self-play curriculum, if ``--opponent self`` asks for it."""
    if settings.library != "pgx" or settings.opponent != "self":
        return None
    self_play = SelfPlay(lambda env: env.opponent, settings.renew_every)
    if settings.pool == 1:
        return self_play
    anchor = find_opponent(settings.eval_opponent)
    return dataclasses.replace(
        self_play, size=settings.pool, share=settings.join_above, fixed=(anchor,)
    )


def make_model(kind: str, *names: str, **more: bool) -> Callable[..., Model]:
    """Returns a function that makes a kind of network, of the sizes with these names."""

    def make(env: AbstractEnv[Any], network: NetworkSettings, key: Array) -> Model:
        sizes = {name: getattr(network, name) for name in names}
        return network_for(env, kind, key=key, **sizes, **more)

    return make


NETWORKS = {
    # Layer norm is for returns of hundreds; see docs/tuning.md.
    "mlp": make_model("mlp", "hidden_dim", "num_layers", "activation", layer_norm=True),
    "conv": make_model("conv", "hidden_dim"),
    "gru": make_model("gru", "hidden_dim"),
    "sets": make_model("sets", "hidden_dim", "num_layers", "activation"),
}
TASK = Task[Elsewhere](make_env, networks=NETWORKS, curriculum=make_curriculum)
DEFAULTS = RunConfig(
    Elsewhere(),
    # Rewards and minibatches: of six tasks they help some and harm none, see docs/tuning.md.
    PPO(num_envs=32, learning_rate=1e-3, num_minibatches=16, normalize_rewards=True),
    run=RunSettings(total_timesteps=500_000),
)

if __name__ == "__main__":
    raise SystemExit(main(TASK, DEFAULTS, description="Trains on other libraries' environments."))
