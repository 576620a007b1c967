"""Rotations and placements, as plain arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def rotation_from_rpy(rpy: ArrayLike) -> NDArray[np.float64]:
    """The (3, 3) rotation of URDF angles (roll, pitch, yaw) [rad]: about the fixed axes x, then y, then z."""
    roll, pitch, yaw = np.asarray(rpy, dtype=float)
    cr, sr, cp, sp, cy, sy = np.cos(roll), np.sin(roll), np.cos(pitch), np.sin(pitch), np.cos(yaw), np.sin(yaw)
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def inverse_placement(rotation: ArrayLike, translation: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The placement of frame A in frame B from that of B in A: rotation (3, 3) and translation (3,) [m]."""
    transposed = np.asarray(rotation, dtype=float).T
    return transposed, -transposed @ np.asarray(translation, dtype=float)
