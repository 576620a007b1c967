"""A robot with its calibration: checks that it is of this arm, narrower box, new nominal parameters."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pinocchio as pin

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.calibration import ArmCalibration, Opening, unusable_calibration
from sysid_ros.core.model.inertia import require_physically_consistent
from sysid_ros.core.model.robot import AS_CALIBRATED, FRICTION, INERTIAL, GripperState, RobotModel


def apply_calibration(
    calibration: ArmCalibration, robot: RobotModel, source: str = "of the arm", today: datetime.date | None = None
) -> RobotModel:
    """Return the robot with the calibration: narrower box, new nominal parameters, rows for the estimator.

    The bounds held at its date: friction, offsets and gains may have drifted since, by the rate in its record. They
    hold for the gripper at the calibration. A state of the gripper adds its difference from there to the box of the
    last body, and to the rows; the robot's own box holds for all states, as before.

    Args:
        calibration: The calibration.
        robot: The arm as its settings describe it.
        source: Where the calibration comes from, for messages.
        today: Day at which it has to be valid; today by default.

    Raises:
        ModelError: It is of another arm, has expired, refers to a state of the gripper that the robot does not have, or
            its box and the settings' box are disjoint.
    """
    calibration.record.check(source, today)
    closed, robot = robot, open_arm(robot, calibration.record.openings)
    if calibration.robot != robot.name:
        raise unusable_calibration(source, "its robot", calibration.robot, f"{robot.name}, the robot that is used")
    if calibration.kinematics != hash_kinematics(robot):
        allowed = f"made with the kinematics, gravity and meaning of torques of {robot.name} as they are now"
        raise unusable_calibration(source, "its model", "another one", allowed)
    state = calibration.record.gripper
    if state and state not in robot.gripper_states:
        known = ", ".join(robot.gripper_states) or "none"
        raise unusable_calibration(source, "its state of the gripper", state, f"one that {robot.name} has: {known}")
    prior = robot.with_gripper(state).theta_box
    calibration = _aged(calibration, robot, today)
    box = calibration.box.intersect(prior)
    if box is None:
        apart = np.flatnonzero((calibration.box.lower > prior.upper) | (calibration.box.upper < prior.lower))
        allowed = f"inside the robot's box, which it misses in {apart.size} parameters: another arm?"
        raise unusable_calibration(source, "its parameter box", "elsewhere", allowed)
    nominal = np.clip(calibration.nominal, box.lower, box.upper)
    model = robot.pin_model.copy()
    for body, name in enumerate(robot.joint_names, start=1):
        part = nominal[robot.inertial_slice(body)]
        require_physically_consistent(part, f"everything moved by {name}, calibration {source}")
        model.inertias[body] = pin.Inertia.FromDynamicParameters(part)
    nominal.setflags(write=False)
    applied = replace(
        robot,
        theta_box=box,
        theta_nominal=nominal,
        pin_model=model,
        calibration=calibration,
        uncalibrated=closed.uncalibrated or closed,
    )
    return applied if robot.gripper_change is None else _with_states(applied, robot)


def _aged(calibration: ArmCalibration, robot: RobotModel, today: datetime.date | None) -> ArmCalibration:
    """Return a calibration whose rows and box hold for friction, offsets and gains that have drifted since its date."""
    share, n = calibration.record.aged(today), robot.n
    if not share:
        return calibration
    moved = np.zeros(calibration.matrix.shape[1])
    friction = np.arange(INERTIAL * n, 14 * n).reshape(n, FRICTION)[:, [0, 1, 3]]  # armature stays
    moved[friction] = share * robot.theta_box.width[friction]
    if not robot.sensors.effort_meaning.has_friction:  # friction in the rows is behind the sensor
        behind = robot.sensors.effort_friction * robot.theta_box.upper[friction[:, :2]]
        moved[friction[:, :2]] = share * np.maximum(robot.theta_box.width[friction[:, :2]], behind)
    moved[15 * n : 16 * n] = share * 2.0 * robot.sensors.gain_radius
    wider, of_arm = np.abs(calibration.matrix) @ moved, moved[: 14 * n]
    box = Box(calibration.box.lower - of_arm, calibration.box.upper + of_arm)
    return replace(calibration, lower=calibration.lower - wider, upper=calibration.upper + wider, box=box)


def open_arm(robot: RobotModel, openings: Sequence[Opening]) -> RobotModel:
    """Return the robot with the openings of recordings; lag and tilt are settings of the estimator."""
    box, sensors, joints = robot.theta_box, robot.sensors, robot.joint_names
    openings = [one for one in openings if one.subject in joints]
    if not openings:
        return robot
    lower, upper = box.lower.copy(), box.upper.copy()
    more = {name: np.zeros(robot.n) for name in ("friction", "torque_offset", "torque_gain", "torque_error")}
    for one in openings:
        more[one.assumption][joints.index(one.subject)] += one.radius
    friction = np.arange(INERTIAL * robot.n, upper.size).reshape(robot.n, FRICTION)
    lower[friction[:, 3]] -= more["torque_offset"]
    upper[friction[:, 3]] += more["torque_offset"]
    behind = sensors.effort_friction
    if sensors.effort_meaning.has_friction:
        opened = friction[:, :2]
        lower[opened] = np.minimum(lower[opened], np.maximum(lower[opened] - more["friction"][:, None], 0.0))
        upper[opened] += more["friction"][:, None]
    else:
        behind += float(np.max(more["friction"] / np.maximum(upper[friction[:, 0]], 1e-9)))
    sensors = replace(
        sensors,
        effort_friction=behind,
        effort_gain_error=sensors.effort_gain_error + more["torque_gain"],
        effort_relative_error=sensors.effort_relative_error + more["torque_gain"],
        effort_mean_error=sensors.effort_mean_error + more["torque_error"],
        effort_absolute_error=sensors.effort_absolute_error + more["torque_error"],
    )
    return replace(robot, theta_box=Box(lower, upper), sensors=sensors)


def require_same_arm(robot: RobotModel, serial: str, where: str = "") -> None:
    """Reject the calibration of another arm before any computation or motion with it.

    Args:
        robot: The arm as assumed.
        serial: Serial number of the arm in use; empty if unknown.
        where: The thing in use, for the message.

    Raises:
        ParameterOutOfRange: Both are known and differ.
    """
    expected = "" if robot.calibration is None else robot.calibration.record.serial
    if expected and serial and serial != expected:
        allowed = (
            f"{expected}, the arm that the calibration in {robot.name} is of: use a file of this arm, calibrate it "
            f"(sysid calibrate run --serial {serial}), or give a model without a calibration"
        )
        raise ParameterOutOfRange(f"the serial number of the arm{where and f' in {where}'}", serial, allowed)


def describe_unknown_arm(robot: RobotModel, serial: str) -> list[str]:
    """Describe in a sentence that the arm was not compared with its calibration; empty where it could be."""
    expected = "" if robot.calibration is None else robot.calibration.record.serial
    if robot.calibration is None or (expected and serial):
        return []
    which = f"the calibration is of arm {expected}; that of the samples" if expected else "that of the calibration"
    return [f"serial numbers of the arm were not compared ({which} is not known): only the data speak for the same arm"]


def _with_states(applied: RobotModel, robot: RobotModel) -> RobotModel:
    """Return a calibrated arm with its gripper in every state of the robot.

    The true last body at the calibration, and the gripper's changes then and now, are within their bounds; their sum
    and difference are the last body now.
    """
    last, none = robot.inertial_slice(robot.n), np.zeros(INERTIAL)
    as_it_was, nominal = applied.theta_box.select(last), applied.theta_nominal[last]
    assert applied.calibration is not None  # noqa: S101
    before = robot.gripper_state(applied.calibration.record.gripper).change
    states = {AS_CALIBRATED: GripperState(nominal, as_it_was, Box(none, none))}
    for name in ("", *robot.gripper_states):
        other = robot.gripper_state(name)
        change = other.change + Box(-before.upper, -before.lower)
        own = (as_it_was + change).intersect(other.box)
        if own is None:
            continue  # disjoint from this arm's box: the state cannot occur
        states[name] = GripperState(np.clip(nominal + change.center, own.lower, own.upper), own, change)
    unknown = states.pop("")  # exists: the change of any state includes no change
    lower, upper = applied.theta_box.lower.copy(), applied.theta_box.upper.copy()
    lower[last], upper[last] = unknown.box.lower, unknown.box.upper
    return replace(
        applied,
        theta_box=Box(lower, upper),
        gripper_states=MappingProxyType(states),
        gripper_change=unknown.change,
    )


def hash_kinematics(robot: RobotModel) -> str:
    """Return the hash of joints, geometry, gravity and meaning of torques, on which rows depend."""
    model, parts = robot.pin_model, [",".join(robot.joint_names), robot.sensors.effort_meaning.value]
    for i in range(1, model.njoints):
        placement = model.jointPlacements[i]
        parts += [model.joints[i].shortname(), _digits(placement.rotation), _digits(placement.translation)]
    parts += [_digits(robot.gravity), str(robot.sensors.effort_is_held)]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def _digits(values: Any) -> str:
    return " ".join(f"{value + 0.0:.9f}" for value in np.asarray(values, dtype=float).ravel())
