"""Beginners' mistakes, each with the one line that it ends in. A report is one more line here."""

import dataclasses
import traceback
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
import programs
from ppo_mask.errors import ProtocolError, RunError
from ppo_mask.jax_tools import describe_shapes


class Slide(pm.AbstractEnv[jax.Array]):
    """Three numbers that grow; fields of its timesteps can be replaced."""

    fields: dict[str, Any] = eqx.field(default_factory=dict)
    num_actions: Any = 2

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


class ChoosesFirst(Slide):
    def reset(self, key):
        state = jax.random.uniform(key, (3,))
        if state[0] > 0:
            state = state + 1
        return state, self.timestep(state)


class First(Slide):
    """What ``reset`` returns, made of the state and the timestep."""

    first: Any = lambda state, timestep: (state, timestep)

    def reset(self, key):
        return self.first(*Slide.reset(self, key))


@dataclasses.dataclass
class Plain:
    x: Any


class NumberAsState(Slide):
    start: Any = eqx.field(static=True, default=0.0)

    def reset(self, key):
        start = np.zeros(2) if self.start is np else self.start
        return start, self.timestep(jax.random.uniform(key, (3,)))

    def step(self, key, state, action):
        return state + 1, self.timestep(jnp.ones(3) * jnp.sum(state))


class InfoOfSteps(Slide):
    def step(self, key, state, action):
        return state, self.timestep(state, info={"height": state[0], "more": 1.0})


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


def train(env, model=None, metrics=None, **parts):
    config, algorithm = pm.PPOConfig(num_envs=4, num_steps=4), pm.ppo.Algorithm(**parts)
    trainer = pm.Trainer(env, config, metrics=metrics, algorithm=algorithm)
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
# Those that a network for the environment finds already.
FIRST = {
    "if on a value": (ChoosesFirst, "(test_mistakes.py, line"),
    "timestep alone": (
        lambda: First(first=lambda s, t: t),
        "reset must return a state and a TimeStep, got a TimeStep",
    ),
    "observation": (lambda: First(first=lambda s, t: (s, s)), "got an array and an array"),
    "swapped": (lambda: First(first=lambda s, t: (t, s)), "got a TimeStep and an array"),
    "dataclass as state": (
        lambda: First(first=lambda s, t: (Plain(s), t)),
        "reset returns a state that is a Plain, not a tree of arrays; make it an eqx.Module",
    ),
    "text in the state": (
        lambda: First(first=lambda s, t: ({"name": "x"}, t)),
        "reset returns a state['name'] that is a str",
    ),
    "number of NumPy's": (
        lambda: Slide(num_actions=np.int64(2)),
        "num_actions is np.int64(2), not a positive int",
    ),
    "list of numbers": (
        lambda: Slide(num_actions=[2, 3]),
        "num_actions is [2, 3], not a positive int or a tuple of some",
    ),
    **{name: ENVS[name] for name in ("gymnasium", "class", "something else")},
}


def losing(change):
    return {"loss": lambda *args: change(*pm.ppo.ppo_loss(*args))}


def estimating(change):
    return {"advantage_estimator": lambda *args: change(pm.ppo.estimate_advantages(*args))}


PARTS = {
    "metric of a vector": (
        losing(lambda loss, metrics: (loss, metrics | {"x": jnp.ones(3)})),
        "the metric x is an array of shape [3]",
    ),
    "metric of text": (
        losing(lambda loss, metrics: (loss, metrics | {"x": "x"})),
        "the metric x is a str",
    ),
    "loss of a vector": (
        losing(lambda loss, metrics: (loss[None], metrics)),
        "the loss must return a pair: one number, and metrics by name; the number is an array of "
        "shape [1]",
    ),
    "loss alone": (losing(lambda loss, _: loss), "metrics by name; it returned a"),
    "three results": (losing(lambda *pair: (*pair, 1)), "metrics by name; it returned a tuple"),
    "loss and number": (
        losing(lambda loss, _: (loss, 0.5)),
        "metrics by name; it returned an array of shape [] and a float",
    ),
    "loss without metrics": (
        losing(lambda loss, _: (loss, {})),
        "the loss must return the metrics total_loss",
    ),
    "loss without one metric": (
        losing(lambda loss, metrics: (loss, {k: x for k, x in metrics.items() if k[:2] != "ap"})),
        "approx_kl is missing",
    ),
    "advantages of other shape": (
        estimating(lambda x: x[0]),
        "one number for each reward, of shape [4, 4]; it returned an array of shape [4]",
    ),
    "two advantages": (estimating(lambda x: (x, x)), "[4, 4]; it returned a tuple"),
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


@pytest.mark.parametrize("make_for", [pm.MLPActorCritic.for_env, pm.networks.network_for])
@pytest.mark.parametrize("name", FIRST)
def test_a_network_for_a_wrong_environment_is_one_line(name: str, make_for: Any) -> None:
    make, message = FIRST[name]
    assert message in line_of(lambda: make_for(make(), key=jax.random.key(0)))


@pytest.mark.parametrize("name", FIRST)
def test_a_check_of_a_wrong_environment_says_the_same(name: str) -> None:
    make, message = FIRST[name]
    assert message in line_of(lambda: pm.check_env(make()))


def test_wrappers_of_a_wrong_environment_say_the_same() -> None:
    for wrap in (pm.FlatObservation, lambda env: pm.envs.MultiTask((env, env))):
        assert "(test_mistakes.py, line" in line_of(lambda wrap=wrap: wrap(ChoosesFirst()))


@pytest.mark.parametrize("start", [0.0, 1, np])
def test_a_state_may_be_a_number(start: Any) -> None:
    trainer = pm.Trainer(NumberAsState(start=start), pm.PPOConfig(num_envs=4, num_steps=4))
    begin, one = eqx.filter_eval_shape(trainer.init, mlp(), jax.random.key(0)), jnp.int32(1)
    after, _ = eqx.filter_eval_shape(trainer.run_updates, begin, one, one)
    assert describe_shapes(after) == describe_shapes(begin)


def test_an_info_that_reset_does_not_give_is_found_by_training_too() -> None:
    message = "timestep.info['more'] is nothing from reset but float32[] from step"
    assert message in line_of(lambda: train(InfoOfSteps()))
    assert message in line_of(lambda: pm.evaluate(mlp(), InfoOfSteps(), jax.random.key(0), 2))


def test_a_policy_is_taken_where_its_network_is(tmp_path: Path) -> None:
    program = programs.locks()
    policy = pm.Policy(program.make_model(jax.random.key(0)))
    begun = program.trainer.init(policy, jax.random.key(1))
    assert eqx.tree_equal(begun, program.start)
    pm.save_policy(policy, tmp_path / "policy")
    assert eqx.tree_equal(pm.load_policy(tmp_path / "policy").model, policy.model)


def test_a_state_in_place_of_its_network_is_one_line(tmp_path: Path) -> None:
    env, state = programs.locks().env, programs.locks().start
    key, message = jax.random.key(0), "got TrainState; use state.model"
    assert message in line_of(lambda: pm.evaluate(state, env, key, 2))
    assert message in line_of(lambda: pm.save_policy(state, tmp_path / "policy"))
    assert message in line_of(lambda: train(env, state))
    assert "got the class MLPActorCritic" in line_of(lambda: train(env, pm.MLPActorCritic))


@pytest.mark.parametrize("name", MODELS)
def test_a_wrong_network_is_one_line(name: str) -> None:
    make, message = MODELS[name]
    assert message in line_of(lambda: train(Slide(), make()))


@pytest.mark.parametrize("name", PARTS)
def test_a_wrong_loss_or_estimator_is_one_line(name: str) -> None:
    part, message = PARTS[name]
    assert message in line_of(lambda: train(Slide(), **part))


@pytest.mark.parametrize("name", METRICS)
def test_a_wrong_metric_is_one_line(name: str) -> None:
    value, message = METRICS[name]
    assert message in line_of(lambda: train(Slide(), metrics={"m": pm.Metric(value)}))


def test_errors_of_a_program_of_ones_own_go_through() -> None:
    class Broken(Slide):
        def step(self, key, state, action):
            raise TypeError("my own")

    with pytest.raises(TypeError, match="my own"):
        train(Broken())


def test_laws_are_still_errors_of_the_protocol() -> None:
    with pytest.raises(ProtocolError, match="not bool"):
        pm.check_env(Slide({"action_mask": jnp.ones(3, bool)}))


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
def test_a_network_for_other_choices_is_one_line(make: Any, line: str) -> None:
    class Own(Pair):
        def __call__(self, observation, action_mask):
            return make(jnp.zeros(action_mask.size), action_mask), jnp.float32(0)

    env = pm.envs.probes.MaskedDoors()
    assert line in line_of(lambda: pm.evaluate(Own(None), env, jax.random.key(0), 1))


def test_a_network_is_described_with_its_choices() -> None:
    model, env = programs.doors().start.model, programs.doors().env
    assert pm.networks.describe_network(model, env).endswith("-> 4 x 6 x 6 actions")
