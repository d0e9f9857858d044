"""A pool of opponents: who plays where, who joins and who leaves, and what the log says."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
import reveal
from own_process import printed_with
from ppo_mask.errors import FieldError, RunError
from ppo_mask.games import Seat, random_opponent
from ppo_mask.training import History, SelfPlay
from ppo_mask.training._self_play import Pool
from reveal import CONFIG, Reveal, begin, trainer


class Says(pm.networks.AbstractActorCritic):
    """Says one number."""

    number: jax.Array

    def __call__(self, observation: Any, action_mask: Any) -> Any:
        logits = 1e4 * jax.nn.one_hot(self.number.astype(int), 4)
        return pm.MaskedCategorical(logits, action_mask), jnp.float32(0)


def two(observation: Any, mask: Any, key: Any) -> Any:
    return jnp.int32(2)


def opponent(env: Any) -> Any:
    return env.opponent


def pool(self_play: SelfPlay, **more: Any) -> Pool:
    """The memory of a pool, with some fields replaced."""
    memory = self_play.init(pm.networks.as_model(Says(jnp.float32(0))))
    names = list(more)
    values = [jnp.asarray(more[name], getattr(memory, name).dtype) for name in names]
    return eqx.tree_at(lambda x: [getattr(x, name) for name in names], memory, values)


def numbers(memory: Pool) -> list[float]:
    network: Any = memory.copies.network
    return network.number.tolist()


def test_each_group_plays_against_its_own_opponent():
    env = Seat(Reveal(), random_opponent, begins=True)
    self_play = SelfPlay(opponent, size=4, fixed=(two, Says(jnp.float32(3))))
    memory = self_play.init(pm.networks.as_model(Says(jnp.float32(0))))
    memory = eqx.tree_at(lambda x: x.copies.network.number, memory, jnp.array([0.0, 1.0]))
    envs = pm.VectorEnv(self_play(env, jnp.float32(0), memory), 8)
    state, _ = envs.reset(jax.random.key(0))
    actions = jnp.arange(8) // 4
    state, timestep = eqx.filter_jit(envs.step)(jax.random.key(1), state, actions)
    # Copies first, then the fixed ones; what is in each place is of the same environment.
    assert timestep.info["second"].tolist() == [0, 1, 2, 3] * 2
    assert timestep.reward.tolist() == [0, -1, -1, -1, 1, 0, -1, -1]
    # Also in a reset, where the agent does not begin.
    env = Seat(Reveal(), random_opponent, begins=False)
    envs = pm.VectorEnv(self_play(env, jnp.float32(0), memory), 8)
    state, _ = eqx.filter_jit(envs.reset)(jax.random.key(0))
    state, timestep = eqx.filter_jit(envs.step)(jax.random.key(1), state, jnp.full(8, 2))
    assert timestep.reward.tolist() == [1, 1, 0, -1] * 2
    state, timestep = eqx.filter_jit(envs.step)(jax.random.key(1), state, jnp.full(8, 2))
    assert timestep.reward.tolist() == [1, 1, 0, -1] * 2


def test_a_copy_joins_that_is_better_than_the_newest_and_the_weakest_leaves():
    self_play = SelfPlay(opponent, every=5, size=4, share=0.6, fixed=(two,))
    learner = pm.networks.as_model(Says(jnp.float32(9)))

    def after(updates: int, points: list[float], joined: list[int]) -> Pool:
        games = 100
        memory = pool(
            self_play, joined=joined, games=[games] * 4, points=[games * x for x in points], elo=77
        )
        return renew(memory, learner, jnp.int32(updates))

    renew = eqx.filter_jit(self_play.renew)
    assert numbers(after(10, [0.9, 0.5, 0.55, 0], [1, 5, 3])) == [0, 0, 0]  # Not good enough.
    assert numbers(after(11, [0.9, 0.7, 0.5, 0], [1, 5, 3])) == [0, 0, 0]  # Not due.
    joined = after(10, [0.8, 0.95, 0.9, 0], [1, 5, 3])
    assert numbers(joined) == [0, 0, 9]  # The weakest but for the newest.
    assert joined.joined.tolist() == [1, 5, 10]
    assert joined.elo_of.tolist() == [0, 0, 77]
    assert joined.games.tolist() == [100, 100, 0, 100]
    assert joined.games_then.tolist() == [0, 0, 100]  # The learner's own against the fixed player.
    # Who has been there from the beginning leaves first.
    assert numbers(after(10, [0.9, 0.8, 0.1, 0], [2, 5, -1])) == [0, 0, 9]
    # Few games say little.
    memory = pool(self_play, games=[9] * 4, points=[9] * 4)
    assert numbers(renew(memory, learner, jnp.int32(10))) == [0, 0, 0]
    # What training begins with is everywhere.
    assert numbers(renew(memory, learner, jnp.int32(0))) == [9, 9, 9]


def test_the_rating_is_the_most_likely_one():
    self_play = SelfPlay(opponent, size=2, fixed=(random_opponent,))
    # The copy, too, had won ten times as often as it lost.
    memory = pool(self_play, games_then=[11e4], points_then=[10e4])
    won = (jnp.arange(200)[:, None] < jnp.array([100, 182])).astype(jnp.float32)
    ended = jnp.ones((200, 2), bool)
    memory = self_play.update(memory, {"outcome": won}, ended)
    assert memory.games.tolist() == [200, 200]
    assert memory.points.tolist() == [100, 182]
    assert abs(float(memory.elo) - 400) < 5  # 400 are odds of ten to one.
    assert abs(float(memory.elo_of[0]) - 400) < 5
    # Draws are half a point, and games that go on are none.
    draws = {"outcome": jnp.full((4, 2), 0.5)}
    memory = self_play.update(memory, draws, ended[:4].at[0].set(False))
    np.testing.assert_allclose(memory.games, 0.95 * 200 + 3)
    np.testing.assert_allclose(memory.points, [0.95 * 100 + 1.5, 0.95 * 182 + 1.5])
    # Who always wins has a finite rating.
    sure = self_play.update(pool(self_play), {"outcome": jnp.ones((50, 2))}, ended[:50])
    assert 700 < float(sure.elo) < 1000


def test_a_learner_beats_its_older_copies_and_the_log_says_so():
    history, mine = History(), trainer()
    state = mine.train(begin(mine), 60 * CONFIG.batch_size, callbacks=[history])
    last = history.records[-1].values
    assert last["self_play/score_fixed0"] > 0.55
    assert last["self_play/elo"] > 50
    assert (np.asarray(state.memory.joined) > 0).all()
    names = {name for name in last if name.startswith("self_play/")}
    assert names == {
        "self_play/elo",
        *(f"self_play/elo_copy{i}" for i in range(3)),
        *(f"self_play/score_copy{i}" for i in range(3)),
        "self_play/score_fixed0",
    }


def test_a_stopped_run_with_a_pool_goes_on_to_the_bit(tmp_path: Path):
    mine = trainer()
    whole = mine.train(begin(mine), 12 * CONFIG.batch_size)
    half = mine.train(begin(mine), 7 * CONFIG.batch_size)
    store = pm.checkpoints.RunDir(tmp_path)
    store.save(7, half, {}, None, False)
    restored = store.checkpoint(7).restore(jax.eval_shape(lambda: half))
    assert eqx.tree_equal(mine.train(restored, 12 * CONFIG.batch_size), whole)


@pytest.mark.slow
def test_a_pool_on_two_devices_is_that_of_one() -> None:
    memory: Any = reveal.train(12).memory
    for name, value in printed_with(2, reveal.__file__).items():
        np.testing.assert_allclose(getattr(memory, name), value, atol=1e-3)


def test_recurrent_copies_keep_their_hidden_state():
    mine = trainer()
    state = mine.train(begin(mine, "gru"), 2 * CONFIG.batch_size)
    hidden = state.rollout.vector_state.env_state.hidden
    shapes = [x.shape for x in jax.tree.leaves(hidden)]
    assert shapes
    assert all(shape[:2] == (16, 2) for shape in shapes)


def test_what_cannot_be_is_refused():
    with pytest.raises(FieldError, match="size must be at least 2, got 1"):
        SelfPlay(opponent, fixed=(two,))
    with pytest.raises(FieldError, match="share must be from 0 to 1, got 2"):
        SelfPlay(opponent, share=2)
    env = Seat(Reveal(), random_opponent)
    uneven = pm.Trainer(env, CONFIG, curriculum=SelfPlay(opponent, size=3))
    with pytest.raises(RunError, match="16 environments on a device cannot be split among 3"):
        begin(uneven)
    probe = pm.Trainer(
        pm.envs.probes.MaskedLocks(), CONFIG, curriculum=SelfPlay(lambda env: env.keys, share=0.5)
    )
    with pytest.raises(RunError, match="must have an outcome"):
        probe.curriculum.update(pool(SelfPlay(opponent)), {}, jnp.ones((1, 16), bool))  # type: ignore
