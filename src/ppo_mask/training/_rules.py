"""Settings of an algorithm: how a field is declared, and which values it may have."""

import dataclasses
import math
from typing import Any, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ppo_mask.errors import FieldError
from ppo_mask.jax_tools._trees import python_scalar

MAX_COUNT = 2**31 - 1
"""The largest int32: the most updates of a run, and the most steps between two log lines."""

RULES = "ppo_mask.rules"
"""The key of a field's :class:`Rules` in the dataclass field's metadata."""


@dataclasses.dataclass(frozen=True)
class Rules:
    """The purpose of a setting, and its allowed values.

    Attributes:
        help: one line for a command line's ``--help``.
        at_least: smallest value allowed.
        above: the value must be greater than this.
        at_most: largest value allowed.
        finite: whether infinity is refused.
        one_of: the allowed texts, or the name of a field in the same group whose value lists these
            texts; empty if any text is allowed.
        alias: a second name; empty for none.
        changeable: whether a resumed run may change the value.
        phased: whether the value may change from phase to phase of a run; the compiled program then
            gets the value as an array.
        stored: whether a run's folder stores the value. Settings that name the run, or apply to
            only one start of the run, are not stored.
        schedule: whether the value may be a function of the gradient step's number, as of optax.
        bare: the setting's value if its flag is given without a value; None if the flag needs a
            value.
    """

    help: str
    at_least: int | float | None = None
    above: int | float | None = None
    at_most: int | float | None = None
    finite: bool = True
    one_of: tuple[str, ...] | str = ()
    alias: str = ""
    changeable: bool = False
    phased: bool = False
    stored: bool = True
    schedule: bool = False
    bare: int | str | None = None

    @property
    def limits(self) -> str:
        """All limits in words, such as "at least 0, at most 1"; empty if there are none."""
        named = {"at least": self.at_least, "more than": self.above, "at most": self.at_most}
        return ", ".join(f"{words} {limit}" for words, limit in named.items() if limit is not None)

    def violation(self, value: int | float) -> str:
        """Finds the limit that a number breaks.

        Returns:
            What the number must be, such as "at least 1"; empty if the number breaks no limit.
        """
        # Not for an int: an int may be too large for a float.
        if isinstance(value, float) and (math.isnan(value) or (self.finite and math.isinf(value))):
            return "a finite number"
        if self.at_least is not None and value < self.at_least:
            return f"at least {self.at_least}"
        if self.above is not None and value <= self.above:
            return f"more than {self.above}"
        if self.at_most is not None and value > self.at_most:
            return f"at most {self.at_most}"
        return ""


def static_setting(default: Any, help: str, **rules: Any) -> Any:
    """Declares a field of an algorithm that is static in the compiled program.

    Args:
        default: an int, bool or text, or None.
        help: one line for a command line's ``--help``.
        rules: other fields of :class:`Rules`; ``one_of`` must be a tuple.
    """
    metadata = {RULES: Rules(help, **rules)}
    return eqx.field(static=True, converter=python_scalar, default=default, metadata=metadata)


def traced_setting(default: float | None, help: str, **rules: Any) -> Any:
    """Declares a field of an algorithm that is a number, and may be a scalar array.

    One compiled program serves all values. A schedule or a phase may change the value during a run.

    Args:
        default: the default value.
        help: one line for a command line's ``--help``.
        rules: other fields of :class:`Rules`.
    """
    metadata = {RULES: Rules(help, changeable=True, phased=True, **rules)}
    return eqx.field(converter=_number, default=default, metadata=metadata)


def _number(value: Any) -> Any:
    """Converts Python's and NumPy's numbers to float, and JAX's scalars to float32."""
    if isinstance(value, (int, np.number)):
        return float(value)
    return value.astype(jnp.float32) if eqx.is_array(value) and value.shape == () else value


def check_rules(algorithm: Any) -> None:
    """Checks each setting of an algorithm by its own rules.

    Raises:
        FieldError: a value is invalid; the message names the field.
    """
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        if RULES in field.metadata and (wanted := _violation(value, field)):
            raise FieldError(field.name, f"must be {wanted}, got {value!r}")


def check_divides(field: str, parts: int, what: str, whole: int) -> None:
    """Checks that a number divides another.

    Args:
        field: the name of the setting that is the divisor.
        parts: the divisor.
        what: the name of the dividend, for the error.
        whole: the dividend.

    Raises:
        FieldError: ``parts`` does not divide ``whole``; the message suggests a divisor.
    """
    if whole % parts:
        largest = min(parts - 1, whole)
        fitting = next(n for n in range(largest, 0, -1) if whole % n == 0)
        raise FieldError(field, f"= {parts} does not divide {what} = {whole}; {fitting} would do")


def _violation(value: Any, field: dataclasses.Field[Any]) -> str:
    """Describes the valid values of a field; empty if ``value`` is valid."""
    rules: Rules = field.metadata[RULES]
    if value is None and field.default is None:
        return ""
    if isinstance(field.default, bool):
        return "" if isinstance(value, bool) else "True or False"
    if rules.schedule and callable(value):
        return ""
    if isinstance(field.default, str):
        return "" if str(value) in rules.one_of else " or ".join(rules.one_of)
    if field.metadata.get("static"):
        whole = isinstance(value, int) and not isinstance(value, bool)
        return rules.violation(cast(int, value)) if whole else "a whole number"
    if isinstance(value, float):
        return rules.violation(value)
    # The value of a traced array is unknown.
    is_scalar = eqx.is_array(value) and getattr(value, "shape", None) == ()
    return "" if is_scalar else "a number or a scalar array"
