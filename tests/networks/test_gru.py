"""What a policy remembers: carried through episodes, never over their end, and learned."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from corridor import DEFAULTS, TASK
from ppo_mask import ppo
from ppo_mask.checkpoints import load_policy, read_arrays
from ppo_mask.envs import TimeLimit, VectorEnv, probes
from ppo_mask.networks import (
    BFloat16ActorCritic,
    GRUActorCritic,
    Memory,
    MLPActorCritic,
    Policy,
    advance,
    forward,
    initial_hidden,
    is_recurrent,
)
from ppo_mask.ppo import PPOConfig, ShufflePlan, bootstrap_values, collect, start_rollout
from ppo_mask.runner import default_network, main
from ppo_mask.training import Trainer, evaluate

_CONFIG = PPOConfig(
    num_envs=16,
    num_steps=12,
    learning_rate=1e-2,
    anneal_lr=True,
    gamma=0.9,
    ent_coef=0.01,
    max_grad_norm=5.0,
)
# Five steps an episode: it ends within a rollout, and continues in the next one.
ENV = probes.RememberedCue(delay=4)


def _gru(seed=0, size=16):
    model = GRUActorCritic(1, 2, size, key=jax.random.key(seed))
    # Heads that begin larger: what is compared should not all be nearly the same.
    return eqx.tree_at(lambda m: m.actor.weight, model, 100 * model.actor.weight)


def _acted(model, env=ENV, num_envs=2, num_steps=12, rollouts=2):
    """The last of some rollouts, and where it began."""
    vector_env, key = VectorEnv(env, num_envs), jax.random.key(1)

    @eqx.filter_jit
    def play(model):
        state = before = start_rollout(vector_env, model, key)
        transitions = None
        for number in range(rollouts):
            before = state
            state, transitions = collect(
                vector_env, model, state, jax.random.fold_in(key, number), num_steps
            )
        return before, state, transitions

    return play(model)


def _by_hand(model, before, transitions):
    """Distributions and values of the rollout, one step of one environment at a time."""
    log_probs, values = np.zeros(transitions.reward.shape), np.zeros(transitions.reward.shape)
    hiddens = np.zeros((*transitions.reward.shape, model.hidden_dim))
    step = eqx.filter_jit(advance)
    for env in range(transitions.reward.shape[1]):
        hidden = before.hidden[env]
        for time in range(transitions.reward.shape[0]):
            at = time, env
            seen = transitions.observation[at], transitions.action_mask[at]
            distribution, value, hidden = step(model, *seen, hidden)
            log_probs[at] = distribution.log_prob(transitions.action[at])
            values[at], hiddens[at] = value, hidden
            if transitions.ended[at]:
                hidden = model.initial_hidden()
    return log_probs, values, hiddens


def test_a_rollout_is_what_single_steps_make():
    model = _gru()
    before, after, transitions = _acted(model)
    assert (before.hidden != 0).any()  # An episode continues over the border.
    assert transitions.ended.any()
    log_probs, values_by_hand, hiddens = _by_hand(model, before, transitions)
    np.testing.assert_allclose(transitions.log_prob, log_probs, atol=1e-5)
    np.testing.assert_allclose(transitions.value, values_by_hand, atol=1e-5)
    last = np.where(transitions.ended[-1][:, None], 0, hiddens[-1])
    np.testing.assert_allclose(after.hidden, last, atol=1e-5)
    following = [
        advance(model, after.observation[n], after.action_mask[n], after.hidden[n])[1]
        for n in range(2)
    ]
    np.testing.assert_allclose(bootstrap_values(model, after), following, atol=1e-5)


def test_forward_repeats_the_outputs_of_the_rollout():
    model = _gru()
    before, _, transitions = _acted(model)
    rows = jax.tree.map(lambda x: x.swapaxes(0, 1), transitions)
    memory = Memory(before.hidden, rows.ended)
    distribution, value = eqx.filter_jit(forward)(model, rows.observation, rows.action_mask, memory)
    log_prob = jax.vmap(jax.vmap(lambda d, a: d.log_prob(a)))(distribution, rows.action)
    np.testing.assert_allclose(log_prob, rows.log_prob, atol=1e-5)
    np.testing.assert_allclose(value, rows.value, atol=1e-5)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"normalize_observations": True, "normalize_rewards": True},
        {"precision": "bfloat16", "gradient_accumulation": 2},
    ],
    ids=["plain", "normalized", "bfloat16"],
)
def test_the_first_minibatch_has_the_ratio_1(how):
    # With a step size of 0 every minibatch is a first one; after an update statistics are not 0.
    config = dataclasses.replace(_CONFIG, learning_rate=0.0, **how)
    vector_env = VectorEnv(ENV, config.num_envs)
    model, key = _gru(), jax.random.key(1)
    state = ppo.init_learner(model, start_rollout(vector_env, model, key), config, key)
    step = eqx.filter_jit(lambda state: ppo.update(vector_env, config, state, jnp.int32(9)))
    for _ in range(2):
        state, _, diagnostics = step(state)
        np.testing.assert_allclose(diagnostics.approx_kl, 0, atol=1e-6)
        np.testing.assert_allclose(diagnostics.clip_frac, 0)


@pytest.mark.optimized
def test_parts_of_a_minibatch_have_its_gradient():
    def learned(parts):
        config = dataclasses.replace(_CONFIG, gradient_accumulation=parts, num_minibatches=2)
        state = Trainer(ENV, config).init(_gru(), jax.random.key(1))
        return Trainer(ENV, config).train(state, 3 * config.batch_size).model

    one, four = (eqx.filter(learned(parts), eqx.is_array) for parts in (1, 4))
    for whole, in_parts in zip(jax.tree.leaves(one), jax.tree.leaves(four), strict=True):
        np.testing.assert_allclose(whole, in_parts, atol=1e-5)


def test_nothing_is_remembered_of_the_episode_before():
    model = _gru()
    _, _, transitions = _acted(model)
    begins = np.roll(np.array(transitions.ended), 1, axis=0)
    begins[0] = False
    at_start = {cue: float(model(jnp.array([cue]), jnp.ones(2, bool))[1]) for cue in (-1.0, 1.0)}
    assert begins.any()
    for value, cue in zip(
        transitions.value[begins], transitions.observation[begins, 0], strict=True
    ):
        assert value == pytest.approx(at_start[float(cue)], abs=1e-5)


def test_a_truncated_episode_is_bootstrapped_with_its_memory():
    model = _gru()
    env = TimeLimit(ENV, 3)
    before, _, transitions = _acted(model, env)
    _, _, hiddens = _by_hand(model, before, transitions)
    assert transitions.truncated.any()
    for at in np.argwhere(np.array(transitions.truncated)):
        # What follows the first step is always 0.
        seen = jnp.zeros(1), jnp.ones(2, bool)
        value = advance(model, *seen, jnp.asarray(hiddens[tuple(at)], jnp.float32))[1]
        assert transitions.final_value[tuple(at)] == pytest.approx(float(value), abs=1e-5)


def test_gradients_reach_the_cue_but_no_earlier_episode():
    model = _gru()
    observation = jnp.array([1.0, 0, 0, 1, 0, 0])[None, :, None]
    mask, ended = jnp.ones((1, 6, 2), bool), jnp.arange(6)[None] == 2

    def last_value(observation):
        memory = Memory(jnp.zeros((1, 16)), ended)
        return forward(model, observation, mask, memory)[1][0, -1]

    gradient = jax.grad(last_value)(observation)[0, :, 0]
    assert (gradient[:3] == 0).all()
    assert (gradient[3:] != 0).all()


# With the 16 environments and the rate of the tests above 1 seed in 75 has not learned by then, and
# which one differs by processor; with these 0 of 150, nor after half of the updates.
_LEARNING = dataclasses.replace(_CONFIG, num_envs=64, learning_rate=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_cue_is_remembered(seed):
    key, evaluation_key = jax.random.split(jax.random.key(seed))
    state = Trainer(ENV, _LEARNING).init(GRUActorCritic(1, 2, 16, key=jax.random.key(seed)), key)
    model = Trainer(ENV, _LEARNING).train(state, 80 * _LEARNING.batch_size).model
    assert evaluate(model, ENV, evaluation_key, 200).mean_return > 0.95


@pytest.mark.slow
def test_a_cue_is_not_guessed_without_a_memory():
    state = Trainer(ENV, _LEARNING).init(
        MLPActorCritic(1, 2, 16, 1, key=jax.random.key(0)), jax.random.key(1)
    )
    model = Trainer(ENV, _LEARNING).train(state, 80 * _LEARNING.batch_size).model
    assert abs(evaluate(model, ENV, jax.random.key(2), 400).mean_return) < 0.2


def test_a_policy_that_remembers_must_be_given_its_hidden_state():
    policy = Policy(_gru())
    seen = jnp.ones(1), jnp.ones(2, bool)
    with pytest.raises(ValueError, match="this policy is recurrent: call act"):
        policy(*seen)
    action, hidden = policy.act(*seen, policy.initial_hidden())
    assert action == policy.model(*seen)[0].mode()
    assert (hidden != 0).any()
    plain = Policy(MLPActorCritic(1, 2, 4, 1, key=jax.random.key(0)))
    assert plain.act(*seen, plain.initial_hidden())[0] == plain(*seen)


def test_wrapped_models_are_recurrent_if_what_they_wrap_is():
    model = _gru()
    assert is_recurrent(BFloat16ActorCritic(model))
    assert not is_recurrent(BFloat16ActorCritic(MLPActorCritic(1, 2, 4, 1, key=jax.random.key(0))))
    hidden = initial_hidden(BFloat16ActorCritic(model))
    _, _, after = advance(BFloat16ActorCritic(model), jnp.ones(1), jnp.ones(2, bool), hidden)
    assert after.dtype == jnp.float32


def test_indivisible_environments_are_refused():
    message = "num_minibatches x gradient_accumulation = 4 does not divide num_envs = 6; 3 would do"
    config = PPOConfig(num_envs=6, num_steps=4, num_minibatches=4)
    with pytest.raises(ValueError, match=message):
        Trainer(ENV, config).init(_gru(), jax.random.key(0))
    model = MLPActorCritic(1, 2, 4, 1, key=jax.random.key(0))
    assert ShufflePlan.make(config, model).batch_size == config.batch_size


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="hidden_dim must be at least 1, got 0"):
        GRUActorCritic(1, 2, 0, key=jax.random.key(0))


def _gru_for(env, network, key):
    return GRUActorCritic(6, env.num_actions, network.hidden_dim, key=key)


@pytest.mark.optimized
def test_a_resumed_run_has_its_hidden_states(tmp_path):
    task = dataclasses.replace(TASK, make_model=_gru_for)

    def trained(name, *updates):
        for total in updates:
            how = ["--run-name", name] if total == updates[0] else ["--resume", "latest"]
            flags = ["--checkpoint-dir", str(tmp_path / name), "--total-timesteps", str(32 * total)]
            assert main(task, DEFAULTS, [*flags, *how]) == 0
        return tmp_path / name / name

    whole, cut = trained("whole", 6), trained("cut", 3, 6)
    ours, theirs = (read_arrays(run / "checkpoints" / "6") for run in (whole, cut))
    assert (ours["learner.rollout.hidden"] != 0).any()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)
    policy = load_policy(whole)
    assert is_recurrent(policy.model)


@pytest.mark.parametrize("more", [[], ["--num-seeds", "2"], ["--network", "gru"]])
def test_indivisible_environments_end_a_run_before_it_writes(tmp_path, capsys, more):
    task = dataclasses.replace(TASK, make_model=_gru_for)
    if "--network" in more:
        task = dataclasses.replace(TASK, networks={"mlp": default_network, "gru": _gru_for})
    flags = ["--checkpoint-dir", str(tmp_path), "--num-envs", "6", *more]
    assert main(task, DEFAULTS, flags) == 2
    assert (
        "--num-minibatches x --gradient-accumulation = 4 does not divide --num-envs = 6"
        in capsys.readouterr().err
    )
    assert not list(tmp_path.iterdir())
