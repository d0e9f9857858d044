"""Compiled programs, read from their text: real ones for a CPU, and lines as a TPU has them."""

import textwrap

import jax
import jax.numpy as jnp
import pytest

from ppo_mask.devices.programs import Collective, Kernels, Program

TPU = textwrap.dedent(
    """\
    HloModule jit_chunk, is_scheduled=true, input_output_alias={ {0}: (1, {}, may-alias), {1}: \
(2, {}, must-alias) }, entry_computation_layout={(s32[]{:T(128)})->s32[]}

    %add (a: f32[], b: f32[]) -> f32[] {
      %a = f32[]{:T(128)} parameter(0)
      %b = f32[]{:T(128)} parameter(1)
      ROOT %sum = f32[]{:T(128)} add(%a, %b)
    }

    %few (p: f32[4]) -> f32[4] {
      %p = f32[4]{0:T(128)} parameter(0)
      ROOT %c = f32[4]{0:T(128)} copy(%p)
    }

    %many (q: f32[4]) -> f32[4] {
      %q = f32[4]{0:T(128)} parameter(0)
      %q1 = f32[4]{0:T(128)} copy(%q)
      ROOT %q2 = f32[4]{0:T(128)} negate(%q1)
    }

    %inner_body (i: (s32[], f32[4])) -> (s32[], f32[4]) {
      %i = (s32[]{:T(128)}, f32[4]{0:T(128)}) parameter(0)
      %n = s32[]{:T(128)} get-tuple-element(%i), index=0
      %f = f32[4]{0:T(128)} fusion(%i), kind=kLoop, calls=%few
      ROOT %out = (s32[]{:T(128)}, f32[4]{0:T(128)}) tuple(%n, %f)
    }

    %more (j: (s32[], f32[4])) -> pred[] {
      %j = (s32[]{:T(128)}, f32[4]{0:T(128)}) parameter(0)
      ROOT %less = pred[]{:T(512)} compare(%j, %j), direction=LT
    }

    %step_body (s: (s32[], f32[4])) -> (s32[], f32[4]) {
      %s = (s32[]{:T(128)}, f32[4]{0:T(128)}, /*index=2*/pred[8,4]{1,0:T(8,128)(4,1)S(3)}) parameter(0)
      %g = f32[4]{0:T(128)S(3)} fusion(%s), kind=kLoop, calls=%few, metadata={op_name="jit(chunk)/while/body/while/body/closed_call/learn/mul" stack_frame_id=1}
      %psum = f32[1000]{0:T(1024)S(3)} all-reduce(%g), channel_id=1, replica_groups={{0,1}}, to_apply=%add, metadata={op_name="jit(chunk)/while/body/while/body/closed_call/learn/psum" stack_frame_id=2}
      %two = (f32[]{:T(128)}, u32[]{:T(128)}) all-reduce(%g, %g), to_apply=%add
      %start = (bf16[2,4]{1,0}, bf16[8,4]{1,0}) all-gather-start(%g), dimensions={0}
      %done = bf16[8,4]{1,0} all-gather-done(%start)
      %early = (f32[4]{0}, f32[4]{0}, u32[]{:S(2)}) copy-start(%g)
      %later = f32[4]{0} copy-done(%early)
      %scalar = f32[1]{0:T(128)S(6)} multiply(%s, %s)
      %room = s8[4096]{0} custom-call(), custom_call_target="AllocateBuffer"
      %loop = (s32[]{:T(128)}, f32[4]{0:T(128)}) while(%s), condition=%more, body=%inner_body
      %either = f32[4]{0:T(128)} conditional(%n, %s, %s), branch_computations={%few, %many}
      ROOT %out2 = (s32[]{:T(128)}, f32[4]{0:T(128)}) tuple(%n, %g)
    }

    %chunk_body (u: (s32[], f32[4])) -> (s32[], f32[4]) {
      %u = (s32[]{:T(128)}, f32[4]{0:T(128)}) parameter(0)
      %moved = f32[4]{0} negate(%u), metadata={op_name="jit(chunk)/while/body/while/body/closed_call/learn/neg"}
      %all = u8[3]{0} all-reduce(%u), to_apply=%add
      ROOT %steps = (s32[]{:T(128)}, f32[4]{0:T(128)}) while(%u), condition=%more, body=%step_body, metadata={op_name="jit(chunk)/while/body/while"}
    }

    ENTRY %main (x: s32[], y: f32[4]) -> (s32[], f32[4]) {
      %x = (s32[]{:T(128)}, f32[4]{0:T(128)}) parameter(0)
      ROOT %updates = (s32[]{:T(128)}, f32[4]{0:T(128)}) while(%x), condition=%more, body=%chunk_body, metadata={op_name="jit(chunk)/while"}
    }
    """  # noqa: E501
)


def test_the_loop_of_a_step_is_found_by_its_scope() -> None:
    program = Program(TPU)
    # One instruction of the step was moved out of its loop; it does not make that one the step's.
    assert program.loop("learn") == "step_body"
    assert program.loop("lea") is None
    assert program.num_aliased == 2


def test_exchanges_and_their_bytes() -> None:
    program = Program(TPU)
    assert program.collectives("step_body") == [
        Collective("all-reduce", 4000),
        Collective("all-reduce", 8),
        Collective("all-gather", 64),
    ]
    assert program.collectives(without=["step_body"]) == [Collective("all-reduce", 3)]
    assert len(program.collectives()) == 4


def test_kernels_of_a_step() -> None:
    # The longer branch: a copy, and one that is not fused. Single numbers and names are no kernels.
    kernels = Program(TPU).kernels("step_body")
    expected = Kernels(fusions=1, copies=1, loops=1, collectives=3, others=1, in_loops=1, beside=1)
    assert kernels == expected
    assert kernels.in_sequence == 7


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("%i = ((f32[4]{0}), token[]) infeed(%x)", ("infeed",)),
        ("%s = (f32[4]{0}, u32[], token[]) send(%x), channel_id=1", ("send",)),
        ('%c = f32[4]{0} custom-call(%x), custom_call_target="xla_ffi_python_cpu_callback"', None),
        ('%c = f32[4]{0} custom-call(%x), custom_call_target="MoveToHost"', None),
        ("%c = f32[4]{0:T(128)S(5)} copy(%x)", ("copy",)),
        ("%c = f32[4]{0:T(128)S(3)} copy(%x)", ()),
        ('%c = f32[4]{0} custom-call(%x), custom_call_target="Sharding"', ()),
    ],
)
def test_what_moves_to_the_host(line: str, found: tuple[str, ...] | None) -> None:
    text = TPU.replace("%all = u8[3]{0} all-reduce(%u), to_apply=%add", line)
    assert Program(text).host_transfers == (("custom-call",) if found is None else found)


def test_types_of_64_bits() -> None:
    assert Program(TPU).wide_types == ()
    assert Program(TPU.replace("u8[3]", "s64[3]").replace("bf16[2,4]", "f64[2,4]")).wide_types == (
        "f64",
        "s64",
    )


def test_a_program_compiled_for_a_cpu() -> None:
    @jax.named_scope("turn")
    def turn(carry: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        jax.debug.callback(lambda _: None, x)
        return jnp.sort(carry * x)[::-1] @ jnp.ones((8, 8)), carry.sum()

    def program(carry: jax.Array, xs: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.lax.scan(turn, carry, xs)

    carry, xs = jnp.zeros(8), jnp.ones(5)
    compiled = jax.jit(program, donate_argnums=0).lower(carry, xs).compile()
    read = Program(compiled.as_text() or "")
    assert read.num_aliased == 1
    assert read.host_transfers == ("custom-call",)
    assert read.collectives() == []
    loop = read.loop("turn")
    assert loop is not None
    assert read.loop("another") is None
    kernels = read.kernels(loop)
    assert 3 <= kernels.in_sequence <= 12
    assert kernels.loops == 0
