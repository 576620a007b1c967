"""Spatial vectors of many samples at once, all in base axes and about the base origin.

Arrays keep the samples last, so that numpy's inner loops run over them: a 3-vector is ``(..., 5, N)`` with components
``x, y, z, x, y``. The repeated two make a cross product four calls on contiguous views instead of nine. A motion vector
is ``(..., 2, 5, N)``: angular part, then the velocity of the point of the body that passes the base origin.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def extend(vector: Array) -> Array:
    """Writes the repeated components of ``(..., 5, N)`` in place and returns it."""
    vector[..., 3:, :] = vector[..., :2, :]
    return vector


def cross(left: Array, right: Array, out: Array, scratch: Array) -> Array:
    """Writes ``left x right`` into ``out``, both factors extended, ``out`` and ``scratch`` ``(..., 3, N)``."""
    np.multiply(left[..., 1:4, :], right[..., 2:5, :], out=out)
    np.multiply(left[..., 2:5, :], right[..., 1:4, :], out=scratch)
    out -= scratch
    return out


def motion_cross(left: Array, right: Array, out: Array, scratch: Array) -> Array:
    """Writes the motion vector ``left x right`` (Lie bracket of twists) into ``out``.

    Args:
        left: Motion vectors, (n, 2, 5, N).
        right: Motion vectors, (n, 2, 5, N).
        out: Result, (n, 2, 5, N), extended.
        scratch: At least as large as ``out``'s (n, 2, 3, N).
    """
    angular = left[:, :1]
    result, extra = out[:, :, :3], scratch[:, :, :3]
    cross(angular, right, result, extra)
    linear = cross(left[:, 1], right[:, 0], extra[:, 0], extra[:, 1])
    result[:, 1] += linear
    return extend(out)
