"""The integral of the sign of the joint speeds, where it is certain and where it is not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.torque import abel_bound

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SignIntegral:
    """Integral of ``sign(v)`` over a window: ``value`` within ``uncertain``, for exact stamps.

    Attributes:
        value: The certain part, (n,) [s].
        uncertain: Time during which the sign is not known, (n,) [s].
        jitter_gain: Bound on the change of value and uncertain time per second of stamp error, (n,) [-].
        is_steady: Whether the signs of all joints are certain during a step, (N - 1,).
    """

    value: Array
    uncertain: Array
    jitter_gain: Array
    is_steady: NDArray[np.bool_]


def integrate_sign(v: Array, steps: Array, slack: Array) -> SignIntegral:
    """Integrates ``sign(v)`` over a window.

    The sign is certain during a step if both its ends are faster than ``slack`` in the same direction; in any other
    step the Coulomb torque may be anything between ``-F_c`` and ``F_c``, at rest included.

    Args:
        v: Measured speeds, (N, n) [rad/s].
        steps: Step lengths, (N - 1,) [s].
        slack: Speed error, stiction speed and what the speed can change in half a step together, (n,) [rad/s].
    """
    sign = np.where(v > slack, 1.0, np.where(v < -slack, -1.0, 0.0))
    certain = np.where(sign[1:] == sign[:-1], sign[1:], 0.0)
    uncertain = np.where(certain == 0.0, 1.0, 0.0)
    jitter_gain = abel_bound(certain) + abel_bound(uncertain)
    return SignIntegral(steps @ certain, steps @ uncertain, jitter_gain, np.all(certain != 0.0, axis=1))
