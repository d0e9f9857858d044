"""What a policy remembers: carried through episodes, never over their end, and learned."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from environments import Scripted
from ppo_mask.acting import bootstrap_values, collect, start_rollout
from ppo_mask.envs import VectorEnv, probes
from ppo_mask.networks import GRUActorCritic, Memory, MLPActorCritic, Policy, as_model, forward
from ppo_mask.ppo import PPO
from ppo_mask.training import Trainer, evaluate

MASK = jnp.ones(4, bool)


class AnyEnd(Scripted):  # pyright: ignore[reportGeneralTypeIssues]
    """Episodes that go on or end in each of three ways, as the policy likes."""

    def _timestep(self, steps, reward, terminated, truncated):
        timestep = super()._timestep(steps, reward, terminated, truncated)
        return eqx.tree_at(lambda t: t.action_mask, timestep, MASK)


def make_gru():
    network = GRUActorCritic(1, 4, 16, key=jax.random.key(0))
    # Heads that begin larger: what is compared should not all be nearly the same. And episodes
    # that last: action 0 is the likeliest.
    heads = 100 * network.actor.weight, jnp.array([2.0, 0, 0, 0])
    return as_model(eqx.tree_at(lambda m: (m.actor.weight, m.actor.bias), network, heads))


def test_the_unit_is_a_gated_recurrent_unit():
    model, size = make_gru().network, 16
    biases = jax.random.normal(jax.random.key(1), (2, 3 * size))
    model = eqx.tree_at(lambda m: (m.gates.bias, m.recurrent_gates.bias), model, tuple(biases))
    cell = eqx.nn.GRUCell(size, size, key=jax.random.key(0))
    of_input, of_hidden = biases[0].at[: 2 * size].add(biases[1, : 2 * size]), biases[1, 2 * size :]
    given = (model.gates.weight, model.recurrent_gates.weight, of_input, of_hidden)
    cell = eqx.tree_at(lambda c: (c.weight_ih, c.weight_hh, c.bias, c.bias_n), cell, given)
    observation, hidden = jnp.ones(1), jnp.linspace(-1, 1, size)
    expected = cell(jnp.tanh(model.encoder(observation)), hidden)
    np.testing.assert_allclose(model.advance(observation, MASK, hidden)[2], expected, atol=1e-6)


@pytest.fixture(scope="module")
def played():
    """The second of two rollouts, where it began, and the same one step of one row at a time."""
    model, vector_env, key = make_gru(), VectorEnv(AnyEnd(), 8), jax.random.key(1)
    roll = eqx.filter_jit(lambda state, key: collect(vector_env, model, state, key, 12))
    before, _ = roll(start_rollout(vector_env, model, key), key)
    after, transitions = roll(before, jax.random.key(2))
    decision = transitions.decision
    seen, actions, ended = map(
        np.asarray, (decision.observation, decision.action, transitions.ended)
    )

    @jax.jit
    def step(observation, action, hidden):
        distribution, value, hidden = model.advance(observation, MASK, hidden)
        return distribution.log_prob(action), value, hidden

    log_prob, value, hiddens = (np.zeros((12, 8, *shape)) for shape in ((), (), (16,)))
    for env in range(8):
        hidden = np.asarray(before.hidden)[env]
        for at in ((time, env) for time in range(12)):
            log_prob[at], value[at], hidden = step(seen[at], actions[at], hidden)
            hiddens[at] = hidden
            hidden = np.where(ended[at], 0, hidden)
    return model, before, after, transitions, (log_prob, value, hiddens)


def test_a_rollout_is_what_single_steps_make(played):
    model, before, after, transitions, (log_prob, value, hiddens) = played
    assert (before.hidden != 0).any()  # An episode continues over the border.
    assert transitions.terminated.any()
    decision = transitions.decision
    np.testing.assert_allclose(decision.log_prob, log_prob, atol=1e-5)
    np.testing.assert_allclose(decision.value, value, atol=1e-5)
    begins = np.asarray(decision.observation[1:, :, 0]) == 0  # Nothing is remembered there.
    first = float(model(jnp.zeros(1), MASK)[1])
    np.testing.assert_allclose(decision.value[1:][begins], first, atol=1e-5)
    last = np.where(transitions.ended[-1][:, None], 0, hiddens[-1])
    np.testing.assert_allclose(after.hidden, last, atol=1e-5)
    following = jax.jit(jax.vmap(lambda *x: model.advance(*x)[1]))
    np.testing.assert_allclose(
        bootstrap_values(model, after),
        following(after.observation, after.action_mask, after.hidden),
        atol=1e-5,
    )


def test_forward_repeats_the_outputs_of_the_rollout(played):
    model, before, _, transitions, _ = played
    rows = jax.tree.map(lambda x: x.swapaxes(0, 1), transitions)

    @jax.jit
    def outputs(rows, hidden):
        memory = Memory(hidden, rows.ended)
        old = rows.decision
        distribution, value = forward(model, old.observation, old.action_mask, memory)
        return jax.vmap(jax.vmap(lambda d, a: d.log_prob(a)))(distribution, old.action), value

    log_prob, value = outputs(rows, before.hidden)
    np.testing.assert_allclose(log_prob, rows.decision.log_prob, atol=1e-5)
    np.testing.assert_allclose(value, rows.decision.value, atol=1e-5)


def test_a_truncated_episode_is_bootstrapped_with_its_memory(played):
    model, _, _, transitions, (_, _, hiddens) = played
    truncated = np.asarray(transitions.truncated & ~transitions.terminated)
    assert truncated.any()
    # What is shown next is the number of the step, which is the reward.
    shown = np.asarray(transitions.reward)[truncated][:, None]
    hidden = np.float32(hiddens[truncated])
    value = jax.jit(jax.vmap(lambda *x: model.advance(*x)[1], (0, None, 0)))
    value = value(shown, MASK, hidden)
    np.testing.assert_allclose(transitions.final_value[truncated], value, atol=1e-5)


def test_gradients_reach_the_cue_but_no_earlier_episode():
    model = make_gru()
    observation = jnp.array([1.0, 0, 0, 1, 0, 0])[None, :, None]
    mask, ended = jnp.ones((1, 6, 4), bool), jnp.arange(6)[None] == 2

    def last_value(observation):
        memory = Memory(jnp.zeros((1, 16)), ended)
        return forward(model, observation, mask, memory)[1][0, -1]

    gradient = jax.jit(jax.grad(last_value))(observation)[0, :, 0]
    assert (gradient[:3] == 0).all()
    assert (gradient[3:] != 0).all()


# With 16 environments and twice the rate 1 seed in 75 has not learned by then, and which one
# differs by processor; with these 0 of 150, nor after half of the updates.
LEARNING = PPO(
    num_envs=64,
    num_steps=12,
    learning_rate=5e-3,
    anneal_lr=True,
    gamma=0.9,
    ent_coef=0.01,
    max_grad_norm=5.0,
)


@pytest.mark.slow
def test_a_cue_is_remembered():
    env = probes.RememberedCue(delay=4)
    trainer = Trainer(env, LEARNING)
    state = trainer.init(GRUActorCritic(1, 2, 16, key=jax.random.key(0)), jax.random.key(1))
    model = trainer.train(state, 80 * LEARNING.batch_size).model
    # Who guesses gets 0.
    assert evaluate(model, env, jax.random.key(2), 400).mean_return > 0.95


def test_a_policy_that_remembers_must_be_given_its_hidden_state():
    policy = Policy(make_gru())
    seen = jnp.ones(1), MASK
    with pytest.raises(ValueError, match="this policy is recurrent: call act"):
        policy(*seen)
    action, hidden = policy.act(*seen, policy.initial_hidden())
    assert action == policy.model(*seen)[0].mode()
    assert (hidden != 0).any()
    plain = Policy(MLPActorCritic(1, 4, 4, 1, key=jax.random.key(0)))
    assert plain.act(*seen, plain.initial_hidden())[0] == plain(*seen)


def test_indivisible_environments_are_refused():
    message = "num_minibatches = 4 does not divide the environments, .* = 6; 3 would do"
    config = PPO(num_envs=6, num_steps=4, num_minibatches=4)
    with pytest.raises(ValueError, match=message):
        Trainer(AnyEnd(), config).init(make_gru(), jax.random.key(0))
    model = as_model(MLPActorCritic(1, 2, 4, 1, key=jax.random.key(0)))
    config.check(model, 1)
