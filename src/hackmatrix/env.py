"""HackMatrix as an environment. ``HackMatrix._turn`` has the phases of a step, in order."""

from typing import ClassVar, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from hackmatrix import imagination
from hackmatrix.actions import ACTION_NAMES, FIRST_PROGRAM, NUM_ACTIONS, SIPHON_ACTION
from hackmatrix.observation import Observation, compact, expand, ground_words, with_time
from hackmatrix.rules import bits, effects, enemies, history, moves, paths, rewards, siphon
from hackmatrix.rules.batching import anywhere, materialize, stack_scalars
from hackmatrix.rules.draws import Draws
from hackmatrix.rules.entities import Occupied
from hackmatrix.rules.game import MAX_HP, NO_PROGRAM, NUM_STAGES, Game, choose, replace
from hackmatrix.rules.programs import Program
from hackmatrix.rules.spawning import is_due, spawn_due
from hackmatrix.rules.stages import set_up
from hackmatrix.rules.starts import HeadStart, Start, first_position
from hackmatrix.rules.state import MAX_UNDO_DEPTH, Packed, State, pack, pack_moved, pack_spawned
from ppo_mask.envs import AbstractEnv, Next, TimeStep
from ppo_mask.jax_tools import IntScalarLike, check_weights, jit_inline, number_settings, rarely

MIN_UNDO_DEPTH = 8


class _Action(NamedTuple):
    """A decoded action."""

    moves: Bool[Array, ""]  # the action is a move
    direction: Int[Array, ""]  # the direction of a move
    siphons: Bool[Array, ""]  # the action is SIPHON
    program: Int[Array, ""]  # a program's number, or -1


class _Run(NamedTuple):
    """The result of SIPHON or a program."""

    packed: Packed  # the position after SIPHON or the program
    before: rewards.Standing  # numbers of the position before SIPHON or the program
    kills: Int[Array, ""]  # destroyed entities that are rewarded
    lost_yield: Int[Array, ""]  # how much more SIPHON would have brought from a better place

    def flat(self) -> "_FlatRun":
        """Returns ``packed``, and an array of all other fields, because each array costs time."""
        return self.packed, stack_scalars([*self.before, self.kills, self.lost_yield])

    @classmethod
    def of_flat(cls, flat: "_FlatRun") -> "_Run":
        """The inverse of :meth:`flat`."""
        packed, (*before, kills, lost_yield) = flat
        return cls(packed, rewards.Standing(*before), kills, lost_yield)


_FlatRun: TypeAlias = tuple[Packed, Int[Array, "numbers"]]


class _Turn(NamedTuple):
    """The result of a step, before a new stage or a new game is set up."""

    packed: Packed  # the position; a new stage is not set up yet
    altered: Bool[Array, ""]  # the board may have changed
    remembered: Bool[Array, ""]  # the position goes into the history
    draws: Draws
    new_stage: Bool[Array, ""]  # a stage was entered
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    reward: Float[Array, ""]
    info: dict[str, Array]

    @property
    def ended(self) -> Bool[Array, ""]:
        return self.terminated | self.truncated

    def timestep(self, observation: Observation, mask: Bool[Array, "m"]) -> TimeStep:
        return TimeStep(
            observation=observation,
            action_mask=mask | self.terminated,
            reward=self.reward,
            terminated=self.terminated,
            truncated=self.truncated,
            info=self.info,
        )


class HackMatrix(AbstractEnv[State]):
    """A turn-based roguelike on a 6×6 grid, with 28 actions, 23 programs and 8 stages.

    The observation is flat, float32[1545], or a :class:`~hackmatrix.observation.CompactObservation`
    with the same content. An action outside the mask changes nothing, ends the episode and gives no
    reward. ``info`` holds ``reward/<component>`` for all 15 components,
    ``stage``, ``score``, ``won``, ``died``, ``stage_completed`` and ``invalid_action``.

    Attributes:
        undo_depth: positions that UNDO can go back through in a stage, at least 8.
        max_steps: actions after which an episode is truncated; None for no limit.
        starting_weights: for training, the relative frequency of each starting stage (rounded up to
            multiples of 1/65536 of their sum); None for always stage 1. A game that begins in a
            later stage has that stage's layout, transmissions and turns between spawns. The player
            starts as in stage 1, and there are no enemies yet.
        head_start: for training, extras that some games begin with.
        shaping: for training, how the reward differs from the original reward. The components in
            ``info`` are always those of the original reward.
        compact: whether observations are compact. Compact observations take a twentieth of the
            memory and are quicker to write. The networks in :mod:`hackmatrix` take either form.
        time_aware: whether an observation is a
            :class:`~hackmatrix.observation.TimeAwareObservation`, which adds the number of actions
            taken (Pardo et al. 2018, arXiv:1712.00378).
        action_names: the names of the actions.
    """

    undo_depth: int = eqx.field(default=MIN_UNDO_DEPTH, static=True)
    max_steps: int | None = eqx.field(default=None, static=True)
    starting_weights: Float[Array, "stages"] | None = None
    head_start: HeadStart | None = None
    shaping: rewards.Shaping | None = None
    compact: bool = eqx.field(default=False, static=True)
    time_aware: bool = eqx.field(default=False, static=True)
    num_actions: int = eqx.field(default=NUM_ACTIONS, static=True, init=False)
    action_names: ClassVar[tuple[str, ...]] = ACTION_NAMES

    def __check_init__(self) -> None:
        if not MIN_UNDO_DEPTH <= (depth := self.undo_depth) <= MAX_UNDO_DEPTH:
            low = depth < MIN_UNDO_DEPTH
            bound = f"least {MIN_UNDO_DEPTH}" if low else f"most {MAX_UNDO_DEPTH}"
            raise ValueError(f"undo_depth must be at {bound}, got {depth}")
        if self.max_steps is not None and not 1 <= self.max_steps < 1 << 31:
            bound = "at least 1" if self.max_steps < 1 else f"at most {(1 << 31) - 1}"
            raise ValueError(f"max_steps must be {bound} or None, got {self.max_steps}")
        weights = self.starting_weights
        if weights is not None and weights.shape != (NUM_STAGES,):
            raise ValueError(
                f"starting_weights must be {NUM_STAGES} numbers, one for each stage, got an array "
                f"of shape {weights.shape}"
            )
        check_weights("starting_weights", weights)

    @number_settings()
    @jit_inline
    def reset(self, key: Key[Array, ""]) -> tuple[State, TimeStep]:
        """Starts a new game."""
        draws = Draws(key)
        game = set_up(first_position(draws, self._start), draws)
        off = jnp.bool_(False)
        components = {name: jnp.float32(0) for name in rewards.COMPONENTS}
        info = _info(components, game, off, off, off, off)
        state = _first_state(game, self.undo_depth)
        start = _Turn(state.packed, off, off, draws, off, off, off, jnp.float32(0), info)
        return state, start.timestep(self._seen(state.game, state.ground), state.valid)

    @number_settings()
    def step(
        self, key: Key[Array, ""], state: State, action: IntScalarLike
    ) -> tuple[State, TimeStep]:
        """Plays an action and, if it ends the turn, the enemy turn."""
        return self._step(key, state, jnp.asarray(action, jnp.int32))

    @jit_inline
    def _step(
        self, key: Key[Array, ""], state: State, action: Int[Array, ""]
    ) -> tuple[State, TimeStep]:
        turn = self._turn(Draws(key), state, action)
        packed = self._in_stage(turn, turn.new_stage)
        following = self._next(state, turn, packed, turn.new_stage)
        return following.state, turn.timestep(following.observation, following.action_mask)

    @number_settings()
    @jit_inline
    def imagine(self, key: Key[Array, ""], state: State) -> Next[State]:
        """Draws what the player cannot see: see :mod:`hackmatrix.imagination`."""
        draws, now = Draws(key), state.game
        unseen = imagination.draw(now, draws)
        game = imagination.put(now, unseen)
        # Where the history was not kept, because the player could not get UNDO, but now can.
        rows = choose(history.is_kept(now), state.history, _repeated(state.packed, state.history))
        rows = jax.vmap(lambda row: pack(imagination.put(row.game, unseen)))(rows)
        # The mask shows some of what is hidden: there it is as it was.
        state = self._if_alike(state, game, rows)
        moved = imagination.move_cryptogs(state.game, draws)
        state = self._if_alike(state, moved, state.history)
        return Next(state, self.observe(state), _offered(state.valid))

    def _if_alike(self, state: State, game: Game, rows: history.Rows) -> State:
        """The state of ``game`` if it looks like ``state`` to the player, else ``state``."""
        drawn = _state(pack(game), game, state.ground, rows)
        seen = [(compact(x.game, x.ground, among_few=True), x.valid) for x in (state, drawn)]
        return choose(jnp.asarray(eqx.tree_equal(*seen)), drawn, state)

    @number_settings()
    def step_and_reset(
        self,
        step_key: Key[Array, ""],
        reset_key: Key[Array, ""],
        state: State,
        action: IntScalarLike,
    ) -> tuple[TimeStep, Next[State]]:
        """Plays a step and, if the step ends the game, starts a new game.

        Setting up a stage is expensive, so new stages and new games share the code that does it.
        """
        draws, fresh = Draws.of_each(step_key, reset_key)
        turn = self._turn(draws, state, jnp.asarray(action, jnp.int32))
        last = packed = turn.packed
        if self.max_steps is not None:  # The last observation may be of a stage just entered.
            last = self._in_stage(turn, turn.new_stage & turn.ended)
        begins = turn.new_stage | turn.ended
        packed = rarely(
            begins,
            _enter_stage_or_begin,
            (packed, turn.draws, fresh, turn.ended, begins, self._start),
            packed,
            share=64,
            short=True,
        )
        following = self._next(state, turn, packed, begins)
        seen = following.observation, following.action_mask
        return turn.timestep(
            *rarely(turn.ended, self._seen_anew, last, seen, short=True)
        ), following

    @property
    def _start(self) -> Start:
        return Start(self.starting_weights, self.head_start)

    def _in_stage(self, turn: _Turn, entered: Bool[Array, ""]) -> Packed:
        """The position after the turn, with the stage set up where one was ``entered``."""
        operand = (turn.packed, turn.draws, entered)
        return rarely(entered, _enter_stage, operand, turn.packed, short=True)

    def _next(
        self, state: State, turn: _Turn, packed: Packed, begins: Bool[Array, ""]
    ) -> Next[State]:
        """The state, observation and mask after a turn; ``begins``: a stage was just set up."""
        game = packed.game
        ground = rarely(turn.altered | begins, _ground, packed, state.ground, short=True)
        rows = history.push(state.history, packed, game, turn.remembered)
        state = _state(packed, game, ground, rows)
        return Next(state, self._seen(game, ground), _offered(state.valid))

    def _turn(self, draws: Draws, state: State, action: Int[Array, ""]) -> _Turn:
        in_range = (action >= 0) & (action < NUM_ACTIONS)
        valid = in_range & state.valid[jnp.clip(action, 0, NUM_ACTIONS - 1)]
        act = _parts(action, valid)
        start = state.game
        draws = replace(draws, words=materialize(draws.words, start.steps < 0))
        # Most actions are moves. `rarely` runs SIPHON and programs only in the games that need it.
        nothing = jnp.int32(0)
        unmoved = _Run(state.packed, rewards.standing(start), nothing, nothing).flat()
        given = (*unmoved, state.history, draws, action)
        run = _Run.of_flat(rarely(valid & ~act.moves, _run, given, unmoved, short=True))
        # `occupied` is from before `_run`, which has changed nothing if the action is a move.
        moved = moves.move(run.packed.game, state.occupied, act.direction, act.moves)
        game = moved.game
        completed = (moved.walked | (act.program == Program.WARP)) & (game.player.cell == game.exit)
        won = completed & (game.stage == NUM_STAGES)
        new_stage = completed & ~won
        game = _reward_stage(game, completed)

        ends_turn = (act.moves & ~completed) | act.siphons | (act.program == Program.WAIT)
        enemies_act = ends_turn & ~game.step_pending
        game = choose(enemies_act, enemies.enemy_turn(game, draws), game)
        game = history.count(game, self.undo_depth, enemies_act)
        game = replace(
            game,
            stage=game.stage + new_stage,
            step_pending=game.step_pending & ~ends_turn,
            steps=jnp.maximum(game.steps + 1, game.steps),  # Saturates at 2^31 - 1.
        )
        packed = pack_moved(game, run.packed.slow)
        due = enemies_act & is_due(game)
        packed = rarely(due, _spawn, (packed, draws), packed, short=True)
        died = enemies_act & (game.player.hp <= 0)

        events = rewards.Events(
            kills=run.kills + moved.kills,
            picked_up=moved.picked_up,
            completed=completed,
            won=won,
            died=died,
            wasted_reset=(act.program == Program.RESET) & (run.before.hp == MAX_HP - 1),
            lost_yield=run.lost_yield,
        )
        components = rewards.components(run.before, game, events)
        components = {name: jnp.where(valid, x, 0.0) for name, x in components.items()}
        reward = sum(components.values(), start=jnp.float32(0))
        if self.shaping is not None:
            shaped = rewards.shape(self.shaping, components, run.before, game, events)
            reward = jnp.where(valid, shaped, 0.0)
        terminated, truncated = won | died | ~valid, jnp.bool_(False)
        if self.max_steps is not None:
            truncated = ~terminated & (game.steps >= self.max_steps)
        return _Turn(
            packed,
            (valid & ~act.moves) | moved.picked_up,
            enemies_act,
            draws,
            new_stage,
            terminated,
            truncated,
            reward=reward,
            info=_info(components, game, won, died, completed, ~valid),
        )

    @number_settings()
    @jit_inline
    def observe(self, state: State) -> Observation:
        """The observation of a position, in the form that this environment uses."""
        return self._seen(state.game, state.ground)

    def _seen(
        self, game: Game, ground: UInt32[Array, "words cells"], among_few: bool = False
    ) -> Observation:
        seen = compact(game, ground, among_few)
        if self.time_aware:
            return with_time(seen, game)
        return seen if self.compact else expand(seen)

    def _seen_anew(self, packed: Packed) -> tuple[Observation, Bool[Array, "actions"]]:
        game = packed.game
        if self.max_steps is None:  # Then every end is terminal, and allows every action.
            mask = jnp.ones(NUM_ACTIONS, bool)
        else:
            mask = _offered(_valid_actions(game, game.entities.occupied()))
        return self._seen(game, ground_words(game.board), among_few=True), mask

    def action_mask(self, state: State) -> Bool[Array, "actions"]:
        """Which actions are valid in a position."""
        return state.valid


@number_settings()
def new_state(game: Game, undo_depth: int) -> State:
    """Makes the state of a position, with an empty history."""
    steps = paths.exit_steps(game.board.blocks, game.exit)
    return _first_state(replace(game, board=replace(game.board, exit_steps=steps)), undo_depth)


def _first_state(game: Game, undo_depth: int) -> State:
    packed = pack(game)
    return _state(
        packed, packed.game, ground_words(game.board), history.no_rows(packed, undo_depth)
    )


def _state(
    packed: Packed, game: Game, ground: UInt32[Array, "words cells"], rows: history.Rows
) -> State:
    occupied = game.entities.occupied()
    return State(packed, _valid_actions(game, occupied), occupied, ground, rows)


def _repeated(packed: Packed, rows: history.Rows) -> history.Rows:
    return jax.tree.map(lambda x, like: jnp.broadcast_to(x, like.shape), packed, rows)


def _ground(packed: Packed) -> UInt32[Array, "words cells"]:
    return ground_words(packed.game.board)


def _valid_actions(game: Game, occupied: Occupied) -> Bool[Array, "actions"]:
    useful = [
        *moves.valid_moves(game, occupied.enemies),
        game.player.data_siphons > 0,
        *effects.useful(game, occupied),
    ]
    word = materialize(bits.word(useful), game.steps < 0)
    return bits.flags_of(word, NUM_ACTIONS) & effects.at_hand(game, FIRST_PROGRAM)


def _offered(valid: Bool[Array, "actions"]) -> Bool[Array, "actions"]:
    """The mask: the valid actions or, if there are none, all.

    A player who is walled in and can neither siphon nor run a program has no valid action. Any
    action then ends the episode.
    """
    return valid | ~anywhere(valid)


def _info(
    components: dict[str, Float[Array, ""]], game: Game, *flags: Bool[Array, ""]
) -> dict[str, Array]:
    """A step's info; the flags are ``won``, ``died``, ``stage_completed``, ``invalid_action``."""
    names = ("won", "died", "stage_completed", "invalid_action")
    numbers = {f"reward/{name}": component for name, component in components.items()}
    numbers |= {"stage": game.stage, "score": game.player.score}
    return numbers | dict(zip(names, flags, strict=True))


def _parts(action: Int[Array, ""], valid: Bool[Array, ""]) -> _Action:
    """Decodes an action; an invalid action is no move, no SIPHON and no program."""
    is_move = valid & (action < SIPHON_ACTION)
    return _Action(
        moves=is_move,
        direction=jnp.where(is_move, action, 0),
        siphons=valid & (action == SIPHON_ACTION),
        program=jnp.where(valid & (action >= FIRST_PROGRAM), action - FIRST_PROGRAM, NO_PROGRAM),
    )


def _enter_stage(operand: tuple[Packed, Draws, Bool[Array, ""]]) -> Packed:
    packed, draws, entered = operand
    return pack(set_up(packed.game, draws, entered))


def _enter_stage_or_begin(
    operand: tuple[Packed, Draws, Draws, Bool[Array, ""], Bool[Array, ""], Start],
) -> Packed:
    """Sets up the stage that was entered or, where the game is over, a new game."""
    packed, draws, fresh, over, begins, start = operand
    game = choose(over, first_position(fresh, start), packed.game)
    return pack(set_up(game, choose(over, fresh, draws), begins))


def _run(
    operand: tuple[Packed, Int[Array, "numbers"], history.Rows, Draws, Int[Array, ""]],
) -> _FlatRun:
    """Runs SIPHON or a program; the action must be valid."""
    packed, numbers, rows, draws, action = operand
    game, before = packed.game, _Run.of_flat((packed, numbers)).before
    _, _, siphons, program = _parts(action, jnp.bool_(True))
    after, kills = effects.run(game, program, draws)
    after = choose(siphons, siphon.siphon(game), after)
    packed = history.undo(after, rows, program == Program.UNDO)
    lost_yield = jnp.where(siphons, siphon.lost_yield(game), 0)
    return _Run(packed, before, kills, lost_yield).flat()


def _spawn(operand: tuple[Packed, Draws]) -> Packed:
    packed, draws = operand
    return pack_spawned(spawn_due(packed.game, draws), packed)


def _reward_stage(game: Game, completed: Bool[Array, ""]) -> Game:
    hp = jnp.where(completed, jnp.minimum(game.player.hp + 1, MAX_HP), game.player.hp)
    return replace(game, player=replace(game.player, hp=hp))
