"""Several choices at once, each under its own mask: learned, watched over, wrapped and stepped."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.checkpoints import CheckpointStore, architecture_of, restore
from ppo_mask.envs import shapes_of
from ppo_mask.errors import RunError

DOORS = pm.envs.probes.MaskedDoors()
CONFIG = pm.PPOConfig(num_envs=32, num_steps=32, learning_rate=3e-3, ent_coef=0.01)
SMALL = pm.PPOConfig(num_envs=4, num_steps=8)


def network(env=DOORS, **sizes):
    return pm.MLPActorCritic.for_env(env, key=jax.random.key(0), hidden_dim=8, **sizes)


def train(env, model, updates, config=SMALL, **options):
    trainer = pm.Trainer(env, config, **options)
    history = pm.History()
    state = trainer.init(model, jax.random.key(1))
    state = trainer.train(state, updates * config.batch_size, callbacks=[history], log_interval=1)
    return state, history.records


@pytest.mark.slow
@pytest.mark.parametrize("network", [pm.MLPActorCritic, pm.GRUActorCritic])
def test_each_choice_is_learned_under_its_mask(network):
    model = network.for_env(DOORS, key=jax.random.key(0), hidden_dim=32)
    state, records = train(DOORS, model, 20, CONFIG)
    # Each door has two keys for each of three locks, whatever the locks' sizes are.
    for record in records:
        assert record.values["train/max_entropy"] == pytest.approx(3 * np.log(2), abs=1e-3)
    assert records[-1].values["train/entropy"] < 1
    result = pm.evaluate(state.model, DOORS, jax.random.key(2), 100)
    # Random allowed keys open half a door of four; who forgets a mask is out at the first.
    assert result.mean_return > 3.8
    assert (result.episode_length == 4).all()


class Hides(pm.AbstractEnv):
    """The doors, where all keys of some locks seem to be allowed."""

    hidden: jax.Array
    num_actions: tuple[int, ...] = eqx.field(static=True, default=DOORS.num_actions)

    def reset(self, key):
        return self._hide(*DOORS.reset(key))

    def step(self, key, state, action):
        return self._hide(*DOORS.step(key, state, action))

    def _hide(self, state, timestep):
        mask = timestep.action_mask | self.hidden
        return state, dataclasses.replace(timestep, action_mask=mask)


@pytest.mark.slow
def test_the_mask_of_each_part_is_needed():
    returns = []
    for hidden in (slice(0, 0), slice(0, 4), slice(4, 10), slice(10, 16)):
        env = Hides(jnp.zeros(16, bool).at[hidden].set(True))
        model = pm.MLPActorCritic.for_env(env, key=jax.random.key(0), hidden_dim=32)
        state, _ = train(env, model, 20, CONFIG)
        result = pm.evaluate(state.model, env, jax.random.key(2), 200, greedy=False)
        returns.append(result.mean_return)
    # With a lock's mask hidden, its right key is one of two, or of three, for each door.
    assert returns[0] > 3.5
    assert max(returns[1:]) < 1.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"normalize_observations": True, "precision": "bfloat16"}, {"gradient_accumulation": 2}],
    ids=str,
)
def test_every_step_of_the_learner_takes_them(options):
    state, _ = train(DOORS, network(), 2, dataclasses.replace(SMALL, **options))
    assert int(state.update) == 2


@pytest.mark.slow
def test_several_seeds_learn_side_by_side():
    trainer = pm.Trainer(DOORS, SMALL)
    keys = jax.random.split(jax.random.key(0), 2)
    states = pm.training.init_seeds(
        trainer, lambda key: pm.MLPActorCritic.for_env(DOORS, key=key, hidden_dim=8), keys
    )
    states, _ = pm.training.train_seeds(trainer, states, SMALL.batch_size)
    assert states.update.tolist() == [1, 1]


@pytest.mark.slow
def test_a_run_is_saved_and_resumed_to_the_bit(tmp_path):
    whole, _ = train(DOORS, network(), 4)
    half, _ = train(DOORS, network(), 2)
    (tmp_path / "checkpoints").mkdir()
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(2, half, {"architecture": architecture_of(half.model)})
    trainer = pm.Trainer(DOORS, SMALL)
    like = trainer.init(network(), jax.random.key(5))
    resumed = trainer.train(restore(store.path(2), like=like), 4 * SMALL.batch_size)
    jax.tree.map(np.testing.assert_array_equal, resumed.model, whole.model)


def test_a_policy_acts_in_all_parts():
    policy = pm.Policy(network())
    _, timestep = DOORS.reset(jax.random.key(0))
    seen, mask = timestep.observation, timestep.action_mask
    starts = np.array([0, 4, 10])
    hidden = policy.initial_hidden()
    best, drawn = policy(seen, mask), policy.sample(seen, mask, jax.random.key(1))
    for action in (best, drawn, policy.act(seen, mask, hidden)[0]):
        assert action.shape == (3,)
        assert action.dtype == jnp.int32
        assert mask[starts + action].all()


@pytest.mark.slow
def test_a_metric_gets_the_whole_action():
    metrics = {"third": pm.Metric(lambda action, info: action[2], reduce="max")}
    _, records = train(DOORS, network(), 1, metrics=metrics)
    assert records[-1].values["third"] == 5
    result = pm.evaluate(network(), DOORS, jax.random.key(0), 4, metrics=metrics)
    assert 0 <= result.values["eval/third"] <= 5


def test_wrappers_pass_the_action_on():
    other = pm.envs.probes.MaskedDoors(length=2)
    key = jax.random.key(0)
    for env in (pm.TimeLimit(DOORS, 2), pm.FlatObservation(DOORS), pm.MultiTask([DOORS, other])):
        assert env.num_actions == (4, 6, 6)
        shapes_of(env)
        state, _ = env.reset(key)
        wanted = env.step(key, state, jnp.array([1, 2, 3]))
        for action in ([1, 2, 3], np.array([1, 2, 3])):
            action = np.array(action)
            jax.tree.map(np.testing.assert_array_equal, env.step(key, state, action), wanted)
        with pytest.raises(ValueError, match=r"action is int32\[2\], not int32\[3\]"):
            env.step(key, state, jnp.zeros(2, int))


@pytest.mark.slow
def test_a_vector_takes_an_action_of_all_parts_in_each():
    env = pm.VectorEnv(DOORS, 5)
    state, _ = env.reset(jax.random.key(0))
    state, timestep = env.step(jax.random.key(1), state, jnp.zeros((5, 3), jnp.int32))
    assert timestep.reward.shape == (5,)
    for wrong in (jnp.zeros(5, int), jnp.zeros((5, 2), int)):
        with pytest.raises(ValueError, match=r"not \[5, 3\]: there are 4 x 6 x 6 actions"):
            env.step(jax.random.key(1), state, wrong)
    plain = pm.VectorEnv(pm.envs.probes.MaskedLocks(keys=2), 5)
    with pytest.raises(ValueError, match=r"not \[5\]: there are 4 actions"):
        plain.step(jax.random.key(1), plain.reset(jax.random.key(0))[0], jnp.zeros((5, 3), int))


class Stuck(pm.AbstractEnv):
    """Of the second part nothing is allowed from the third step on."""

    num_actions: tuple[int, ...] = eqx.field(static=True, default=(2, 3))

    def reset(self, key):
        return jnp.int32(0), self.show(jnp.int32(0))

    def step(self, key, state, action):
        return state + 1, self.show(state + 1)

    def show(self, steps):
        mask = jnp.ones(5, bool) & ((jnp.arange(5) < 2) | (steps < 3))
        return pm.TimeStep(jnp.ones(1), mask, 0.0, False, False, {})


@pytest.mark.slow
def test_a_part_without_an_action_ends_training_and_evaluation():
    line = r"an action mask was all False in a part, of 2 x 3 actions; the environment must"
    with pytest.raises(pm.TrainingError, match=line):
        train(Stuck(), network(Stuck()), 2)
    with pytest.raises(ValueError, match=line):
        pm.evaluate(network(Stuck()), Stuck(), jax.random.key(0), 2)


class Own(pm.AbstractActorCritic):
    """Always the same distribution."""

    make: object = eqx.field(static=True)

    @property
    def hyperparameters(self):
        return {}

    def __call__(self, observation, action_mask):
        return self.make(jnp.zeros(action_mask.size), action_mask), jnp.float32(0)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (pm.MaskedCategorical, "the network Own must give a MaskedMultiCategorical and a value"),
        (
            lambda logits, mask: pm.MaskedMultiCategorical(logits, mask, (6, 4, 6)),
            "the network Own chooses of 6 x 4 x 6 actions, and the environment has 4 x 6 x 6",
        ),
    ],
)
def test_a_network_for_other_choices_is_one_line(make, line):
    with pytest.raises(RunError, match=line):
        pm.evaluate(Own(make), DOORS, jax.random.key(0), 1)


def test_the_network_is_described_with_its_choices():
    assert pm.networks.describe_network(network(), DOORS).endswith("-> 4 x 6 x 6 actions")
