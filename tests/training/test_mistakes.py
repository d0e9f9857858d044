"""Beginners' mistakes, each with the one line that it ends in. A report is one more line here."""

import dataclasses
import traceback
from functools import cache, partial
from pathlib import Path
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
from ppo_mask.jax_tools._trees import describe_shapes
from ppo_mask.networks import as_model
from ppo_mask.training import take_gradient_steps
from ppo_mask.training._gradients import _checked as checked_loss


class Slide(pm.AbstractEnv[Any]):
    """Three numbers between 0 and 1; parts of it can be replaced by what is wrong."""

    fields: dict[str, Any] = eqx.field(default_factory=dict)
    num_actions: Any = 2
    first: Any = lambda state, timestep: (state, timestep)  # What reset returns, and step:
    then: Any = lambda action, state, timestep: (state, timestep)

    def reset(self, key):
        state = jax.random.uniform(key, (3,))
        return self.first(state, self.show(state))

    def step(self, key, state, action):
        return self.then(action, state, self.show(jnp.ones(3) * jnp.mean(jnp.asarray(state))))

    def show(self, seen):
        usual = {
            "observation": seen,
            "action_mask": jnp.ones(2, bool),
            "reward": seen.sum(),
            "terminated": seen[0] > 1,
            "truncated": False,
            "info": {"height": seen[0]},
        }
        return pm.TimeStep(**(usual | self.fields))


def shows(timestep, **fields):
    return dataclasses.replace(timestep, **fields)


@dataclasses.dataclass
class Plain:
    x: Any


class Pair(pm.AbstractActorCritic):
    """A model of somebody's own, which gives what it was made with."""

    result: Any

    @property
    def hyperparameters(self):
        return {}

    def __call__(self, observation, action_mask):
        return self.result(action_mask) if callable(self.result) else self.result


class Cell(pm.AbstractRecurrentActorCritic):
    """A recurrent model of somebody's own, which gives what follows its hidden state."""

    first: Any
    then: Any

    @property
    def hyperparameters(self):
        return {}

    def initial_hidden(self):
        return self.first

    def advance(self, observation, action_mask, hidden):
        result = pm.MaskedCategorical(jnp.zeros(2), action_mask), jnp.float32(0)
        return result if self.then is None else (*result, self.then(hidden))


class League(pm.training.AbstractCurriculum):
    """A curriculum of somebody's own, with a method in place of each."""

    methods: Any = eqx.field(static=True)

    def init(self, model):
        return self.methods.get("init", lambda: jnp.float32(1))()

    def renew(self, memory, model, updates):
        return self.methods.get("renew", lambda x: x)(memory)

    def __call__(self, env, progress, memory):
        return self.methods.get("call", lambda env, x: env)(env, memory)

    def update(self, memory, info, ended):
        return self.methods.get("update", lambda x: x)(memory)


class Learner(pm.AbstractAlgorithm):
    """An algorithm of somebody's own, with a method in place of each."""

    methods: Any = eqx.field(static=True)
    num_envs: int = 4
    num_steps: int = 4

    def init(self, model, rollout, key):
        return self.methods.get("init", lambda x: (x, ()))(model)

    def actor(self, model, own, at):
        return self.methods.get("actor", lambda x: x)(model)

    def learn(self, model, own, before, transitions, last_value, at):
        return self.methods.get("learn", lambda x: (x, own, {}))(model)


@cache
def mlp(size: int = 3, actions: int = 2) -> pm.MLPActorCritic:
    return pm.MLPActorCritic(size, actions, hidden_dim=4, key=jax.random.key(0))


def train(env=None, model=None, metrics=None, algorithm=None, curriculum=None, **parts):
    env = Slide() if env is None else env
    algorithm = pm.PPO(num_envs=4, num_steps=4, **parts) if algorithm is None else algorithm
    trainer = pm.Trainer(env, algorithm, metrics=metrics, curriculum=curriculum)
    state = trainer.init(mlp() if model is None else model, jax.random.key(0))
    return trainer.train(state, 32)


IN_THIS_FILE = "(test_mistakes.py, line"
PLAIN = "reset returns a state that is a Plain, not a tree of arrays; make it an eqx.Module"
# What is wrong, and what the line says.
FROM_RESET = {
    "if on a value": ({"first": lambda s, t: (s + 1 if s[0] > 0 else s, t)}, IN_THIS_FILE),
    "timestep alone": ({"first": lambda s, t: t}, "a state and a TimeStep, got a TimeStep"),
    "swapped": ({"first": lambda s, t: (t, s)}, "must return a state and a TimeStep, got a T"),
    "dataclass as state": ({"first": lambda s, t: (Plain(s), t)}, PLAIN),
    "text": ({"first": lambda s, t: ({"name": "x"}, t)}, "returns a state['name'] that is a str"),
    "number of NumPy's": ({"num_actions": np.int64(2)}, "np.int64(2), not a positive int"),
}
FROM_STEP = {
    "mask too long": ({"fields": {"action_mask": jnp.ones(3, bool)}}, "is bool[3], not bool[2]"),
    "mask of numbers": ({"fields": {"action_mask": jnp.ones(2)}}, "float32[2], not bool[actions]"),
    "reward for each": ({"fields": {"reward": jnp.ones(3)}}, f"not one number {IN_THIS_FILE}"),
    "info of text": ({"fields": {"info": {"a": "b"}}}, "TimeStep.info['a'] is a str"),
    "observation that grows": (
        {"then": lambda a, s, t: (s, shows(t, observation=jnp.ones(4)))},
        "timestep.observation is float32[3] from reset but float32[4] from step",
    ),
    "info of steps": (
        {"then": lambda a, s, t: (s, shows(t, info=t.info | {"more": 1.0}))},
        "timestep.info['more'] is nothing from reset but float32[] from step",
    ),
    "state that changes": (
        {"then": lambda a, s, t: (s.astype(jnp.int32), t)},
        "state is float32[3] from reset but int32[3] from step",
    ),
    "if on an action": ({"then": lambda a, s, t: (s + 1 if a > 0 else s, t)}, IN_THIS_FILE),
    "one result": ({"then": lambda a, s, t: t}, "step must return a state and a TimeStep"),
}
MODELS = {
    "of another size": (lambda: mlp(5), "ppo_mask.network_for(env, key=key) makes one that fits"),
    "of other actions": (lambda: mlp(3, 4), "there are 4 logits, and the mask is of 2 actions"),
    "of equinox": (
        lambda: eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0)),
        "model must be a Model or an AbstractActorCritic, got MLP",
    ),
    "of logits": (
        lambda: Pair((jnp.zeros(2), jnp.zeros(()))),
        "the network Pair must give a masked distribution and a value",
    ),
    "of many values": (
        lambda: Pair((pm.MaskedCategorical(jnp.zeros(2), jnp.ones(2, bool)), jnp.zeros(3))),
        "must give a value of one number; it gives an array of shape [3]",
    ),
    "of bfloat16": (
        lambda: jax.tree.map(lambda x: x.astype(jnp.bfloat16), mlp()),
        "network.actor.0.weight is bfloat16, and weights must be float32",
    ),
    "with dropout": (
        lambda: Pair(lambda mask: eqx.nn.Dropout()(jnp.ones(2))),
        "the network Pair fails: Dropout requires a key when running in non-deterministic mode",
    ),
    "without the next hidden state": (
        lambda: Cell(jnp.zeros(3), None),
        "Cell must give a masked distribution and a value, and the next hidden state; it returned",
    ),
    "of a hidden state that grows": (
        lambda: Cell(jnp.zeros(3), lambda x: (x, x)),
        "Cell may change values alone of its hidden state: it was float32[3], and is nothing",
    ),
    "its class": (lambda: pm.MLPActorCritic, "got the class MLPActorCritic"),
    "its state": (lambda: programs.locks().start, "got TrainState; use state.model"),
}

PAIR = "must return a pair: one number, and metrics by name"
LOSSES = {
    "alone": (jnp.ones(()), f"{PAIR}; it returned a"),
    "of a vector": ((jnp.ones(1), {}), f"the loss {PAIR}; the number is an array of shape [1]"),
    "and two": ((jnp.ones(()), {}, 1), f"{PAIR}; it returned a tuple"),
    "and number": ((jnp.ones(()), 0.5), f"{PAIR}; it returned a float"),
    "and vector": ((1.0, {"x": jnp.ones(3)}), "the metric x is an array of shape [3]"),
    "and text": ((1.0, {"x": "x"}), "the metric x is a str"),
}


def if_on(*given):
    return 1 if jax.tree.leaves(given)[0].sum() > 0 else 2


def optimizer(init=lambda _: jnp.zeros(()), update=lambda gradient, state, _: (gradient, state)):
    return {"optimizer": optax.GradientTransformation(init, update)}


CHOICE = f"fails: Attempted boolean conversion of traced array with shape bool[] {IN_THIS_FILE}"
MEMORY = "the curriculum may change values alone of its memory: it was float32[], and is "
PARTS = {
    "if in a curriculum": (
        {"curriculum": lambda env, progress: if_on(progress)},
        f"the curriculum {CHOICE}",
    ),
    "curriculum of nothing": ({"curriculum": lambda env, progress: None}, "the curriculum fails: "),
    "if in a league": (
        {"curriculum": League({"call": lambda env, memory: if_on(memory)})},
        f"the curriculum {CHOICE}",
    ),
    "if in a renewal": ({"curriculum": League({"renew": if_on})}, f"the curriculum {CHOICE}"),
    "if in a memory": ({"curriculum": League({"update": if_on})}, f"the curriculum {CHOICE}"),
    "memory of Python": ({"curriculum": League({"init": lambda: 1.0})}, "the curriculum fails: "),
    "renewal of a type": (
        {"curriculum": League({"renew": lambda x: x.astype(int)})},
        f"{MEMORY}int32[]",
    ),
    "memory that is lost": ({"curriculum": League({"update": lambda x: None})}, f"{MEMORY}nothing"),
    "if in init": ({"algorithm": Learner({"init": if_on})}, f"init of Learner {CHOICE}"),
    "if in actor": ({"algorithm": Learner({"actor": if_on})}, f"actor of Learner {CHOICE}"),
    "actor of nothing": (
        {"algorithm": Learner({"actor": lambda x: None})},
        "actor of Learner fails: _actor: the result is None, not Model",
    ),
    "if in learn": ({"algorithm": Learner({"learn": if_on})}, f"learn of Learner {CHOICE}"),
    "if in a loss": ({"loss": lambda *x: if_on(x[1].advantage)}, f"the loss {CHOICE}"),
    "loss of one argument": ({"loss": lambda x: x}, "the loss fails: <lambda>() takes 1"),
    "key in a loss": ({"loss": lambda *_: {}["x"]}, "the loss fails: KeyError 'x' "),
    "if in an estimator": ({"advantages": if_on}, f"the advantage estimator {CHOICE}"),
    "if in an optimizer": (optimizer(update=if_on), f"the optimizer {CHOICE}"),
    "optimizer without init": (optimizer(lambda: ()), "the optimizer fails: <lambda>() takes 0"),
    "optimizer of one thing": (optimizer(update=lambda *x: x[0]), "the optimizer fails: "),
    "optimizer that grows": (
        optimizer(update=lambda *x: (x[0], jnp.zeros(2))),
        "the optimizer may change values alone of its state: it was float32[], and is float32[2]",
    ),
    "optimizer's name": ({"optimizer": "adam"}, "the optimizer fails: 'str' object is not"),
}
METRICS = {
    "of no info": (lambda a, i: i["nope"], "episode_length, height) fails: KeyError 'nope'"),
    "of many": (lambda a, i: jnp.ones(3), "must give one number for a step; for all, it gives an"),
    "that fails": (lambda a, i: a @ a, ") fails: "),
}


def line_of(call) -> str:
    with pytest.raises(RunError) as caught:
        call()
    shown = "".join(traceback.format_exception(caught.value)).splitlines()
    assert len(shown) < 60, len(shown)
    assert "For simplicity, JAX has removed" not in shown[-1]
    return str(caught.value)


@pytest.mark.parametrize(("wrong", "message"), [*FROM_RESET.values(), *FROM_STEP.values()])
def test_a_wrong_environment_is_one_line(wrong: Any, message: str) -> None:
    assert message in line_of(lambda: train(Slide(**wrong)))


def evaluate(env, metrics=None):
    return pm.evaluate(mlp(), env, jax.random.key(0), 2, metrics=metrics)


@pytest.mark.parametrize("name", ["if on an action", "mask too long", "info of steps"])
def test_evaluations_and_checks_say_the_same(name: str) -> None:
    wrong, message = FROM_STEP[name]
    for use in (evaluate, pm.check_env):
        assert message in line_of(lambda use=use: use(Slide(**wrong)))


network_for = partial(pm.network_for, key=jax.random.key(0))


@pytest.mark.parametrize("use", [network_for, evaluate, pm.check_env])
def test_all_that_takes_an_environment_says_the_same(use: Any) -> None:
    for name in ("if on a value", "timestep alone", "number of NumPy's"):
        wrong, message = FROM_RESET[name]
        assert message in line_of(lambda wrong=wrong: use(Slide(**wrong)))
    cart_pole = pytest.importorskip("gymnasium").make("CartPole-v1")
    for given, message in (
        (Slide, "env is the class Slide; pass an instance of it: Slide()"),
        (cart_pole, "wrap it with ppo_mask.adapters.from_gymnasium.GymnasiumEnv"),
    ):
        assert message in line_of(lambda given=given: use(given))
        assert message in line_of(lambda given=given: pm.Trainer(given, pm.PPO()))


def test_a_wrapper_of_a_wrong_environment_says_the_same() -> None:
    wrong, message = FROM_RESET["if on a value"]
    env = Slide(**wrong)
    assert message in line_of(lambda: pm.MultiTask((env, env)))


@pytest.mark.parametrize(("make", "message"), MODELS.values(), ids=MODELS)
def test_a_wrong_network_is_one_line(make: Any, message: str) -> None:
    assert message in line_of(lambda: train(model=make()))


def test_a_hidden_state_may_begin_with_a_number() -> None:
    model = as_model(Cell(0.0, lambda x: x + 1))
    mask = jnp.ones(2, bool)
    assert model.advance(jnp.ones(3), mask, model.initial_hidden())[2] == 1.0


def test_what_an_algorithm_trains_besides_is_float32_too() -> None:
    layer, rows = (
        eqx.nn.Linear(2, 2, dtype=jnp.float16, key=jax.random.key(0)),
        jnp.zeros((1, 1, 4), int),
    )
    sgd: Any = optax.sgd(1.0)
    message = "weight is float16, and weights must be float32"
    assert message in line_of(lambda: take_gradient_steps(len, sgd, layer, (), (), rows))


@pytest.mark.parametrize(("parts", "message"), PARTS.values(), ids=PARTS)
def test_a_wrong_part_is_one_line_that_names_it(parts: Any, message: str) -> None:
    assert message in line_of(lambda: train(**parts))


@pytest.mark.parametrize(("result", "message"), LOSSES.values(), ids=LOSSES)
def test_a_wrong_loss_is_one_line(result: Any, message: str) -> None:
    assert message in line_of(lambda: checked_loss(result))


def test_parts_of_ones_own_are_looked_at_by_training() -> None:
    def loss(*args: Any) -> Any:
        total, metrics = pm.ppo.ppo_loss(*args)
        return total, {name: x for name, x in metrics.items() if name != "approx_kl"}

    def estimator(*args: Any) -> Any:
        return pm.ppo.estimate_advantages(*args)[0]

    vector = "one number for each reward, of shape [4, 4]; it returned an array of shape [4]"
    nothing = {"m": pm.Metric(METRICS["of no info"][0])}
    assert "target_kl needs a loss with the metric approx_kl" in line_of(
        lambda: train(loss=loss, target_kl=0.1)
    )
    assert vector in line_of(lambda: train(advantages=estimator))
    assert METRICS["of no info"][1] in line_of(lambda: train(metrics=nothing))


@pytest.mark.parametrize(("value", "message"), METRICS.values(), ids=METRICS)
def test_a_wrong_metric_is_one_line(value: Any, message: str) -> None:
    assert message in line_of(lambda: evaluate(Slide(), {"m": pm.Metric(value)}))
    where = pm.Metric(lambda a, i: i["episode_return"], where=lambda i: value(jnp.int32(0), i))
    assert message in line_of(lambda: evaluate(Slide(), {"m": where}))


@pytest.mark.parametrize("start", [0.0, 1, np.zeros(2)], ids=repr)
def test_a_state_may_be_a_number(start: Any) -> None:
    env = Slide(first=lambda s, t: (start, t), then=lambda a, s, t: (s + 1, t))
    trainer = pm.Trainer(env, pm.PPO(num_envs=4, num_steps=4))
    begin, one = eqx.filter_eval_shape(trainer.init, mlp(), jax.random.key(0)), jnp.int32(1)
    after, _ = eqx.filter_eval_shape(trainer.run_updates, begin, one, one)
    assert describe_shapes(after) == describe_shapes(begin)


def test_a_policy_is_taken_where_its_network_is_and_a_state_is_not(tmp_path: Path) -> None:
    program, key, path = programs.locks(), jax.random.key(0), tmp_path / "policy"
    policy = pm.Policy(program.make_model(key))
    assert eqx.tree_equal(program.trainer.init(policy, jax.random.key(1)), program.start)
    pm.save_policy(policy, path)
    assert eqx.tree_equal(pm.load_policy(path).model, policy.model)
    message = "got TrainState; use state.model"
    assert message in line_of(lambda: pm.evaluate(program.start, program.env, key, 2))
    assert message in line_of(lambda: pm.save_policy(program.start, tmp_path / "state"))


def test_errors_of_a_program_of_ones_own_go_through() -> None:
    def broken(*_):
        raise TypeError("my own")

    with pytest.raises(TypeError, match="my own"):
        train(Slide(then=broken))


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            pm.MaskedCategorical,
            "the network has 16 actions, and the environment has 4 x 6 x 6 actions",
        ),
        (
            lambda logits, mask: pm.MaskedMultiCategorical(logits, mask, (6, 4, 6)),
            "the network has 6 x 4 x 6 actions, and the environment has 4 x 6 x 6",
        ),
    ],
)
def test_a_network_for_other_choices_is_one_line(make: Any, line: str) -> None:
    """A network may also hold functions."""
    model = Pair(lambda mask: (make(jnp.zeros(mask.size), mask), jnp.float32(0)))
    env = pm.envs.probes.MaskedDoors()
    assert line in line_of(lambda: pm.evaluate(model, env, jax.random.key(0), 1))


def test_a_network_is_described_with_its_choices() -> None:
    model, env = programs.doors().start.model, programs.doors().env
    assert pm.networks.describe_network(model, env).endswith("-> 4 x 6 x 6 actions")
