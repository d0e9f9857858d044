"""Self-play: training against older copies of the learner, and other fixed players."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Real, Scalar

from ppo_mask.envs import AbstractEnv
from ppo_mask.envs._vector import PerGroup
from ppo_mask.errors import FieldError, RunError, check_at_least
from ppo_mask.games import Opponent
from ppo_mask.games._opponents import Lineup, as_player
from ppo_mask.networks import Model
from ppo_mask.training._curriculum import AbstractCurriculum

PER_ELO = math.log(10) / 400  # Elo's unit: 400 points are odds of ten to one.
_KEPT = 0.95  # Of the results, from update to update: a mean over the last 20 or so.
_FEW_GAMES = 20


class Pool(eqx.Module):
    """The memory of :class:`SelfPlay`: its opponents, and the learner's results against them.

    Attributes:
        copies: older copies of the learner; the model's arrays have a leading axis ``copies``.
        joined: the update before which each joined; -1 for the model that training began with.
        games: recent games against each opponent, those long ago counting less. First the copies.
        points: the learner's points in them: 1 for a win, ½ for a draw.
        games_then: the games that each copy had had against the first fixed player when it joined.
        points_then: the points in these games.
        elo: the learner's rating.
        elo_of: the copies' ratings.
    """

    copies: Model
    joined: Int[Array, " copies"]
    games: Float[Array, " opponents"]
    points: Float[Array, " opponents"]
    games_then: Float[Array, " copies"]
    points_then: Float[Array, " copies"]
    elo: Float[Array, ""]
    elo_of: Float[Array, " copies"]

    @property
    def scores(self) -> Float[Array, " opponents"]:
        """The learner's share of points against each opponent; one more draw is added."""
        return (self.points + 0.5) / (self.games + 1)


@final
class SelfPlay(AbstractCurriculum):
    """A curriculum that puts older copies of the learner into the environment, as opponents.

    The opponents are the curriculum's memory. By default there is one, a copy that is renewed
    before the first update and then every ``every`` updates. With more, environment ``i`` plays
    against opponent ``i % size``: against a copy, or against one of the ``fixed`` players. Once the
    learner gets more than ``share`` of the points against the newest copy, a new copy joins. It
    takes the place of the copy against which the learner gets most.

    A renewal changes only values, so nothing compiles again. A running episode continues against
    the new copy. Evaluations keep the environment's original opponent.

    A pool, or a ``share``, needs an ``info`` with the ``outcome`` of an episode, as that of a
    :class:`~ppo_mask.games.Seat` has it. Log lines then say how the learner fares:

    - ``self_play/score_copy0``, ``self_play/score_fixed0``, …: the share of recent points against
      each opponent.
    - ``self_play/elo``, ``self_play/elo_copy0``, …: the ratings (Elo 1978) of the learner and its
      copies, if there is a fixed player; the first one has 0. They are the most likely ones, given
      the learner's recent results, and each copy's results against the first fixed player when
      the copy joined.

    Attributes:
        where: selects the part of the environment that the opponents replace, as in
            ``equinox.tree_at``.
        every: updates between renewals; with ``share``, at least so many.
        size: the number of opponents, with the fixed ones. Each device must have a multiple of
            ``size`` environments.
        share: the share of points against the newest copy above which a copy joins; 0 for any.
        fixed: opponents that stay as they are, such as :func:`~ppo_mask.games.random_opponent`.

    Raises:
        FieldError: ``every`` is below 1, ``size`` leaves no place for a copy, or ``share`` is not
            from 0 to 1.

    Example:
        >>> import ppo_mask as pm
        >>> from ppo_mask.adapters.pgx import PgxGame
        >>> from ppo_mask.games import Seat, random_opponent
        >>> env = Seat(PgxGame("tic_tac_toe"), random_opponent)
        >>> curriculum = pm.training.SelfPlay(
        ...     lambda env: env.opponent, every=5, size=4, share=0.6, fixed=(random_opponent,)
        ... )
        >>> trainer = pm.Trainer(env, pm.PPO(num_envs=4, num_steps=8), curriculum=curriculum)
    """

    where: Callable[[Any], Any] = eqx.field(static=True)
    every: int = eqx.field(static=True, default=10)
    size: int = eqx.field(static=True, default=1)
    share: float = eqx.field(static=True, default=0.0)
    fixed: tuple[Opponent, ...] = ()

    def __check_init__(self) -> None:
        check_at_least(1, every=self.every)
        check_at_least(len(self.fixed) + 1, size=self.size)
        if not 0 <= self.share <= 1:
            raise FieldError("share", f"must be from 0 to 1, got {self.share}")

    @property
    def num_copies(self) -> int:
        """The number of copies of the learner."""
        return self.size - len(self.fixed)

    def init(self, model: Model) -> Pool:
        """Returns a pool in which every copy is the model that training begins with."""
        copies, nothing = self.num_copies, jnp.zeros(self.size)

        def spread(x: Any) -> Any:
            return jnp.broadcast_to(x, (copies, *x.shape)) if eqx.is_array(x) else x

        joined = jnp.full(copies, -1, jnp.int32)
        rest = (nothing[:copies], nothing[:copies], jnp.zeros(()), nothing[:copies])
        return Pool(jax.tree.map(spread, model), joined, nothing, nothing, *rest)

    def renew(self, memory: Pool, model: Model, updates: Real[Array, ""]) -> Pool:
        """Lets a copy join, if one is due."""
        updates = updates.astype(jnp.int32)
        newest = memory.joined.argmax()
        is_better = memory.points[newest] > self.share * memory.games[newest]
        is_better &= memory.games[newest] >= _FEW_GAMES
        due = (updates % self.every == 0) & (updates > 0) & (is_better | (self.share == 0))
        # The first copies leave first. While the newest is not old, it stays.
        places = jnp.arange(self.num_copies)
        leave = memory.scores[: self.num_copies] + (memory.joined < 0) - 2 * (places == newest)
        joins = due & (places == leave.argmax())
        unknown = jnp.pad(joins, (0, len(self.fixed)))

        def newer(old: Any, new: Any) -> Any:
            if not eqx.is_array(old):
                return old
            begins_here = (joins | (updates == 0)).reshape(-1, *(1 for _ in new.shape))
            return jnp.where(begins_here, new, old)

        return Pool(
            copies=jax.tree.map(newer, memory.copies, model),
            joined=jnp.where(joins, updates, memory.joined),
            games=jnp.where(unknown, 0, memory.games),
            points=jnp.where(unknown, 0, memory.points),
            games_then=jnp.where(joins, memory.games[self._anchor], memory.games_then),
            points_then=jnp.where(joins, memory.points[self._anchor], memory.points_then),
            elo=memory.elo,
            elo_of=jnp.where(joins, memory.elo, memory.elo_of),
        )

    def __call__(
        self, env: AbstractEnv[Any], progress: Float[Array, ""], memory: Pool
    ) -> AbstractEnv[Any]:
        """Puts the opponents into the environment."""
        copies = memory.copies
        if self.size == 1:
            opponent: Any = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, copies)
        else:
            number = jnp.maximum(jnp.arange(self.size) - self.num_copies + 1, 0)
            # A fixed player's group has the first copy, which does not play there.
            copy = jnp.where(number > 0, 0, jnp.arange(self.size))
            each = jax.tree.map(lambda x: x[copy] if eqx.is_array(x) else x, copies)
            opponent = Lineup(PerGroup((each, number)), tuple(map(as_player, self.fixed)))
        return eqx.tree_at(self.where, env, opponent, is_leaf=lambda x: x is None)

    def update(
        self, memory: Pool, info: Mapping[str, Array], ended: Bool[Array, "steps envs"]
    ) -> Pool:
        """Counts the rollout's results, and rates the learner."""
        if not self._keeps_score:
            return memory
        if "outcome" not in info:
            raise RunError(
                "a pool of opponents needs to know who won: the environment's info must have an "
                "outcome, 1 for a win, 0.5 for a draw and 0 for a loss"
            )

        def add(recent: Array, new: Array) -> Array:
            return _KEPT * recent + new.reshape(-1, self.size).sum(0)

        games = add(memory.games, ended.astype(jnp.float32))
        points = add(memory.points, jnp.where(ended, info["outcome"], 0))
        memory = dataclasses.replace(memory, games=games, points=points)
        if not self.fixed:
            return memory
        copies, rated = self.num_copies, self.num_copies + 1
        games_of = jnp.stack([games[:copies], memory.games_then])  # With the learner, the anchor.
        points_of = jnp.stack([(games - points)[:copies], memory.points_then])

        def newton(_: Any, ratings: Any) -> Any:
            elo, elo_of = ratings
            elo = _more_likely(elo, jnp.pad(elo_of, (0, 1)), games[:rated], points[:rated])
            others = jnp.stack([jnp.full_like(elo_of, elo), jnp.zeros_like(elo_of)])
            return elo, _more_likely(elo_of, others, games_of, points_of)

        elo, elo_of = jax.lax.fori_loop(0, 16, newton, (memory.elo, memory.elo_of))
        return dataclasses.replace(memory, elo=elo, elo_of=elo_of)

    def metrics(self, memory: Pool) -> dict[str, Scalar]:
        """Returns the ratings, and the scores against each opponent."""
        if not self._keeps_score:
            return {}
        copies = [f"copy{i}" for i in range(self.num_copies)]
        names = [*copies, *(f"fixed{i}" for i in range(len(self.fixed)))]
        scores = {f"self_play/score_{x}": memory.scores[i] for i, x in enumerate(names)}
        if not self.fixed:
            return scores
        ratings = {f"self_play/elo_{x}": memory.elo_of[i] for i, x in enumerate(copies)}
        return {"self_play/elo": memory.elo, **ratings, **scores}

    @property
    def _keeps_score(self) -> bool:
        """Whether results matter: not for one copy that is renewed by time alone."""
        return self.size > 1 or self.share > 0

    @property
    def _anchor(self) -> int:
        """The number of the opponent whose rating is 0."""
        return min(self.num_copies, self.size - 1)


def _more_likely(
    elo: Float[Array, "*players"],
    others: Float[Array, "others *players"],
    games: Float[Array, "others *players"],
    points: Float[Array, "others *players"],
) -> Float[Array, "*players"]:
    """Makes a step of Newton's method to the most likely ratings, given those of the others.

    There is one more game with each other, a draw, so that who always wins has a finite rating.
    """
    expected = jax.nn.sigmoid((elo - others) * PER_ELO)
    slope = (points + 0.5 - (games + 1) * expected).sum(0)
    curvature = ((games + 1) * expected * (1 - expected)).sum(0)
    return elo + jnp.clip(slope / curvature, -1, 1) / PER_ELO
