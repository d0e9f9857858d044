"""Exported policies, which onnxruntime and NumPy run as JAX does."""

import json
from functools import partial
from operator import itemgetter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import corridor
import ppo_mask as pm
from counting import DEFAULTS, TASK
from ppo_mask.errors import RunError
from ppo_mask.networks import add_normalization
from ppo_mask.runner import main
from source import load

KEY = jax.random.key(0)


class Rooms(pm.AbstractEnv):
    """A board, two numbers and three choices."""

    num_actions: tuple[int, ...] = eqx.field(static=True, default=(2, 3, 2))
    observation_info: pm.envs.ArrayInfo = pm.envs.ArrayInfo(bounds=(0, 200))
    action_names = ("a", "b", "c", "d", "e", "f", "g")

    def reset(self, key):
        board = jax.random.randint(key, (4, 3, 2), 0, 200)
        return board, self.timestep(board)

    def step(self, key, state, action):
        return self.reset(key)

    def timestep(self, board):
        seen = {"board": board, "scale": jnp.float32(board[0, 0]) / 100}
        return pm.TimeStep(seen, self.mask(board), 0.0, False, False, {})

    def mask(self, board):
        return jnp.arange(7) != board.sum() % 7


class Kinds(Rooms):
    """The board has four kinds of cells."""

    observation_info: pm.envs.ArrayInfo = pm.envs.ArrayInfo(bounds=(-1, 2))

    def timestep(self, board):
        seen = {"board": board[..., 0] % 4 - 1, "scale": jnp.ones(2)}
        return pm.TimeStep(seen, self.mask(board), 0.0, False, False, {})


class Cells(Rooms):
    """An action for each cell of the board, and one more."""

    num_actions: int = eqx.field(static=True, default=13)
    action_names = tuple("abcdefghijklm")

    def mask(self, board):
        return jnp.arange(13) != board.sum() % 13


class InTurn(Rooms):
    def mask(self, board):
        return jnp.ones(7, bool)

    def part_mask(self, state, prefix, k):
        return jnp.arange(self.num_actions[k]) != (prefix.sum() if k else -1)


class Packing(Rooms):
    """Items, of which some are there, and bins: an action is a pair, or to wait."""

    num_actions: int | tuple[int, ...] = eqx.field(static=True, default=7)
    observation_sets = (("items", "is_there"), ("bins", None))

    def timestep(self, board):
        x = board.astype(jnp.float32) / 200
        items = {"size": x[:3, 0, 0], "price": x[:3, 1]}
        seen = {"items": items, "is_there": x[:3, 2, 0] > 0.3, "bins": x[3, :2], "room": x[3, 2, 0]}
        return pm.TimeStep(seen, self.mask(board), 0.0, False, False, {})

    def mask(self, board):
        is_open = jnp.arange(pm.envs.Actions.of(self.num_actions).length) != board.sum() % 7
        return is_open | (self.num_actions != 7)


class Own(pm.AbstractActorCritic):
    layers: eqx.nn.MLP
    norm: eqx.nn.LayerNorm
    filters: eqx.nn.Conv1d

    def __init__(self, *, key):
        self.layers = eqx.nn.MLP(6, 4, 8, 2, activation=jax.nn.gelu, key=key)
        self.norm, self.filters = eqx.nn.LayerNorm(6), eqx.nn.Conv1d(1, 1, 3, padding=1, key=key)

    def __call__(self, observation, action_mask):
        *logits, value = self.layers(self.norm(jax.nn.silu(self.filters(observation[None])[0])))
        return pm.MaskedCategorical(jnp.stack(logits), action_mask), value


class Sorts(pm.AbstractActorCritic):
    def __call__(self, observation, action_mask):
        return pm.MaskedCategorical(jnp.sort(observation)[:3], action_mask), jnp.float32(0)


OPERATIONS = {
    "a row of a table": lambda x, n: jnp.arange(12.0).reshape(6, 2)[n[0]],
    "elements": lambda x, n: x[n],
    "an element of each axis": lambda x, n: x.reshape(2, 3)[n[0] % 2, n[1] % 3],
    "an axis": lambda x, n: jax.lax.dynamic_slice(x.reshape(2, 3), (n[0], 0), (1, 3)),
    "backward": lambda x, n: x.reshape(2, 3)[::-1, ::-2],
    "tile": lambda x, n: jnp.tile(x, 2),
    "exact gelu": lambda x, n: jax.nn.gelu(x, approximate=False),
    "logsumexp": lambda x, n: jax.nn.logsumexp(x),
    "reductions": lambda x, n: jnp.stack([x.prod(), x.mean(), x.var(), x.min(), x.max()]),
    "reductions of bits": lambda x, n: jnp.stack(
        [jnp.bitwise_and.reduce(n), jnp.bitwise_or.reduce(n)]
    ),
    "all, any": lambda x, n: jnp.stack([(x > -1).all(), (x > 1).any()]),
    "places": lambda x, n: jnp.stack([x.argmin(), x.argmax(), (x > 0).argmax(), (-n).argmin()]),
    "arcs": lambda x, n: jnp.arctan(x) + jnp.sinh(x) + jnp.arcsinh(x) + jnp.tan(x),
    "powers": lambda x, n: n**2 + x**3 + 2.0**x + jnp.exp2(x),
    "bits": lambda x, n: (n << 28) ^ (~n >> 1) | (n - 3 >> 31),
    "bits shifted out": lambda x, n: jnp.uint32(9) << n.astype(jnp.uint32) * 16 - 17,
    "unsigned bits": lambda x, n: (
        (~n.astype(jnp.uint32) << 30) + jnp.bitwise_count(n.astype(jnp.uint32))
    ),
    "small integers": lambda x, n: (
        jnp.bitwise_count(n.astype(jnp.uint8) * 100) + (~n.astype(jnp.uint8))
    ),
    "a choice": lambda x, n: jax.lax.cond(n[0] > 2, jnp.sin, jnp.cos, x),
    "half precision": lambda x, n: jnp.round(4 * x).astype(jnp.bfloat16).astype(float) + 1,
}


def session_of(model, env, path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pm.export_policy(model, env, path)
    return onnxruntime.InferenceSession(path)


def run(session, **inputs):
    outputs = [x.name for x in session.get_outputs()]
    return dict(zip(outputs, session.run(outputs, inputs), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mlp", "gru", "own"])
def test_onnxruntime_acts_as_the_policy_does(kind, tmp_path):
    env = corridor.Corridor()
    model = Own(key=KEY) if kind == "own" else pm.network_for(env, kind, hidden_dim=8, key=KEY)
    session = session_of(model, env, tmp_path / "policy.onnx")
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["ppo_mask"]) == pm.__version__
    assert json.loads(about["actions"]) == ["0", "1", "2"]
    for size in (1, 5):
        seen = np.eye(6, dtype=np.float32)[:size]
        masks = np.arange(3) >= np.arange(size)[:, None] % 3
        given = {"observation": seen, "action_mask": masks}
        hidden = [jnp.full((size, 8), 0.3)] if kind == "gru" else []
        if kind == "gru":
            given["hidden"] = np.asarray(hidden[0])
            assert json.loads(about["initial_hidden"]) == {"hidden": [0.0] * 8}
        found = run(session, **given)
        known = pm.Policy(model).model
        distribution, value, after = jax.vmap(known.advance)(seen, masks, *hidden or [()])
        probs = jax.vmap(lambda x: x.probs)(distribution)
        np.testing.assert_allclose(found["probabilities"], probs, atol=1e-5)
        np.testing.assert_allclose(found["value"], value, atol=1e-5)
        assert found["action"].tolist() == jax.vmap(lambda d: d.mode())(distribution).tolist()
        if hidden:
            np.testing.assert_allclose(found["next_hidden"], after, atol=1e-5)
    seen[:] = np.nan
    action = run(session, **{**given, "observation": seen})["action"]
    assert np.take_along_axis(masks, action[:, None], 1).all()


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 7])
def test_operations_of_networks_of_ones_own_are_exported(size):
    onnxruntime = pytest.importorskip("onnxruntime")
    translate = pytest.importorskip("ppo_mask.export._onnx").translate
    given = jax.random.normal(KEY, (7, 6)), jax.random.randint(KEY, (7, 6), 0, 6)
    each = jax.vmap(lambda given: {name: f(*given) for name, f in OPERATIONS.items()})
    session = onnxruntime.InferenceSession(translate(each, given, {}))
    given = jax.device_get(jax.tree.map(lambda x: x[:size], given))
    found = run(session, **{str(n): x for n, x in enumerate(given)})
    for name, x in each(given).items():
        assert found[name].dtype == x.dtype, name
        np.testing.assert_allclose(found[name], x, 1e-5, 1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (jnp.sort, "the operation sort"),
        (lambda x: jax.lax.dynamic_slice(x, (x[0].astype(int),), (2,)), "slices that begin at a"),
        (lambda x: jax.lax.pad(x, 0.0, [(0, 0, 1)]), "padding between elements"),
        (lambda x: eqx.nn.ConvTranspose1d(1, 1, 2, 2, key=KEY)(x[None]), "transposed convolutions"),
    ],
)
def test_other_operations_are_refused_by_name(function, named):
    translate = pytest.importorskip("ppo_mask.export._onnx").translate
    with pytest.raises(NotImplementedError, match=f"there is no rule for {named}"):
        translate(jax.vmap(function), jnp.ones((2, 3)), {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "env", "board"),
    [
        ("conv", Rooms(), [4, 3, 2]),
        ("mlp", Rooms(), [4, 3, 2]),
        ("conv", Kinds(), [4, 3]),
        ("conv", Cells(), [4, 3, 2]),
    ],
)
def test_a_board_and_parts_are_exported(kind, env, board, tmp_path):
    model = pm.network_for(env, kind, hidden_dim=8, key=KEY)
    timestep = env.reset(KEY)[1]
    model = add_normalization(model, jax.tree.map(lambda x: x[None], timestep.observation))
    session = session_of(model, env, tmp_path / "policy.onnx")
    names = {x.name: x.shape for x in session.get_inputs()}
    shapes = {"observation.board": board, "observation.scale": [2]}
    shapes["action_mask"] = [len(env.action_names)]
    assert names == {name: ["batch", *shape] for name, shape in shapes.items()}
    assert json.loads(session.get_modelmeta().custom_metadata_map["actions"]) == [*env.action_names]
    given = {f"observation.{name}": x[None] for name, x in timestep.observation.items()}
    given = jax.device_get({**given, "action_mask": timestep.action_mask[None]})
    policy = pm.Policy(model)
    action = policy(timestep.observation, timestep.action_mask).tolist()
    assert run(session, **given)["action"].tolist() == [action]
    pm.export_policy(model, env, tmp_path / "policy.npz")
    program = load("examples/numpy_policy.py").Policy(tmp_path / "policy.npz")
    for key in jax.random.split(KEY, 8):
        timestep = env.reset(key)[1]
        action = policy(timestep.observation, timestep.action_mask).tolist()
        seen, mask = jax.device_get((timestep.observation, timestep.action_mask))
        assert program(seen, mask) == action
    value = model(timestep.observation, timestep.action_mask)[1]
    np.testing.assert_allclose(program.value(seen, mask), value, atol=1e-5)


@pytest.mark.slow
def test_parts_in_turn_take_a_call_each(tmp_path):
    env = InTurn()
    model = pm.network_for(env, "mlp", hidden_dim=8, part_embedding=2, policy_gain=50.0, key=KEY)
    session = session_of(model, env, tmp_path / "policy.onnx")
    state, timestep = env.reset(KEY)
    given = {f"observation.{name}": x[None] for name, x in timestep.observation.items()}
    given = jax.device_get({**given, "action_mask": timestep.action_mask[None]})
    mask, prefix = given["action_mask"].copy(), np.zeros((1, 3), np.int32)
    for k, (start, size) in enumerate([(0, 2), (2, 3), (5, 2)]):
        mask[:, start : start + size] = env.part_mask(state, jnp.asarray(prefix[0, :k]), k)
        found = run(session, **{**given, "action_mask": mask}, prefix=prefix)
        prefix[:, k] = found["action"][:, k]
    choose = partial(env.part_mask, state)
    action = pm.Policy(model)(timestep.observation, timestep.action_mask, part_mask=choose)
    assert prefix.tolist() == [action.tolist()]
    pm.export_policy(model, env, tmp_path / "policy.npz")
    program = load("examples/numpy_policy.py").Policy(tmp_path / "policy.npz")
    choose = lambda prefix, k: env.part_mask(state, jnp.asarray(prefix), k)  # noqa: E731
    seen = jax.device_get(timestep.observation)
    assert program(seen, np.ones(7, bool), part_mask=choose) == action.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("num_actions", [4, 7, (3, 2), (4, 4, 4)])
def test_sets_are_exported(num_actions, tmp_path):
    env = Packing(num_actions)
    model = pm.network_for(env, "sets", hidden_dim=8, num_layers=2, key=KEY)
    timestep = jax.vmap(env.reset)(jax.random.split(KEY, 9))[1]
    model = add_normalization(model, timestep.observation)
    larger = jax.tree.map(lambda x: 50 * x, model.network.pointers)
    model = eqx.tree_at(lambda m: m.network.pointers, model, larger)
    session = session_of(model, env, tmp_path / "policy.onnx")
    given = {f"observation.{x}": timestep.observation[x] for x in ("bins", "is_there", "room")}
    of_items = timestep.observation["items"].items()
    given |= {f"observation.items.{name}": x for name, x in of_items}
    found = run(session, **jax.device_get(given), action_mask=np.asarray(timestep.action_mask))
    assert {x.name for x in session.get_inputs()} == {*given, "action_mask"}
    distribution, value = jax.vmap(model)(timestep.observation, timestep.action_mask)
    actions = jax.vmap(lambda x: x.mode())(distribution).tolist()
    assert found["action"].tolist() == actions
    np.testing.assert_allclose(found["value"], value, atol=1e-5)
    pm.export_policy(model, env, tmp_path / "policy.npz")
    program = load("examples/numpy_policy.py").Policy(tmp_path / "policy.npz")
    for n in range(9):
        seen, mask = jax.device_get(
            jax.tree.map(itemgetter(n), (timestep.observation, timestep.action_mask))
        )
        assert program(seen, mask) == actions[n]
        np.testing.assert_allclose(program.value(seen, mask), value[n], atol=1e-5)


@pytest.mark.slow
def test_a_recurrent_policy_plays_with_numpy(tmp_path):
    env = corridor.Corridor()
    model = pm.network_for(env, "gru", hidden_dim=8, layer_norm=True, key=KEY)
    pm.export_policy(model, env, tmp_path / "policy.npz")
    program = load("examples/numpy_policy.py").Policy(tmp_path / "policy.npz")
    hidden = model.initial_hidden()
    for seen in np.eye(6, dtype=np.float32):
        _, value, after = model.advance(jnp.asarray(seen), jnp.ones(3, bool), hidden)
        np.testing.assert_allclose(program.value(seen, np.ones(3, bool)), value, atol=1e-5)
        program(seen, np.ones(3, bool))
        hidden = after


def test_a_wrong_file_is_refused(tmp_path):
    env = corridor.Corridor()
    with pytest.raises(RunError, match=r"must end in \.onnx or \.npz, got .*policy\.pt"):
        pm.export_policy(Sorts(), env, tmp_path / "policy.pt")


@pytest.mark.slow
def test_what_cannot_be_exported_takes_one_line(tmp_path, monkeypatch):
    env, path = corridor.Corridor(), tmp_path / "policy.onnx"
    pytest.importorskip("onnxruntime")
    with pytest.raises(RunError, match=r"the export of Sorts fails: there is no rule for .* sort$"):
        pm.export_policy(Sorts(), env, path)
    monkeypatch.setitem(rules := pm.export._onnx._RULES, "tanh", rules["sin"])
    with pytest.raises(RunError, match=r"differ by .* in .*, more than 1e-05; nothing was"):
        pm.export_policy(pm.network_for(env, "mlp", policy_gain=9.0, key=KEY), env, path)
    assert not path.exists()


@pytest.mark.parametrize("value", [np.nan, 2.0])
def test_what_only_onnxruntime_makes_unknown_differs(value):
    ours, theirs = (
        {"action": np.array([1]), "probabilities": np.array([[0.0, 1, 0]]), "value": np.array([x])}
        for x in (value, np.nan)
    )
    compare = pm.export._export._compare
    if np.isnan(value):
        compare(ours, theirs, (0,))
    else:
        with pytest.raises(RunError, match=r"differ by nan in value"):
            compare(ours, theirs, (0,))


def test_without_the_packages_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(RunError, match=r"install them with pip install 'ppo-mask\[onnx\]'"):
        pm.export_policy(Sorts(), corridor.Corridor(), tmp_path / "policy.onnx")


@pytest.mark.slow
def test_a_program_exports_its_run(tmp_path, capsys):
    words = [f"--checkpoint-dir={tmp_path}", "--no-tensorboard", "--total-timesteps=64"]
    assert main(TASK, DEFAULTS, words, prog="corridor") == 0
    words = ["export", "latest", str(tmp_path / "policy.npz"), words[0]]
    assert main(TASK, DEFAULTS, words) == 0
    assert main(TASK, DEFAULTS, words) == 2
    assert "exists already; nothing was written" in capsys.readouterr().err
    assert main(TASK, DEFAULTS, [*words, "--force"]) == 0
    described = json.loads(str(np.load(tmp_path / "policy.npz")["description"]))
    assert described["format"] == 3
