"""Beginners' mistakes, each with the one line that it ends in. A report is one more line here."""

import traceback
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import ppo_mask as pm
from ppo_mask.envs.probes import ConstantValue
from ppo_mask.errors import ProtocolError, RunError

pytestmark = pytest.mark.unoptimized


class Slide(pm.AbstractEnv[jax.Array]):
    """Three numbers that grow; fields of its timesteps can be replaced."""

    fields: dict[str, Any] = eqx.field(default_factory=dict)
    num_actions: int = 2

    def reset(self, key):
        state = jax.random.uniform(key, (3,))
        return state, self.timestep(state)

    def step(self, key, state, action):
        state = state + 0.1 * action
        return state, self.timestep(state)

    def timestep(self, state, **fields):
        usual = {
            "observation": state,
            "action_mask": jnp.ones(2, bool),
            "reward": state.sum(),
            "terminated": state[0] > 1,
            "truncated": False,
            "info": {"height": state[0]},
        }
        return pm.TimeStep(**(usual | self.fields | fields))


class Grows(Slide):
    def step(self, key, state, action):
        return state, self.timestep(state, observation=jnp.ones(4))


class StateChanges(Slide):
    def step(self, key, state, action):
        return state.astype(jnp.int32), self.timestep(state)


class Chooses(Slide):
    def step(self, key, state, action):
        if action > 0:
            state = state + 1
        return state, self.timestep(state)


class OneResult(Slide):
    def step(self, key, state, action):
        return self.timestep(state)


class Nan(Slide):
    def step(self, key, state, action):
        return state, self.timestep(state, reward=jnp.nan)


class Pair(pm.AbstractActorCritic):
    """A model of somebody's own, which gives what it was made with."""

    result: Any

    @property
    def hyperparameters(self):
        return {}

    def __call__(self, observation, action_mask):
        return self.result


def mlp(size: int = 3, actions: int = 2) -> pm.MLPActorCritic:
    return pm.MLPActorCritic(size, actions, hidden_dim=4, key=jax.random.key(0))


def train(env, model=None, metrics=None):
    trainer = pm.Trainer(env, pm.PPOConfig(num_envs=4, num_steps=4), metrics=metrics)
    state = trainer.init(mlp() if model is None else model, jax.random.key(0))
    return trainer.train(state, 32)


def gymnasium_env():
    gymnasium = pytest.importorskip("gymnasium")
    return gymnasium.make("CartPole-v1")


# The part that is wrong, and what the line says.
ENVS = {
    "mask too long": (lambda: Slide({"action_mask": jnp.ones(3, bool)}), "is bool[3], not bool[2]"),
    "mask of numbers": (
        lambda: Slide({"action_mask": jnp.ones(2)}),
        "TimeStep.action_mask is float32[2], not bool[actions]",
    ),
    "reward for each": (
        lambda: Slide({"reward": jnp.ones(3)}),
        "TimeStep.reward is float32[3], not one number (test_mistakes.py, line",
    ),
    "flag of numbers": (
        lambda: Slide({"terminated": jnp.zeros(())}),
        "TimeStep.terminated is float32[], not bool[]",
    ),
    "info of text": (lambda: Slide({"info": {"a": "b"}}), "TimeStep.info['a'] is a str"),
    "observation that grows": (
        Grows,
        "timestep.observation is float32[3] from reset but float32[4] from step",
    ),
    "state that changes": (StateChanges, "state is float32[3] from reset but int32[3] from step"),
    "if on a value": (Chooses, "(test_mistakes.py, line"),
    "one result": (OneResult, "step must return a state and a TimeStep"),
    "gymnasium": (gymnasium_env, "ppo_mask.adapters.from_gymnasium.GymnasiumEnv takes in"),
    "class": (lambda: Slide, "env is the class Slide; make an environment of it: Slide()"),
    "something else": (lambda: 3, "env must be an AbstractEnv, got int"),
}
MODELS = {
    "of another size": (lambda: mlp(5), "MLPActorCritic.for_env(env, key=key) makes one that fits"),
    "of other actions": (lambda: mlp(3, 4), "there are 4 logits, and the mask is of 2 actions"),
    "of equinox": (
        lambda: eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0)),
        "model must be an AbstractActorCritic, got MLP",
    ),
    "of logits": (
        lambda: Pair((jnp.zeros(2), jnp.zeros(()))),
        "the network Pair must give a MaskedCategorical and a value",
    ),
    "of many values": (
        lambda: Pair((pm.MaskedCategorical(jnp.zeros(2), jnp.ones(2, bool)), jnp.zeros(3))),
        "must give a value of one number, not float32[3]",
    ),
}
METRICS = {
    "of no info": (lambda a, i: i["nope"], "asks for info 'nope', and the environment's info has"),
    "of a vector": (lambda a, i: jnp.ones(3), "must give one number for a step, not float32[3]"),
    "that fails": (lambda a, i: a @ a, "metric m fails: "),
}


def line_of(call) -> str:
    with pytest.raises(RunError) as caught:
        call()
    shown = "".join(traceback.format_exception(caught.value)).splitlines()
    assert len(shown) < 60, len(shown)
    assert "For simplicity, JAX has removed" not in shown[-1]
    return str(caught.value)


@pytest.mark.parametrize("name", ENVS)
def test_a_wrong_environment_is_one_line(name: str) -> None:
    make, message = ENVS[name]
    assert message in line_of(lambda: train(make()))


@pytest.mark.parametrize("name", [name for name in ENVS if name not in ("gymnasium",)])
def test_evaluations_say_the_same(name: str) -> None:
    make, message = ENVS[name]
    assert message in line_of(lambda: pm.evaluate(mlp(), make(), jax.random.key(0), 2))


@pytest.mark.parametrize("name", MODELS)
def test_a_wrong_network_is_one_line(name: str) -> None:
    make, message = MODELS[name]
    assert message in line_of(lambda: train(Slide(), make()))


@pytest.mark.parametrize("name", METRICS)
def test_a_wrong_metric_is_one_line(name: str) -> None:
    value, message = METRICS[name]
    assert message in line_of(lambda: train(Slide(), metrics={"m": pm.Metric(value)}))


def test_a_reward_that_is_no_number_is_one_line() -> None:
    with pytest.raises(pm.TrainingError, match="gave a reward that is not finite"):
        train(Nan())


def test_numbers_of_python_and_of_numpy_will_do() -> None:
    for reward in (1, 1.5, True, jnp.int8(3)):
        env = Slide({"reward": reward, "terminated": False, "info": {"x": 2}})
        timestep = env.reset(jax.random.key(0))[1]
        assert timestep.reward.dtype == jnp.float32
        assert timestep.info["x"].dtype == jnp.int32
        assert not timestep.info["x"].weak_type
    train(Slide({"reward": 1}))


def test_errors_of_a_program_of_ones_own_go_through() -> None:
    class Broken(Slide):
        def step(self, key, state, action):
            raise TypeError("my own")

    with pytest.raises(TypeError, match="my own"):
        train(Broken())


def test_laws_are_still_errors_of_the_protocol() -> None:
    with pytest.raises(ProtocolError, match="not bool"):
        pm.check_env(Slide({"action_mask": jnp.ones(3, bool)}))
    train(ConstantValue(), pm.MLPActorCritic.for_env(ConstantValue(), key=jax.random.key(0)))
