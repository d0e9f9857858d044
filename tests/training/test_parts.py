"""The parts of a trainer that can be replaced: optimizer, loss and advantage estimator."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ppo_mask as pm
from ppo_mask.ppo import ppo_loss

ENV = pm.envs.probes.MaskedLocks(length=4, keys=4)
CONFIG = pm.PPOConfig(num_envs=8, num_steps=8, learning_rate=3e-3, max_grad_norm=0.1)
ADAM = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(3e-3, eps=1e-5))
ANNEALED = optax.adam(optax.linear_schedule(1e-2, 0.0, transition_steps=CONFIG.gradient_steps))


def init(trainer: pm.Trainer) -> pm.TrainState:
    model = pm.MLPActorCritic.for_env(trainer.env, hidden_dim=8, key=jax.random.key(0))
    return trainer.init(model, jax.random.key(1))


def train(trainer: pm.Trainer, updates: int = 2) -> tuple[Any, pm.History]:
    history = pm.History()
    steps = updates * trainer.config.batch_size
    state = trainer.train(init(trainer), steps, callbacks=[history], log_interval=1)
    return state, history


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


def assert_close(one: Any, other: Any, atol: float = 1e-5) -> None:
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(x, y, atol=atol)


@pytest.fixture(scope="module")
def default() -> tuple[pm.TrainState, pm.History]:
    return train(pm.Trainer(ENV, CONFIG))


def test_default_optimizer_is_clipped_adam(default: Any) -> None:
    state, history = train(pm.Trainer(ENV, CONFIG, optimizer=ADAM))
    assert_close(state.model, default[0].model)
    assert "train/lr" in default[1].names
    assert "train/lr" not in history.names


@pytest.mark.slow
def test_optimizer_has_its_own_schedule() -> None:
    # The schedule reaches 0 with the first update: the second one moves nothing.
    trainer = pm.Trainer(ENV, CONFIG, optimizer=ANNEALED)
    first, _ = train(trainer, 1)
    second, history = train(trainer, 2)
    start: Any = init(trainer).model
    assert_close(first.model, second.model, 0)
    assert np.abs(first.model.actor[0].weight - start.actor[0].weight).max() > 1e-3
    assert history["train/grad_norm"][1] > 0


@pytest.mark.slow
def test_loss_adds_a_metric_to_the_log(default: Any) -> None:
    state, history = train(pm.Trainer(ENV, CONFIG, loss=loss_with_metric))
    assert (history["train/largest_advantage"] > 0.5).all()
    assert set(history.names) == {*default[1].names, "train/largest_advantage"}
    assert_close(state.model, default[0].model)


def test_monte_carlo_is_lambda_of_one() -> None:
    one, _ = train(pm.Trainer(ENV, CONFIG, advantage_estimator=estimate_monte_carlo))
    other, _ = train(pm.Trainer(ENV, dataclasses.replace(CONFIG, gae_lambda=1.0)))
    assert_close(one.model, other.model)


def test_loss_without_a_required_metric_is_refused() -> None:
    def loss(*arguments: Any) -> Any:
        value, metrics = ppo_loss(*arguments)
        return value, {name: metrics[name] for name in metrics if name != "approx_kl"}

    with pytest.raises(ValueError, match="approx_kl is missing") as caught:
        init(pm.Trainer(ENV, CONFIG, loss=loss))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("pick", "got"),
    [
        (lambda pair: pair[0], "it returned a "),
        (lambda pair: (*pair, 1), "it returned a tuple"),
        (lambda pair: (pair[0][None], pair[1]), r"the number is an array of shape \[1\]"),
        (lambda pair: (pair[0], 0.5), r"it returned an array of shape \[\] and a float"),
    ],
)
def test_loss_that_returns_something_else_is_refused(pick: Any, got: str) -> None:
    wanted = "^the loss must return a pair: one number, and metrics by name; "
    with pytest.raises(ValueError, match=wanted + got) as caught:
        init(pm.Trainer(ENV, CONFIG, loss=lambda *arguments: pick(ppo_loss(*arguments))))
    assert "\n" not in str(caught.value)


def first_action(action: Any, info: Any) -> Any:
    return action == 0


METRICS = {"mine/first": pm.Metric(first_action)}


@pytest.mark.parametrize(
    ("made_by", "trained_by", "message"),
    [
        ({}, {"optimizer": ANNEALED}, "another optimizer state: begin"),
        ({"optimizer": ADAM}, {}, "another optimizer state: begin"),
        ({"optimizer": ADAM}, {"optimizer": optax.sgd(0.1)}, "another optimizer state: begin"),
        ({}, {"metrics": METRICS}, r"another metrics \(\[\], this one: \['mine/first'\]\)"),
        ({"metrics": METRICS}, {}, r"another metrics \(\['mine/first'\], this one: \[\]\)"),
        ({}, {"loss": loss_with_metric}, r"metrics of the loss \(\[\], this one: \['largest"),
        ({"config": {"num_envs": 16}}, {}, r"another num_envs \(16, this one: 8\)"),
        ({"config": {"normalize_rewards": True}}, {}, "another normalize_rewards"),
    ],
)
def test_state_of_another_trainer_is_refused(made_by: Any, trained_by: Any, message: str) -> None:
    def trainer(config: Any = (), **parts: Any) -> pm.Trainer:
        return pm.Trainer(ENV, dataclasses.replace(CONFIG, **dict(config)), **parts)

    state = init(trainer(**made_by))
    with pytest.raises(ValueError, match=message) as caught:
        trainer(**trained_by).train(state, CONFIG.batch_size)
    assert "\n" not in str(caught.value)
