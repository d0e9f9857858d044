"""Sizes, errors and speed of exported policies: ``python benchmarks/exported.py``, on one core.

An action is a call of onnxruntime with a batch of 1 and one thread; the time is the best mean of
five runs of 200 calls. The difference is the largest one from JAX in any output but the action,
over the observations by which ``export_policy`` checks a file. With a word, as in
``python benchmarks/exported.py HackMatrix``, it measures the policies whose names have it.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime

import ppo_mask as pm
from hackmatrix import HackMatrix
from hackmatrix.networks import board_network
from hackmatrix.play.agents import NETWORKS
from hackmatrix.task import CHAMPION
from ppo_mask.checkpoints._checkpoint import named_arrays
from ppo_mask.export._export import act, inputs_of

KEY = jax.random.key(0)


class Rooms(pm.AbstractEnv[jax.Array]):
    """A board of 8 x 8 x 4 cells; with sets, 20 items and 10 bins, and a pair is an action."""

    has_sets: bool
    num_actions: int = 200

    @property
    def observation_sets(self) -> Any:
        return (("items", "is_there"), ("bins", None)) if self.has_sets else ()

    def reset(self, key: jax.Array) -> tuple[jax.Array, pm.TimeStep]:
        board = jax.random.normal(key, (8, 8, 4))
        return board, self.show(board)

    def step(self, key: jax.Array, state: jax.Array, action: Any) -> tuple[jax.Array, pm.TimeStep]:
        return self.reset(key)

    def show(self, board: jax.Array) -> pm.TimeStep:
        items, bins = board.reshape(-1)[:160].reshape(20, 8), board.reshape(-1)[:80].reshape(10, 8)
        sets = {"items": items, "is_there": items[:, 0] > 0, "bins": bins}
        seen = sets if self.has_sets else board
        return pm.TimeStep(seen, jnp.arange(200) % 7 > 0, 0.0, False, False, {})


class Own(pm.AbstractActorCritic):
    """A network of one's own: Equinox's convolutions, layer norm and MLP."""

    filters: eqx.nn.Conv2d
    norm: eqx.nn.LayerNorm
    layers: eqx.nn.MLP

    def __init__(self, key: jax.Array) -> None:
        self.filters, self.norm = eqx.nn.Conv2d(4, 8, 3, key=key), eqx.nn.LayerNorm(288)
        self.layers = eqx.nn.MLP(288, 201, 64, 2, activation=jax.nn.gelu, key=key)

    def __call__(self, observation: Any, action_mask: Any) -> Any:
        x = jax.nn.silu(self.filters(jnp.moveaxis(observation, -1, 0)))
        x = self.layers(self.norm(x.reshape(-1)))
        return pm.MaskedCategorical(x[:200], action_mask), x[200]


def policies() -> Iterator[tuple[str, Any, pm.AbstractEnv[Any]]]:
    board, sets, game = Rooms(False), Rooms(True), HackMatrix(time_aware=True)
    champion = pm.load_policy(CHAMPION, NETWORKS)
    yield "MLP, 2 × 256", pm.network_for(board, "mlp", key=KEY), board
    yield "board: convolutions", pm.network_for(board, "conv", key=KEY), board
    yield "GRU, 256", pm.network_for(board, "gru", key=KEY), board
    yield "sets of 20 and 10, 2 × 64", pm.network_for(sets, "sets", key=KEY), sets
    yield "a network of one's own: `eqx.nn.Conv2d`, `LayerNorm`, `MLP`", Own(KEY), board
    yield "HackMatrix's champion, MLP 2 × 128 on its features", champion, game
    yield "HackMatrix, `--network board`, 2 × 128", board_network(128, 2, key=KEY), HackMatrix()


def difference(model: Any, given: Any, session: Any) -> float:
    """The largest difference from JAX, which the check of the export computes, too."""
    ours = named_arrays(jax.jit(jax.vmap(lambda x: act(model, x)))(given))
    theirs = session.run([*ours], jax.device_get(named_arrays(given)))
    rest = zip(ours.items(), theirs, strict=True)
    return max(float(abs(x - y).max()) for (name, x), y in rest if name != "action")


def milliseconds(given: Any, session: Any) -> float:
    given = {name: np.asarray(x[:1]) for name, x in named_arrays(given).items()}
    times: list[float] = []
    for _ in range(6):  # The first warms up.
        start = time.perf_counter()
        for _ in range(200):
            session.run(None, given)
        times.append((time.perf_counter() - start) / 200)
    return 1000 * min(times[1:])


def main() -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    print("| policy | parameters | file | difference | ms an action |\n|---|---|---|---|---|")
    for name, network, env in policies():
        if not all(word in name for word in sys.argv[1:]):
            continue
        model = pm.networks.as_model(network)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "policy.onnx"
            pm.export_policy(model, env, path)
            session = onnxruntime.InferenceSession(path, options)
            size = path.stat().st_size / 1000
        given = inputs_of(model, env)
        found = difference(model, given, session), milliseconds(given, session)
        numbers = f"{size:,.0f} kB | {found[0]:.0e} | {found[1]:.2g}"
        print(f"| {name} | {model.num_parameters:,} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
