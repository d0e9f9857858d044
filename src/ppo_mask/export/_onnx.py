"""Translates a traced function to ONNX, one of JAX's operations after another.

What depends on constants alone is computed while translating: a weight is stored as it is used.
All integers have 64 bits in the graph, because onnxruntime computes with few others. The rules
check nothing: what they get wrong shows when the results are compared with JAX's.
"""

import string
from collections.abc import Callable, Mapping
from functools import partial
from itertools import starmap
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal
from onnx import helper, numpy_helper

Value: TypeAlias = Any
"""The name of a value in a graph, or an array that is known."""


class Graph:
    """An ONNX graph in the making.

    Args:
        inputs: the inputs' types by their names; the first axis of each is the batch.
    """

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self._nodes, self._constants, self._inputs = list[Any](), dict[Any, Any](), inputs
        self.batch = self.add("Shape", next(iter(inputs)), end=1)

    def add(self, operation: str, *inputs: Value, **attributes: Any) -> str:
        """Adds a node, and returns the name of its output."""
        name, names = f"{operation}_{len(self._nodes)}", [self._name(x) for x in inputs]
        self._nodes.append(helper.make_node(operation, names, [name], **attributes))
        return name

    def _name(self, x: Value) -> str:
        if isinstance(x, str):
            return x
        x = np.array(x, np.int64) if isinstance(x, list) else np.asarray(x)  # Sizes or axes.
        x, name = x.astype(_KINDS[x.dtype.kind]), f"constant_{len(self._constants)}"
        same = x.dtype, x.shape, x.tobytes()
        return self._constants.setdefault(same, numpy_helper.from_array(x, name)).name

    def cast(self, x: Value, dtype: Any) -> str:
        """Converts an array to a dtype, or to the one that stands for it in the graph."""
        return self.add("Cast", x, to=_number_of(_KINDS[np.dtype(dtype).kind]))

    def call(self, traced: ClosedJaxpr, *arguments: Value) -> list[Value]:
        """Adds what a traced function does, and returns its results."""
        variables = *traced.jaxpr.constvars, *traced.jaxpr.invars
        values = dict(zip(variables, (*traced.consts, *arguments), strict=True))

        def read(x: Any) -> Value:
            return x.val if isinstance(x, Literal) else values[x]

        for eqn in traced.jaxpr.eqns:
            found = self._compute(eqn, *map(read, eqn.invars))
            results = found if isinstance(found, list | tuple) else [found]
            values.update(zip(eqn.outvars, results, strict=True))
        return [read(x) for x in traced.jaxpr.outvars]

    def _compute(self, eqn: Any, *inputs: Value) -> Value:
        name, params = eqn.primitive.name, eqn.params
        if name in ("jit", "custom_jvp_call", "custom_vjp_call"):
            return self.call(params.get("jaxpr") or params["call_jaxpr"], *inputs)
        is_known = not any(isinstance(x, str) for x in inputs)
        if is_known and all(map(_is_fixed, eqn.outvars[0].aval.shape)):
            return eqn.primitive.bind(*inputs, **params)
        if name not in _RULES:
            raise NotImplementedError(f"there is no rule for the operation {name}")
        found, dtype = _RULES[name](self, eqn, *inputs), eqn.outvars[0].aval.dtype
        if name in _OVERFLOWING and dtype.kind in "iu" and dtype != np.int32:
            found = self.cast(self.add("Cast", found, to=_number_of(dtype)), np.int64)
        return found

    def finish(self, results: Mapping[str, Value], types: Mapping[str, Any], about: Any) -> bytes:
        """Makes the file's content.

        Args:
            results: the outputs' values by their names.
            types: the outputs' types by their names.
            about: texts to store beside the graph, by their names.
        """

        def described(name: str, x: Any) -> Any:
            shape = ["batch", *x.shape[1:]]
            return helper.make_tensor_value_info(name, _number_of(x.dtype), shape)

        starts, ends = ([*starmap(described, x.items())] for x in (self._inputs, types))
        for name, x in results.items():
            to = _number_of(types[name].dtype)
            self._nodes.append(helper.make_node("Cast", [self._name(x)], [name], to=to))
        graph = helper.make_graph(self._nodes, "policy", starts, ends, [*self._constants.values()])
        opset = helper.make_opsetid("", 18)  # onnxruntime 1.14 and newer read it.
        model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
        helper.set_model_props(model, about)
        return model.SerializeToString()


_OVERFLOWING = ("add", "sub", "mul", "neg", "convert_element_type", "reduce_sum")
_KINDS: dict[str, Any] = {"b": np.bool_, "f": np.float32, "i": np.int64, "u": np.int64}


def _number_of(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def _is_fixed(size: Any) -> bool:
    """Whether an axis has a known size, rather than the batch's."""
    return isinstance(size, int)


def _is(operation: str) -> Callable[..., Value]:
    """The rule for an operation that ONNX has."""
    return lambda graph, eqn, *inputs: graph.add(operation, *inputs)


def _reduce(operation: str) -> Callable[..., Value]:
    return lambda graph, eqn, x: graph.add(operation, x, [*eqn.params["axes"]], keepdims=0)


def _by(function: Callable[..., Any]) -> Callable[..., Value]:
    """The rule for an operation that ONNX lacks: by others."""

    def rule(graph: Graph, eqn: Any, *inputs: Value) -> Value:
        types = [jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in eqn.invars]
        return graph.call(jax.make_jaxpr(partial(function, **eqn.params))(*types), *inputs)

    return rule


def _logic(graph: Graph, eqn: Any, *inputs: Value) -> Value:
    name, of = eqn.primitive.name.capitalize(), eqn.invars[0].aval.dtype
    if of.kind == "b":
        return graph.add(name, *inputs)
    if name == "Not":  # Which must not make an unsigned number negative.
        return graph.add("BitwiseXor", *inputs, _ones(of))
    return graph.add(f"Bitwise{name}", *inputs)


def _ones(dtype: Any) -> Any:
    return ~jnp.zeros((), dtype)


def _power_of_two(n: Any) -> Any:
    return jnp.asarray(2 ** np.arange(32), jnp.uint32)[n].astype(n.dtype)  # exp2 is not exact.


def _select(graph: Graph, eqn: Any, which: Value, no: Value, yes: Value) -> Value:
    of = eqn.outvars[0].aval.dtype
    wide = [graph.cast(x, np.int64 if of.kind == "b" else of) for x in (yes, no)]
    return graph.cast(graph.add("Where", which, *wide), of)


def _reshape(graph: Graph, eqn: Any, x: Value) -> Value:
    # At most one size depends on the batch.
    return graph.add("Reshape", x, [n if _is_fixed(n) else -1 for n in eqn.outvars[0].aval.shape])


def _broadcast(graph: Graph, eqn: Any, x: Value) -> Value:
    shape, kept = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    x = graph.add("Unsqueeze", x, [n for n in range(len(shape)) if n not in kept])
    sizes = [[n] if _is_fixed(n) else graph.batch for n in shape]
    return graph.add("Expand", x, graph.add("Concat", *sizes, axis=0))


def _slice(graph: Graph, eqn: Any, x: Value) -> Value:
    of, axes = eqn.params, [*range(eqn.invars[0].aval.ndim)]
    ends = [n if _is_fixed(n) else np.iinfo(np.int64).max for n in of["limit_indices"]]
    steps = of["strides"] or [1] * len(axes)
    return graph.add("Slice", x, [*of["start_indices"]], ends, axes, [*steps])


def _pad(graph: Graph, eqn: Any, x: Value, value: Value) -> Value:
    low, high, _ = zip(*eqn.params["padding_config"], strict=True)
    return graph.add("Pad", x, [*low, *high], value)


def _transpose(graph: Graph, x: Value, order: Any) -> Value:
    return graph.add("Transpose", x, perm=[int(n) for n in order])


def _product(graph: Graph, eqn: Any, x: Value, y: Value) -> Value:
    (of_x, of_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]
    a, b = (list(of[: v.aval.ndim]) for of, v in zip(_LETTERS, eqn.invars, strict=True))
    for i, j in zip((*of_x, *batch_x), (*of_y, *batch_y), strict=True):
        b[j] = a[i]
    out = [a[i] for i in batch_x] + [x for x in a + b if (x in a) != (x in b)]
    return graph.add("Einsum", x, y, equation=f"{''.join(a)},{''.join(b)}->{''.join(out)}")


def _gather(graph: Graph, eqn: Any, x: Value, indices: Value) -> Value:
    of, shape = eqn.params["dimension_numbers"], eqn.invars[0].aval.shape
    first = [*of.operand_batching_dims, *of.start_index_map]
    x = _transpose(graph, x, [*first, *(n for n in range(len(shape)) if n not in first)])
    # An index out of bounds takes the nearest element, as in most of JAX's modes.
    most = [shape[n] - 1 for n in of.start_index_map]
    indices = graph.add("Min", graph.add("Max", indices, np.int64(0)), most)
    x = graph.add("GatherND", x, indices, batch_dims=len(of.operand_batching_dims))
    others = [n for n in range(eqn.outvars[0].aval.ndim) if n not in of.offset_dims]
    return _transpose(graph, x, np.argsort([*others, *of.offset_dims]))


def _convolve(graph: Graph, eqn: Any, x: Value, kernel: Value) -> Value:
    of, (of_x, of_kernel, of_result) = eqn.params, eqn.params["dimension_numbers"]
    both = _transpose(graph, x, of_x), _transpose(graph, kernel, of_kernel)
    named = {"strides": of["window_strides"], "dilations": of["rhs_dilation"]}
    pads, group = np.ravel(of["padding"], order="F").tolist(), of["feature_group_count"]
    x = graph.add("Conv", *both, **named, pads=pads, group=group)
    return _transpose(graph, x, np.argsort(of_result))


def _split(x: Any, sizes: Any, axis: int) -> Any:
    ends = zip(sizes, np.cumsum(sizes).tolist(), strict=True)
    return [lax.slice_in_dim(x, end - size, end, axis=axis) for size, end in ends]


def _bits(x: Any) -> Any:
    return lax.expand_dims(x, [x.ndim]) >> jnp.arange(32, dtype=x.dtype) & 1


def _shift(x: Any, n: Any) -> Any:
    return x // _power_of_two(n)  # Downward, as the bits of a negative number go.


def _any(x: Any, axes: Any, **_: Any) -> Any:
    if x.dtype == bool:
        return x.astype(jnp.int32).max(axes) > 0
    return (_bits(x).max(axes) << jnp.arange(32, dtype=x.dtype)).sum(-1, dtype=x.dtype)


_LETTERS = string.ascii_lowercase, string.ascii_uppercase
_SAME = """add sub mul div max min pow neg abs sign floor ceil round sqrt exp log sin cos tanh erf
eq:Equal lt:Less le:LessOrEqual gt:Greater ge:GreaterOrEqual logistic:Sigmoid
copy:Identity stop_gradient:Identity optimization_barrier:Identity"""
"""JAX's operations that ONNX has, with the name there if it is another."""

_RULES: dict[str, Callable[..., Value]] = {
    **{x: _is(y or x.capitalize()) for x, _, y in (x.partition(":") for x in _SAME.split())},
    **{f"reduce_{x}": _reduce(f"Reduce{x.capitalize()}") for x in ("max", "min", "sum")},
    **dict.fromkeys(("and", "or", "xor", "not"), _logic),
    **dict.fromkeys(("reshape", "squeeze"), _reshape),
    **dict.fromkeys(("shift_right_logical", "shift_right_arithmetic"), _by(_shift)),
    "argmax": lambda graph, eqn, x: graph.add("ArgMax", x, axis=eqn.params["axes"][0], keepdims=0),
    "broadcast_in_dim": _broadcast,
    "clamp": _by(lambda low, x, high: jnp.minimum(jnp.maximum(x, low), high)),
    "concatenate": lambda graph, eqn, *x: graph.add("Concat", *x, axis=eqn.params["dimension"]),
    "conv_general_dilated": _convolve,
    "convert_element_type": lambda graph, eqn, x: graph.cast(x, eqn.params["new_dtype"]),
    "dot_general": _product,
    "exp2": _by(lambda x, **_: lax.pow(jnp.full_like(x, 2), x)),
    "expm1": _by(lambda x, **_: jnp.exp(x) - 1),
    "gather": _gather,
    "integer_pow": _by(lambda x, y: lax.pow(x, jnp.full_like(x, y))),
    "log1p": _by(lambda x, **_: jnp.log(x + 1)),
    "ne": _by(lambda x, y: ~lax.eq(x, y)),
    "pad": _pad,
    "population_count": _by(lambda x: _bits(x).sum(-1, dtype=x.dtype)),
    "reduce_or": _by(_any),
    "rem": lambda graph, eqn, x, y: graph.add("Mod", x, y, fmod=1),
    "rsqrt": _by(lambda x, **_: 1 / jnp.sqrt(x)),
    "select_n": _select,
    "shift_left": _by(lambda x, n: x * _power_of_two(n) & _ones(x.dtype)),
    "slice": _slice,
    "split": _by(_split),
    "square": _by(lambda x: x * x),
    "stack": _by(lambda *x, axis: lax.concatenate([lax.expand_dims(y, [axis]) for y in x], axis)),
    "transpose": lambda graph, eqn, x: _transpose(graph, x, eqn.params["permutation"]),
}
"""What to add to a graph, given the graph, JAX's operation and its inputs."""
