"""Every error this package raises on purpose.

All derive from :class:`SysidError` and carry their data, so that a node can turn them into a numbered error code and
the message can say what was given, what is allowed and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class SysidError(Exception):
    """Base of all errors of this package.

    Args:
        parts: The message; of several parts each says what the next is about.

    Attributes:
        is_outcome: Whether it is an outcome of work on input that can be used; any other is about the input.
    """

    is_outcome = False

    def __init__(self, *parts: object):
        super().__init__(": ".join(map(str, parts)))


class ModelError(SysidError):
    """A robot description that cannot be used."""


def raise_together(problems: Sequence[ModelError]) -> None:
    """Raise an error that lists all problems of a description, or the only one; nothing without any."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise ModelError(f"{len(problems)} problems:" + "".join(f"\n  - {problem}" for problem in problems))


class NotConfirmed(SysidError):
    """Something was sent, and the running system does not say that it has it."""

    is_outcome = True

    def __init__(self, text: str):
        super().__init__("not confirmed", text)


class Cancelled(SysidError):
    """Work ended because its caller asked for it.

    Args:
        text: Which work.
        partial: What it had by then, where that is of use.
    """

    def __init__(self, text: str = "cancelled", partial: Any = None):
        self.partial = partial
        super().__init__(text)


class NotPhysicallyConsistent(ModelError):
    """Ten inertial parameters that no rigid body can have.

    Args:
        body: Name of the body.
        eigenvalues: Eigenvalues of its 4x4 pseudo-inertia matrix, ascending (one is not positive).
    """

    def __init__(self, body: str, eigenvalues: Sequence[float]):
        self.body = body
        self.eigenvalues = tuple(float(value) for value in eigenvalues)
        listed = ", ".join(f"{value:.3g}" for value in self.eigenvalues)
        super().__init__(
            f"inertia of '{body}' is not physically consistent: the eigenvalues of its pseudo-inertia are [{listed}], "
            "all must be positive (mass > 0 and the triangle inequality of the principal moments)"
        )


MISSING = object()
"""In place of a value that is needed and was not given."""
_LONGEST_VALUE = 500
"""A longer value is cut in messages: megabytes are neither sent back nor logged."""


class ParameterOutOfRange(SysidError):
    """A setting outside of its allowed values.

    Args:
        name: Name of the setting, with its unit.
        value: The given value; ``MISSING`` for none.
        allowed: Expected values, in words.
    """

    def __init__(self, name: str, value: object, allowed: str):
        self.name = name
        self.value = value
        self.allowed = allowed
        text = repr(value.tolist() if hasattr(value, "tolist") else value)
        if len(text) > _LONGEST_VALUE:
            text = f"{text[:_LONGEST_VALUE]}... ({len(text)} characters)"
        given = f"missing {name}" if value is MISSING else f"invalid {name.removeprefix('the ')} {text}"
        super().__init__(f"{given}: expected {allowed}")
