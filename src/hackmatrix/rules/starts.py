"""How a game begins: like the original game or, in training, in a later stage or with extras."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hackmatrix.rules.batching import join, total
from hackmatrix.rules.draws import Draws, Use
from hackmatrix.rules.game import NUM_STAGES, Game, blank_game, replace
from hackmatrix.rules.programs import NUM_PROGRAMS
from hackmatrix.rules.stages import CORNERS
from ppo_mask.jax_tools import sane_weights

_BONUSES = ((10, 0, 0), (0, 11, 0), (0, 0, 1))  # credits, energy, data siphons
_ONE = 1 << 16  # chances are multiples of 1 / _ONE
_BIT = np.uint32(1) << np.arange(NUM_PROGRAMS, dtype=np.uint32)

MOST_GIVEN = 10_000
"""The largest amount that a head start gives: some of the game's numbers have only 16 bits."""

Amount = Float[Array, ""] | float | int


class HeadStart(eqx.Module):
    """Extras that some training games begin with.

    Earning a program brings enemies now and pays off stages later, so an agent that has never owned
    a program rarely learns what a program is worth. A head start with programs helps. Each game
    with a head start samples its amounts, uniformly from 0 to the numbers given here. All numbers
    may be traced, so a curriculum can change them. Amounts over 10,000 count as 10,000.

    Attributes:
        share: the share of games with a head start, 0 to 1.
        programs: the highest probability with which the player owns each program. Each game samples
            its own probability between 0 and this value.
        credits: the most credits added.
        energy: the most energy added.
        data_siphons: the most data siphons added.
        attack: the most attack added.
        score: the most points added for each stage before the starting stage.

    Example:
        >>> import hackmatrix as hm
        >>> env = hm.HackMatrix(head_start=hm.HeadStart(share=0.5, programs=0.3, energy=8))
    """

    share: Amount = 1.0
    programs: Amount = 0.0
    credits: Amount = 0
    energy: Amount = 0
    data_siphons: Amount = 0
    attack: Amount = 0
    score: Amount = 0


class Start(NamedTuple):
    """How games begin.

    Attributes:
        stage_weights: the relative frequency of each starting stage; None for always stage 1.
        head_start: extras that some games begin with; None for none.
    """

    stage_weights: Float[Array, "stages"] | None
    head_start: HeadStart | None


def first_position(draws: Draws, start: Start) -> Game:
    """Makes a new game, before its first stage is set up."""
    game = blank_game()
    corner = jnp.array(CORNERS, jnp.int32)[draws.below(len(CORNERS), Use.CORNER)]
    bonus = draws.below(len(_BONUSES), Use.BONUS)
    credits, energy, data_siphons = jnp.array(_BONUSES, jnp.int32)[bonus]
    player = replace(
        game.player, cell=corner, credits=credits, energy=energy, data_siphons=data_siphons
    )
    game = replace(game, player=player)
    if start.stage_weights is not None:
        game = replace(game, stage=_draw_stage(draws, start.stage_weights))
    return game if start.head_start is None else _give(game, start.head_start, draws)


def _draw_stage(draws: Draws, weights: Float[Array, "stages"]) -> Int[Array, ""]:
    # In integers, whose sums are exact, so that a stage of weight 0 is never sampled.
    weights = sane_weights(weights)
    shares = jnp.ceil(weights / jnp.sum(weights) * _ONE).astype(jnp.int32)
    index = np.arange(NUM_STAGES)
    up_to = total(jnp.where(index <= index[:, None], shares, 0))
    draw = draws.below(total(shares), Use.STAGE)
    return 1 + jnp.argmax(draw < up_to).astype(jnp.int32)


def _give(game: Game, head_start: HeadStart, draws: Draws) -> Game:
    given = draws.below(_ONE, Use.HEAD_START) < _whole(head_start.share * _ONE)

    def up_to(most: Int[Array, ""], number: int) -> Int[Array, ""]:
        return jnp.where(given, draws.below(most + 1, Use.GIVEN, number), 0)

    def amount(most: Any) -> Int[Array, ""]:
        return _whole(jnp.clip(most, 0, MOST_GIVEN))

    chance = up_to(_whole(head_start.programs * _ONE), 0)
    owned = draws.below(_ONE, Use.GIVEN_PROGRAM, np.arange(NUM_PROGRAMS)) < chance
    player = game.player
    player = replace(
        player,
        credits=player.credits + up_to(amount(head_start.credits), 1),
        energy=player.energy + up_to(amount(head_start.energy), 2),
        data_siphons=player.data_siphons + up_to(amount(head_start.data_siphons), 3),
        attack=player.attack + up_to(amount(head_start.attack), 4),
        score=player.score + up_to(amount(head_start.score) * (game.stage - 1), 5),
    )
    return replace(game, player=player, owned=join(jnp.where(owned, _BIT, jnp.uint32(0))))


def _whole(number: Any) -> Int[Array, ""]:
    return jnp.asarray(number).astype(jnp.int32)
