"""The parts of a trainer that can be replaced: optimizer, loss and advantage estimator."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ppo_mask as pm
import programs
from ppo_mask.ppo import ppo_loss
from ppo_mask.ppo._own_parts import checked_loss

LOCKS = programs.locks()
CONFIG, UPDATES = LOCKS.config, 5
SCHEDULE = optax.linear_schedule(1e-2, 0.0, UPDATES * CONFIG.gradient_steps)
ADAM = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(SCHEDULE, eps=1e-5))


def loss_with_metric(network: Any, batch: Any, config: pm.PPOConfig) -> Any:
    loss, metrics = ppo_loss(network, batch, config)
    return loss, metrics | {"largest_advantage": batch.advantage.max()}


def estimate_monte_carlo(
    reward: Any, value: Any, next_value: Any, terminated: Any, truncated: Any, gamma: Any, _: Any
) -> Any:
    """The discounted sum of what follows, less the value."""
    ended = terminated | truncated

    def backwards(later: Any, step: Any) -> Any:
        reward, next_value, terminated, ended = step
        later = reward + gamma * jnp.where(ended, jnp.where(terminated, 0, next_value), later)
        return later, later

    steps = (reward, next_value, terminated, ended)
    return jax.lax.scan(backwards, next_value[-1], steps, reverse=True)[1] - value


def test_parts_by_hand_are_ppos() -> None:
    """PPO and all of it by hand: Monte Carlo is GAE with lambda = 1."""
    numbers = {"learning_rate": 1e-2, "gae_lambda": 1.0, "max_grad_norm": 0.1}
    state, history = LOCKS.train(UPDATES, **numbers)
    parts = pm.ppo.Algorithm(ADAM, loss_with_metric, estimate_monte_carlo)
    trainer = pm.Trainer(LOCKS.env, CONFIG, metrics=LOCKS.trainer.metrics, algorithm=parts)
    by_hand = programs.Program(trainer, LOCKS.make_model)
    same, line = by_hand.train(UPDATES)
    for one, other in zip(*map(jax.tree.leaves, (state.model, same.model)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert np.abs(state.model.actor[0].weight - LOCKS.start.model.actor[0].weight).max() > 1e-3
    assert (line["train/largest_advantage"] > 0.5).all()
    assert {*line.names} ^ {*history.names} == {"train/largest_advantage", "train/lr"}
    # A stop changes nothing: the schedule counts over the whole run.
    again, _ = by_hand.train(UPDATES, by_hand.train(2)[0])
    assert eqx.tree_equal(again.model, same.model)


def test_metrics_of_a_loss_may_be_numbers_of_python() -> None:
    numbers = {"a": 1.0, "b": 2, "c": True, "d": np.float64(0.5)}
    _, metrics = checked_loss((jnp.float32(0), numbers))
    assert {name: float(x) for name, x in metrics.items()} == numbers
    assert {x.dtype for x in metrics.values()} == {np.dtype(np.float32)}


METRICS = {"mine/first": pm.Metric(lambda action, info: action == 0)}


@pytest.mark.parametrize(
    ("made_by", "trained_by", "message"),
    [
        ({}, {"optimizer": ADAM}, "another optimizer state: begin"),
        ({"optimizer": ADAM}, {}, "another optimizer state: begin"),
        ({"optimizer": ADAM}, {"optimizer": optax.sgd(0.1)}, "another optimizer state: begin"),
        ({}, {"metrics": METRICS}, r"another metrics \(\[\], this one: \['mine/first'\]\)"),
        ({"metrics": METRICS}, {}, r"another metrics \(\['mine/first'\], this one: \[\]\)"),
        ({}, {"loss": loss_with_metric}, r"metrics of the loss \(\[\], this one: \['largest"),
        ({"config": {"num_envs": 16}}, {}, r"another num_envs \(16, this one: 8\)"),
        ({"config": {"normalize_rewards": True}}, {}, "another normalize_rewards"),
        ({}, {"config": {"normalize_observations": True}}, "another normalize_observations"),
        ({}, {"config": {"precision": "bfloat16"}}, r"another bfloat16 \(False, this one: True\)"),
    ],
)
def test_state_of_another_trainer_is_refused(made_by: Any, trained_by: Any, message: str) -> None:
    def trainer(config: Any = (), metrics: Any = None, **parts: Any) -> pm.Trainer:
        config = dataclasses.replace(CONFIG, **dict(config))
        algorithm = pm.ppo.Algorithm(**parts)
        return pm.Trainer(LOCKS.env, config, metrics=metrics, algorithm=algorithm)

    model, one = LOCKS.start.model, jnp.int32(1)
    state = eqx.filter_eval_shape(lambda: trainer(**made_by).init(model, jax.random.key(0)))
    with pytest.raises(ValueError, match=message) as caught:
        eqx.filter_eval_shape(trainer(**trained_by).run_updates, state, one, one)
    assert "\n" not in str(caught.value)
