"""What a trajectory must fulfil before an arm executes it, whoever sent it."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.certification.certificate import Certificate, CertificateMismatch
from sysid_ros.core.certification.robot_hash import robot_hash
from sysid_ros.core.common.box import Box
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.trajectories.serialization import Trajectory
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.loop_types import LoopRefusal

_WHAT = "trajectory"
_REST_TOLERANCE = 1e-6
"""Largest start velocity [rad/s] and acceleration [rad/s^2] that count as rest; planners reach about 1e-9."""
_SAME_START = 1e-6
"""Largest difference between the held position and the start of a proven motion [rad]: what rounding may add."""
_LONGEST_BRAKE = 10.0
"""Longest time to rest of a brake [s]."""


def admit_trajectory(
    robot: RobotModel,
    trajectory: Trajectory,
    certificate: Certificate | None,
    boxes: tuple[Box, ...],
    now: float,
    is_continuation: bool = False,
) -> None:
    """Checks all that does not depend on where the arm is; takes milliseconds, so keep it out of a real-time cycle.

    Args:
        robot: The robot of this driver.
        trajectory: What is to be executed.
        certificate: Its certificate; None is refused.
        boxes: Parameter boxes of the model in use: the arm's (14 n,), then the payload's (10,).
        now: Time of the loop's clock [s].
        is_continuation: Whether it takes over from another trajectory; else it must start at rest.

    Raises:
        LoopRefusal: With the joint and by how much, or what does not fit.
    """
    if certificate is None:
        raise LoopRefusal(_WHAT, "it has no certificate; let the safe planner certify it")
    if trajectory.n != robot.n:
        raise LoopRefusal(_WHAT, f"it has {trajectory.n} joints, the arm has {robot.n}")
    try:
        certificate.matches(trajectory, *boxes, now=now)
    except CertificateMismatch as mismatch:
        raise LoopRefusal(_WHAT, str(mismatch)) from mismatch
    _require_same_robot(robot, certificate)
    _require_usable_bound(robot, certificate)
    q, v, a = trajectory.evaluate(0.0)
    _require_small(robot, certificate.start_q - q, 1e-9, "its certificate starts {:.6f} rad away from it at {}")
    if not is_continuation:
        _require_small(robot, v, _REST_TOLERANCE, "it starts with {:.6f} rad/s at {}; it must start at rest")
        _require_small(robot, a, _REST_TOLERANCE, "it starts with {:.6f} rad/s^2 at {}; it must start at rest")
    _require_within_limits(robot, trajectory)


def admit_control(
    certificate: Certificate, law: str, payload: Array, rested: float, after: str = "", after_time: float = 0.0
) -> None:
    """Checks that the tracking bound of a certificate holds for this controller, and for how the motion begins.

    Args:
        certificate: A certificate that :func:`admit_trajectory` has admitted.
        law: Control law of the controller.
        payload: Payload it takes for true during the motion, (10,).
        rested: How long the arm has been held undisturbed [s].
        after: ``hash()`` of the plan the motion takes over from; empty for a motion from rest.
        after_time: Time of that plan at which it takes over [s].

    Raises:
        LoopRefusal: Something is not as the certificate assumes.
    """
    if certificate.control is None:
        if certificate.method == "interval":
            raise LoopRefusal(_WHAT, "its certificate does not state what its tracking bound rests on")
        return
    try:
        certificate.control.matches(law, payload, rested, after, after_time)
    except CertificateMismatch as mismatch:
        raise LoopRefusal(_WHAT, str(mismatch)) from mismatch


def admit_start(
    robot: RobotModel, trajectory: Trajectory, certificate: Certificate, reference: Array, tolerance: float
) -> None:
    """Checks that a trajectory starts where the arm is held.

    Args:
        robot: Joint names.
        trajectory: What is to be executed.
        certificate: Its certificate; a proof is about motions that start exactly there.
        reference: Desired position, (n,) [rad].
        tolerance: Largest difference where the certificate is no proof [rad].

    Raises:
        LoopRefusal: With the joint and by how much.
    """
    if certificate.method == "interval":
        tolerance = min(tolerance, _SAME_START)
    difference = trajectory.start - reference
    words = "it starts {:.6f} rad away from the held position of {}" + f" (allowed {tolerance:g} rad); plan it again"
    _require_small(robot, difference, tolerance, words)


def _require_same_robot(robot: RobotModel, certificate: Certificate) -> None:
    """A proof is about limits and spheres as much as about parameters; two files of one name may differ in them."""
    own, stated = robot_hash(robot), certificate.robot_hash
    if stated != own and (stated or certificate.method == "interval"):
        raise LoopRefusal(
            _WHAT,
            f"its certificate is for a robot {stated[:12] or 'that is not stated'}, but '{robot.name}' of this driver "
            f"is {own[:12]}; planner and driver need the same model",
        )


def _require_usable_bound(robot: RobotModel, certificate: Certificate) -> None:
    for name, values in (("tracking bound", certificate.tracking_bound), ("start position", certificate.start_q)):
        if values.shape != (robot.n,) or not np.all(np.isfinite(values)):
            raise LoopRefusal(_WHAT, f"the {name} of its certificate is {values}; it must be {robot.n} finite numbers")
    shortest = "above 0" if certificate.method == "interval" else "0 (the driver's own) or above"
    is_positive = certificate.brake_time > 0.0 or (certificate.brake_time == 0.0 and certificate.method == "sampled")
    if not (is_positive and certificate.brake_time <= _LONGEST_BRAKE):
        raise LoopRefusal(
            _WHAT,
            f"the brake time of its certificate is {certificate.brake_time} s; it must be {shortest}, at most "
            f"{_LONGEST_BRAKE:g} s",
        )
    bad = np.flatnonzero(certificate.tracking_bound <= 0.0)
    if bad.size:
        joint = bad[0]
        raise LoopRefusal(
            _WHAT,
            f"the tracking bound of {robot.joint_names[joint]} in its certificate is "
            f"{certificate.tracking_bound[joint]} rad; it must be positive",
        )


def _require_small(robot: RobotModel, values: Array, tolerance: float, words: str) -> None:
    worst = int(np.argmax(np.where(np.isfinite(values), np.abs(values), np.inf)))
    if not abs(values[worst]) <= tolerance:
        raise LoopRefusal(_WHAT, words.format(values[worst], robot.joint_names[worst]))


def _require_within_limits(robot: RobotModel, trajectory: Trajectory) -> None:
    limits = robot.limits
    ranges = (
        ("position", "rad", trajectory.position_extrema(), limits.q_lower, limits.q_upper),
        ("velocity", "rad/s", trajectory.velocity_extrema(), -limits.v_max, limits.v_max),
    )
    for name, unit, (lowest, highest), lower, upper in ranges:
        excess = np.maximum(lower - lowest, highest - upper)
        worst = int(np.argmax(np.where(np.isnan(excess), np.inf, excess)))
        if not excess[worst] <= 0.0:
            raise LoopRefusal(
                _WHAT,
                f"the {name} of {robot.joint_names[worst]} reaches {lowest[worst]:.4f} to {highest[worst]:.4f} {unit}, "
                f"which exceeds its limits {lower[worst]:.4f} to {upper[worst]:.4f} by {excess[worst]:.4f} {unit}",
            )
