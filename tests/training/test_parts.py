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
from ppo_mask.errors import RunError
from ppo_mask.networks import trainable
from ppo_mask.ppo import ppo_loss
from ppo_mask.training._gradients import numbers as as_numbers

LOCKS = programs.locks()
CONFIG, UPDATES = LOCKS.config, 5
SCHEDULE = optax.linear_schedule(1e-2, 0.0, UPDATES * CONFIG.gradient_steps)
ADAM = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(SCHEDULE, eps=1e-5))


def loss_with_metric(model: Any, batch: Any, settings: pm.PPO) -> Any:
    loss, metrics = ppo_loss(model, batch, settings)
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
    parts = {"optimizer": ADAM, "loss": loss_with_metric, "advantages": estimate_monte_carlo}
    algorithm = dataclasses.replace(CONFIG, **parts)
    trainer = pm.Trainer(LOCKS.env, algorithm, metrics=LOCKS.trainer.metrics)
    by_hand = programs.Program(trainer, LOCKS.make_model)
    same, line = by_hand.train(UPDATES)
    for one, other in zip(*map(jax.tree.leaves, (state.model, same.model)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert (
        np.abs(
            state.model.network.actor[0].weight - LOCKS.start.model.network.actor[0].weight
        ).max()
        > 1e-3
    )
    assert (line["train/largest_advantage"] > 0.5).all()
    assert {*line.names} ^ {*history.names} == {"train/largest_advantage", "train/lr"}
    # A stop changes nothing: the schedule counts over the whole run.
    again, _ = by_hand.train(UPDATES, by_hand.train(2)[0])
    assert eqx.tree_equal(again.model, same.model)


def test_metrics_of_a_loss_may_be_numbers_of_python() -> None:
    numbers: Any = {"a": 1.0, "b": 2, "c": True, "d": np.float64(0.5)}
    metrics = as_numbers(numbers, "a loss")
    assert {name: float(x) for name, x in metrics.items()} == numbers
    assert {x.dtype for x in metrics.values()} == {np.dtype(np.float32)}


METRICS = {"mine/first": pm.Metric(lambda action, info: action == 0)}


def test_an_optimizer_may_be_made_of_the_settings() -> None:
    by_rate = dataclasses.replace(CONFIG, optimizer=lambda ppo: optax.sgd(ppo.learning_rate))
    updates, _ = by_rate._optimizer(()).update(jnp.ones(()), optax.sgd(0.1).init(jnp.zeros(())))
    assert updates == -CONFIG.learning_rate


@pytest.mark.parametrize(
    ("made_by", "trained_by", "message"),
    [
        ({}, {"optimizer": ADAM}, "another opt_state: begin"),
        ({"optimizer": ADAM}, {}, "another opt_state: begin"),
        ({"optimizer": ADAM}, {"optimizer": optax.sgd(0.1)}, "another opt_state: begin"),
        ({}, {"metrics": METRICS}, r"another metrics \(\[\], this one: \['mine/first'\]\)"),
        ({"metrics": METRICS}, {}, r"another metrics \(\['mine/first'\], this one: \[\]\)"),
        ({}, {"loss": loss_with_metric}, r"of the algorithm \(.*, this one: .*'largest_adv"),
        ({"num_envs": 16}, {}, r"another num_envs \(16, this one: 8\)"),
        ({"normalize_rewards": True}, {}, "another reward_scaler: begin"),
        (
            {},
            {"normalize_observations": True},
            r"model \(MLP.*, this one: MLPActorCritic, normalized",
        ),
        (
            {},
            {"precision": "bfloat16"},
            r"another model \(MLP.*, this one: MLPActorCritic, bfloat16",
        ),
    ],
)
def test_state_of_another_trainer_is_refused(made_by: Any, trained_by: Any, message: str) -> None:
    def trainer(metrics: Any = None, **parts: Any) -> pm.Trainer:
        return pm.Trainer(LOCKS.env, dataclasses.replace(CONFIG, **parts), metrics=metrics)

    model, one = LOCKS.start.model, jnp.int32(1)
    state = eqx.filter_eval_shape(lambda: trainer(**made_by).init(model, jax.random.key(0)))
    with pytest.raises(ValueError, match=message) as caught:
        eqx.filter_eval_shape(trainer(**trained_by).run_updates, state, one, one)
    assert "\n" not in str(caught.value)


class Distills(pm.AbstractAlgorithm):
    """Trains a predictor, which is no model, to give what a target network gives."""

    num_envs: int = 8
    num_steps: int = 8

    def init(self, model: Any, rollout: Any, key: Any) -> Any:
        target, predictor = (eqx.nn.MLP(1, 1, 4, 1, key=key) for key in jax.random.split(key))
        opt_state = optax.adam(1e-2).init(trainable(predictor)[0])
        return model, (target, predictor, opt_state)

    def learn(
        self, model: Any, own: Any, before: Any, transitions: Any, last_value: Any, at: Any
    ) -> Any:
        target, predictor, opt_state = own
        rows = pm.training.shuffle_rows(at.key, num_envs=8, units=8, epochs=40)
        predictor, opt_state, metrics = pm.training.take_gradient_steps(
            eqx.Partial(_distance, target),
            optax.adam(1e-2),
            predictor,
            opt_state,
            transitions.decision.observation,
            rows,
        )
        return model, (target, predictor, opt_state), pm.training.mean_over_steps(metrics)


def _distance(target: Any, predictor: Any, observation: Any) -> Any:
    both = jax.vmap(target)(observation), jax.vmap(predictor)(observation)
    error = jnp.square(both[0] - both[1]).mean()
    return error, {"error": error}


def test_an_own_state_has_networks_that_are_no_models_and_trains_one() -> None:
    trainer, history = pm.Trainer(LOCKS.env, Distills()), pm.History()
    start = trainer.init(pm.network_for(LOCKS.env, key=jax.random.key(0)), jax.random.key(1))
    state = trainer.train(start, 6 * 64, callbacks=[history], log_interval=1)
    first, *_, last = history["train/error"]
    assert last < 0.1 * first
    assert bool(eqx.tree_equal(state.own[0], start.own[0]))
    assert not eqx.tree_equal(state.own[1], start.own[1])


def _returns(**results: Any) -> pm.Trainer:
    class Wrong(pm.AbstractAlgorithm):
        num_envs: int = 8
        num_steps: int = 8

        def check(self, model: Any, num_devices: int) -> None:
            if "check" in results:
                raise ValueError(results["check"])

        def init(self, model: Any, rollout: Any, key: Any) -> Any:
            return results.get("init", (model, jnp.zeros(2)))

        def learn(self, model: Any, own: Any, *rest: Any) -> Any:
            return results.get("learn", lambda *_: (model, own, {}))(model, own)

    return pm.Trainer(LOCKS.env, Wrong())


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"check": "not this network"}, "not this network"),
        ({"init": jnp.zeros(2)}, "must return a model and the algorithm's own state; it"),
        ({"learn": lambda model, own: (model, {})}, "own state, and metrics; it"),
        ({"learn": lambda model, own: (model, own, [])}, "learn must return metrics by name; it"),
        (
            {"learn": lambda model, own: (model, own[:1], {})},
            "values alone of the own state: it was float32[2], and is float32[1]",
        ),
        (
            {"learn": lambda model, own: (model.network, own, {})},
            "of the model: network.actor[0].weight was float32[256, 1], and is nothing",
        ),
    ],
)
def test_a_wrong_algorithm_is_one_line(result: Any, message: str) -> None:
    model = pm.network_for(LOCKS.env, "mlp", key=jax.random.key(0))
    with pytest.raises((RunError, ValueError)) as caught:
        _returns(**result).init(model, jax.random.key(1))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_state_of_another_algorithm_is_refused() -> None:
    class Learns(pm.AbstractAlgorithm):
        num_envs: int = 8
        num_steps: int = 8

        def learn(self, model: Any, own: Any, *rest: Any) -> Any:
            return model, own, {}

    trainer, one = pm.Trainer(LOCKS.env, Learns(), metrics=LOCKS.trainer.metrics), jnp.int32(1)
    with pytest.raises(ValueError, match="of a Trainer with another algorithm: begin"):
        eqx.filter_eval_shape(trainer.run_updates, LOCKS.start, one, one)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_steps": 4}, "may change numbers alone, and it changes num_steps from 8 to 4"),
        ({"normalize_rewards": True}, "it changes normalize_rewards from False to True"),
        ({"target_kl": 0.1}, "it changes target_kl from None to "),
    ],
)
def test_a_schedule_changes_numbers_alone(changes: Any, message: str) -> None:
    def schedule(algorithm: pm.PPO, progress: Any) -> pm.PPO:
        return dataclasses.replace(algorithm, ent_coef=0.1 * progress, **changes)

    trainer, one = pm.Trainer(LOCKS.env, CONFIG, schedule=schedule), jnp.int32(1)
    state = eqx.filter_eval_shape(trainer.init, LOCKS.start.model, jax.random.key(0))
    with pytest.raises(RunError, match=message) as caught:
        eqx.filter_eval_shape(trainer.with_values().run_updates, state, one, one)
    assert "\n" not in str(caught.value)
