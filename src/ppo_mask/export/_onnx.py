"""Translates a traced function to ONNX, one of JAX's operations after another.

What depends on constants alone is computed while translating: a weight is stored as it is used.
All integers have 64 bits in the graph, because onnxruntime computes with few others. What rules
get wrong shows when the results are compared with JAX's.
"""

import string
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal
from onnx import helper, numpy_helper

from ppo_mask.checkpoints._checkpoint import named_arrays
from ppo_mask.jax_tools import for_platform

Value: TypeAlias = Any
"""The name of a value in a graph, or an array that is known."""


class Graph:
    """An ONNX graph in the making.

    Args:
        inputs: the names of the inputs; the first axis of each is the batch.
    """

    def __init__(self, inputs: Iterable[str]) -> None:
        self.nodes, self.constants = list[Any](), dict[Any, Any]()
        self.batch = self.add("Shape", next(iter(inputs)), end=1)

    def add(self, operation: str, *inputs: Value, output: str = "", **attributes: Any) -> str:
        """Adds a node, and returns the name of its output."""
        name = output or f"{operation}_{len(self.nodes)}"
        names = [self._name(x) for x in inputs]
        self.nodes.append(helper.make_node(operation, names, [name], **attributes))
        return name

    def _name(self, x: Value) -> str:
        if isinstance(x, str):
            return x
        x = np.array(x, np.int64) if isinstance(x, list) else np.asarray(x)  # Sizes or axes.
        x, name = x.astype(_KINDS[x.dtype.kind]), f"constant_{len(self.constants)}"
        same = x.dtype, x.shape, x.tobytes()
        return self.constants.setdefault(same, numpy_helper.from_array(x, name)).name

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
        _refuse(f"the operation {name}", name not in _RULES)
        found, dtype = _RULES[name](self, eqn, *inputs), eqn.outvars[0].aval.dtype
        if name in _OVERFLOWING.split() and dtype.kind in "iu" and dtype != np.int32:
            found = self.cast(self.add("Cast", found, to=_number_of(dtype)), np.int64)
        return found


def translate(function: Callable[[Any], Any], inputs: Any, about: dict[str, str]) -> bytes:
    """Makes the content of an ONNX file.

    Args:
        function: what the file is to do, for a batch of any size.
        inputs: some inputs; the first axis of each array is the batch.
        about: texts to store beside the graph, by their names.
    """
    (batch,) = jax.export.symbolic_shape("batch")
    types = jax.tree.map(lambda x: jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype), inputs)
    with for_platform("tpu"):  # The form for accelerators is the one without loops.
        traced, results = jax.make_jaxpr(function, return_shape=True)(types)
    types, results = named_arrays(types), named_arrays(results)
    graph = Graph(types)
    found = graph.call(traced, *(graph.cast(name, x.dtype) for name, x in types.items()))
    for (name, x), value in zip(results.items(), found, strict=True):
        graph.add("Cast", value, output=name, to=_number_of(x.dtype))
    made = helper.make_graph(
        graph.nodes, "policy", _types(types), _types(results), [*graph.constants.values()]
    )
    opset = helper.make_opsetid("", 18)  # onnxruntime 1.14 and newer read it.
    model = helper.make_model(made, opset_imports=[opset], ir_version=8)
    helper.set_model_props(model, about)
    return model.SerializeToString()


_OVERFLOWING = "add sub mul neg not shift_left convert_element_type reduce_sum reduce_prod"
# A bfloat16 is of NumPy's kind V.
_KINDS: Any = {"b": np.bool_, "f": np.float32, "V": np.float32, "i": np.int64, "u": np.int64}


def _number_of(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def _types(arrays: Mapping[str, Any]) -> list[Any]:
    """The types of inputs or outputs, as the file has them."""
    describe = helper.make_tensor_value_info
    return [
        describe(name, _number_of(x.dtype), ["batch", *x.shape[1:]]) for name, x in arrays.items()
    ]


def _refuse(what: str, is_there: bool) -> None:
    if is_there:
        raise NotImplementedError(f"there is no rule for {what}")


def _is_fixed(size: Any) -> bool:
    """Whether an axis has a known size, rather than the batch's."""
    return isinstance(size, int)


def _is(operation: str) -> Callable[..., Value]:
    """The rule for an operation that ONNX has."""
    return lambda graph, eqn, *inputs: graph.add(operation, *inputs)


def _reduce(operation: str) -> Callable[..., Value]:
    return lambda graph, eqn, x: graph.add(operation, x, [*eqn.params["axes"]], keepdims=0)


def _argmax(graph: Graph, eqn: Any, x: Value) -> Value:
    (axis,) = eqn.params["axes"]
    return graph.add("ArgMax", graph.cast(x, np.float32), axis=axis, keepdims=0)


def _by(function: Callable[..., Any]) -> Callable[..., Value]:
    """The rule for an operation that ONNX lacks: by others."""

    def rule(graph: Graph, eqn: Any, *inputs: Value) -> Value:
        types = [jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in eqn.invars]
        return graph.call(jax.make_jaxpr(partial(function, **eqn.params))(*types), *inputs)

    return rule


def _logic(graph: Graph, eqn: Any, *inputs: Value) -> Value:
    kind = "" if eqn.outvars[0].aval.dtype.kind == "b" else "Bitwise"
    return graph.add(kind + eqn.primitive.name.capitalize(), *inputs)


def _power_of_two(graph: Graph, n: Value) -> Value:
    return graph.add("Gather", 2 ** np.arange(33), graph.add("Min", n, np.int64(32)))


def _shift_right(graph: Graph, eqn: Any, x: Value, n: Value) -> Value:
    by = _power_of_two(graph, n)  # Downward, as the bits of a negative number go.
    return graph.add("Div", graph.add("Sub", x, graph.add("Mod", x, by)), by)


def _select(graph: Graph, eqn: Any, which: Value, no: Value, yes: Value) -> Value:
    of = eqn.outvars[0].aval.dtype
    wide = [graph.cast(x, np.int64 if of.kind == "b" else of) for x in (yes, no)]
    return graph.cast(graph.add("Where", graph.cast(which, bool), *wide), of)


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


def _reverse(graph: Graph, eqn: Any, x: Value) -> Value:
    axes = [*eqn.params["dimensions"]]
    back, end = [-1] * len(axes), [np.iinfo(np.int64).min] * len(axes)
    return graph.add("Slice", x, back, end, axes, back)


def _pad(graph: Graph, eqn: Any, x: Value, value: Value) -> Value:
    low, high, between = zip(*eqn.params["padding_config"], strict=True)
    _refuse("padding between elements", any(between))
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
    sizes, gone = eqn.params["slice_sizes"], {*of.collapsed_slice_dims, *of.operand_batching_dims}
    # A slice as long as its axis can only begin at 0.
    indexed = [n for n in of.start_index_map if n in gone or sizes[n] < shape[n]]
    first = [*of.operand_batching_dims, *indexed]
    _refuse("slices that begin at a computed index", any(sizes[n] != 1 for n in first))
    x = _transpose(graph, x, [*first, *(n for n in range(len(shape)) if n not in first)])
    # An index out of bounds takes the nearest element, as in most of JAX's modes.
    most = [shape[n] - 1 for n in indexed]
    indices = graph.add("Gather", indices, [*map(of.start_index_map.index, indexed)], axis=-1)
    indices = graph.add("Min", graph.add("Max", indices, np.int64(0)), most)
    x = graph.add("GatherND", x, indices, batch_dims=len(of.operand_batching_dims))
    # What a slice keeps of an axis that is indexed has size 1, and comes back by the reshape.
    kept = zip((n for n in range(len(shape)) if n not in gone), of.offset_dims, strict=True)
    order = [n for n in range(eqn.outvars[0].aval.ndim) if n not in of.offset_dims]
    x = _transpose(graph, x, np.argsort([*order, *(to for n, to in kept if n not in first)]))
    return _reshape(graph, eqn, x)


def _convolve(graph: Graph, eqn: Any, x: Value, kernel: Value) -> Value:
    of, (of_x, of_kernel, of_result) = eqn.params, eqn.params["dimension_numbers"]
    _refuse("transposed convolutions", set(of["lhs_dilation"]) != {1})
    both = _transpose(graph, x, of_x), _transpose(graph, kernel, of_kernel)
    named = {"strides": of["window_strides"], "dilations": of["rhs_dilation"]}
    pads, group = np.ravel(of["padding"], order="F").tolist(), of["feature_group_count"]
    x = graph.add("Conv", *both, **named, pads=pads, group=group)
    return _transpose(graph, x, np.argsort(of_result))


def _split(x: Any, sizes: Any, axis: int) -> Any:
    ends = zip(sizes, np.cumsum(sizes).tolist(), strict=True)
    return [lax.slice_in_dim(x, end - size, end, axis=axis) for size, end in ends]


def _bits(x: Any) -> Any:
    return lax.expand_dims(x, [x.ndim]) >> jnp.arange(8 * x.dtype.itemsize, dtype=x.dtype) & 1


def _any(x: Any, axes: Any, **_: Any) -> Any:
    if x.dtype == bool:
        return x.astype(jnp.int32).max(axes) > 0
    bits = _bits(x).max(axes)
    return (bits << jnp.arange(bits.shape[-1], dtype=x.dtype)).sum(-1, dtype=x.dtype)


_LETTERS = string.ascii_lowercase, string.ascii_uppercase
_SAME = """add sub mul div max min pow neg abs sign floor ceil round sqrt exp log erf
sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
eq:Equal lt:Less le:LessOrEqual gt:Greater ge:GreaterOrEqual logistic:Sigmoid
copy:Identity stop_gradient:Identity optimization_barrier:Identity"""
"""JAX's operations that ONNX has, with the name there if it is another."""

_RULES: dict[str, Callable[..., Value]] = {
    **{x: _is(y or x.capitalize()) for x, _, y in (x.partition(":") for x in _SAME.split())},
    **{f"reduce_{x}": _reduce(f"Reduce{x.capitalize()}") for x in ("max", "min", "sum", "prod")},
    **dict.fromkeys(("and", "or", "xor", "not"), _logic),
    **dict.fromkeys(("reshape", "squeeze"), _reshape),
    **dict.fromkeys(("shift_right_logical", "shift_right_arithmetic"), _shift_right),
    "argmax": _argmax,
    "argmin": _by(lambda x, **of: lax.argmax_p.bind(-x.astype(jnp.float32), **of)),
    "broadcast_in_dim": _broadcast,
    "clamp": _by(lambda low, x, high: jnp.minimum(jnp.maximum(x, low), high)),
    "concatenate": lambda graph, eqn, *x: graph.add("Concat", *x, axis=eqn.params["dimension"]),
    "conv_general_dilated": _convolve,
    "convert_element_type": lambda graph, eqn, x: graph.cast(x, eqn.params["new_dtype"]),
    "dot_general": _product,
    "erfc": _by(lambda x: 1 - lax.erf(x)),
    "exp2": lambda graph, eqn, x: graph.add("Pow", np.float32(2), x),
    "expm1": _by(lambda x, **_: jnp.exp(x) - 1),
    "gather": _gather,
    "integer_pow": lambda graph, eqn, x: graph.add("Pow", x, np.int64(eqn.params["y"])),
    "is_finite": _by(lambda x: x - x == 0),
    "log1p": _by(lambda x, **_: jnp.log(x + 1)),
    "ne": _by(lambda x, y: ~lax.eq(x, y)),
    "pad": _pad,
    "population_count": _by(lambda x: _bits(x).sum(-1, dtype=x.dtype)),
    "reduce_and": _by(lambda x, **of: ~lax.reduce_or_p.bind(~x, **of)),
    "reduce_or": _by(_any),
    "rem": lambda graph, eqn, x, y: graph.add("Mod", x, y, fmod=1),
    "rev": _reverse,
    "rsqrt": _by(lambda x, **_: 1 / jnp.sqrt(x)),
    "select_n": _select,
    "shift_left": lambda graph, eqn, x, n: graph.add("Mul", x, _power_of_two(graph, n)),
    "slice": _slice,
    "split": _by(_split),
    "square": _by(lambda x: x * x),
    "stack": _by(lambda *x, axis: lax.concatenate([lax.expand_dims(y, [axis]) for y in x], axis)),
    "tile": lambda graph, eqn, x: graph.add("Tile", x, [*eqn.params["reps"]]),
    "transpose": lambda graph, eqn, x: _transpose(graph, x, eqn.params["permutation"]),
}
"""What to add to a graph, given the graph, JAX's operation and its inputs."""
