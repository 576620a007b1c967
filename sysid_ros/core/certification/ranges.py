"""The range of every number of a certificate: numbers that no proof can give are rejected, whatever their origin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.certification.stop_model import LONGEST_STOP, SHORTEST_STOP
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

LONGEST_MOTION = 120.0
"""Longest motion that is considered [s]: a proof takes time and memory in proportion."""
_LARGEST_ERROR = 0.2
"""Largest tracking error a certificate may allow for [rad]: a loop that is off by more is not a controller's."""
_LEAST_TORQUE_FRACTION = 0.01
"""Least part of the torque limits that leaves a motion any."""
_LONGEST_REST, _LONGEST_VALIDITY = 60.0, 86400.0
"""Longest rest before a motion, and longest time for which a certificate is good [s]."""
_LAST_TIME = 1e10
"""Times of a clock [s], three centuries after the epoch of the system's."""
_LARGEST = 1e6
"""Margins, settings and parameters in SI units are smaller."""
_IN_WORDS = {"path_hash", "box_hash", "scene_hash", "robot_hash", "predecessor", "claims", "is_proven_throughout"}
"""Fields without a number: hashes and words are compared, the rest is proven or not."""


def find_out_of_range(robot: RobotModel, certificate: Certificate) -> Iterator[str]:
    """Yield a sentence for every number of a certificate that is not finite, or that no proof can give.

    All fields are checked; a new field of the certificate needs a range here.
    """
    limits, n = robot.limits, robot.n
    ranges: dict[str, tuple[Array | float, Array | float, str]] = {
        # A motion has to keep its limits with these errors, so no proof has larger ones.
        "tracking_bound": (np.zeros(n), np.full(n, _LARGEST_ERROR), " rad"),
        "velocity_bound": (np.zeros(n), limits.v_max, " rad/s"),
        "torque_bound": (np.zeros(n), limits.tau_max, " Nm"),
        "nominal_payload": (np.full(10, -_LARGEST), np.full(10, _LARGEST), ""),
        "brake_time": (SHORTEST_STOP, LONGEST_STOP, " s"),
        "torque_fraction": (_LEAST_TORQUE_FRACTION, 1.0, ""),
        "rest_before": (0.0, _LONGEST_REST, " s"),
        "takeover_time": (0.0, LONGEST_MOTION, " s"),
        "issued_at": (-_LAST_TIME, _LAST_TIME, " s"),
        "expires_at": (-_LAST_TIME, certificate.issued_at + _LONGEST_VALIDITY, " s"),
    }
    for name in (entry.name for entry in fields(certificate) if entry.name not in _IN_WORDS):
        value, words = getattr(certificate, name), name.replace("_", " ")
        if name == "torque_squares":
            # The last part of a plan also has a share of the hold's impulse.
            rows = value.shape[0] if value.ndim else 0
            largest = limits.tau_max**2 * np.where(np.arange(rows) == rows - 2, 2.0, 1.0)[:, None]
            if (
                value.ndim != 2
                or len(value) < 2
                or value.shape[1] != n
                or not np.all((value >= 0.0) & (value <= largest))
            ):
                yield "the torque squares of its certificate are not rows of squares within the torque limits"
        elif name == "margins":
            yield from _margins_out_of_range(certificate)
        elif name == "control_law":
            for setting, number in value.settings:
                if not -_LARGEST < number < _LARGEST:
                    yield f"the {setting} of the control law in its certificate is {number}; it must be finite"
        elif isinstance(value, np.ndarray):
            yield from _vector_out_of_range(robot, words, value, *ranges[name])
        else:
            least, most, unit = ranges[name]
            if not least <= value <= most:
                is_end = name == "expires_at"
                given = f"validity of its certificate is {value - certificate.issued_at}" if is_end else ""
                given = given or f"{words} of its certificate is {value}"
                least, most = (0.0, _LONGEST_VALIDITY) if is_end else (least, most)
                yield f"the {given}{unit}; it must be from {least:g} to {most:g}{unit}"


def _vector_out_of_range(
    robot: RobotModel, words: str, values: Array, least: Array | float, most: Array | float, unit: str
) -> Iterator[str]:
    lower, upper = np.asarray(least), np.asarray(most)
    if values.shape != upper.shape or not np.all(np.isfinite(values)):
        yield f"the {words} of its certificate is {values}; it must be {upper.size} finite numbers"
        return
    is_bound = words != "nominal payload"
    for k in np.flatnonzero(((values <= lower) if is_bound else (values < lower)) | (values > upper)):
        place = robot.joint_names[k] if is_bound else f"parameter {k}"
        kind = "positive" if is_bound else f"at least {lower[k]:.4g}{unit}"
        yield (
            f"the {words} of {place} in its certificate is {values[k]}{unit}; it must be {kind}, at most "
            f"{upper[k]:.4g}{unit}"
        )


def _margins_out_of_range(certificate: Certificate) -> Iterator[str]:
    for margin in certificate.margins:
        if not (0.0 <= margin.value < _LARGEST and 0.0 <= margin.time <= LONGEST_MOTION):
            yield (
                f"the margin of the {margin.limit.value} limit in its certificate is {margin.value} at {margin.time} s "
                "(both must be finite, at least 0)"
            )
