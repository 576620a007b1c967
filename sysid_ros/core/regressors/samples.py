"""Checks of sample arrays and the friction columns every regressor shares."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.errors import SysidError

Array = NDArray[np.float64]


class InvalidSamples(SysidError):
    """Sample arrays of a wrong shape, or with an entry that is not a finite number.

    Args:
        name: The argument at fault.
        reason: What is wrong with it and what is expected.
    """

    def __init__(self, name: str, reason: str):
        self.name = name
        super().__init__(f"samples '{name}': {reason}")


def as_samples(n: int, **arrays: ArrayLike | None) -> tuple[Array, ...]:
    """Converts arrays to float (N, n) and checks them.

    Args:
        n: Number of joints.
        **arrays: The arrays by name; the first sets N.

    Returns:
        The arrays in the given order.

    Raises:
        InvalidSamples: A shape is not (N, n), or an entry is not finite.
    """
    result: list[Array] = []
    for name, values in arrays.items():
        array = np.asarray(values, dtype=float)
        if array.ndim != 2 or array.shape[1] != n:
            raise InvalidSamples(name, f"shape {array.shape}, expected (N, {n}): a row per sample, a column per joint")
        if result and len(array) != len(result[0]):
            raise InvalidSamples(name, f"{len(array)} rows, expected {len(result[0])} as in '{next(iter(arrays))}'")
        if not np.isfinite(array).all():
            row, joint = np.argwhere(~np.isfinite(array))[0]
            raise InvalidSamples(name, f"entry {array[row, joint]} of sample {row}, joint {joint} is not finite")
        result.append(array)
    return tuple(result)


def as_weights(weights: ArrayLike, samples: int) -> Array:
    """Converts quadrature weights to float (N,) and checks them.

    Raises:
        InvalidSamples: The shape is not (N,), or an entry is not finite.
    """
    array = np.asarray(weights, dtype=float)
    if array.shape != (samples,):
        raise InvalidSamples("weights", f"shape {array.shape}, expected ({samples},): one weight per sample")
    if not np.isfinite(array).all():
        raise InvalidSamples("weights", f"entry {np.flatnonzero(~np.isfinite(array))[0]} is not finite")
    return array


def as_output(shape: tuple[int, ...], given: Array | None) -> Array:
    """Returns an array to write a regressor into, the caller's own if it fits.

    Raises:
        InvalidSamples: The caller's array has another shape or is not of C-contiguous float64.
    """
    if given is None:
        return np.empty(shape)
    if given.shape != shape or given.dtype != np.float64 or not given.flags.c_contiguous:
        raise InvalidSamples("out", f"shape {given.shape} of {given.dtype}, expected C-contiguous float64 of {shape}")
    return given
