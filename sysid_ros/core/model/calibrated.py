"""A robot with its calibration: checks that it is of this arm, narrower box, new nominal parameters."""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pinocchio as pin

from sysid_ros.core.model.calibration import ArmCalibration, CalibrationError
from sysid_ros.core.model.inertia import require_physically_consistent
from sysid_ros.core.model.robot import RobotModel


def apply_calibration(
    calibration: ArmCalibration, robot: RobotModel, source: str = "of the arm", today: datetime.date | None = None
) -> RobotModel:
    """Return the robot with the calibration: narrower box, new nominal parameters, rows for the estimator.

    Args:
        calibration: The calibration.
        robot: The arm as its settings describe it.
        source: Where the calibration comes from, for messages.
        today: Day at which it has to be valid; today's by default.

    Raises:
        CalibrationError: It is of another arm, has expired, or its box and that of the settings do not meet.
    """
    calibration.record.check(source, today)
    if calibration.robot != robot.name:
        raise CalibrationError(source, "its robot", calibration.robot, f"{robot.name}, the robot that is used")
    if calibration.kinematics != hash_kinematics(robot):
        allowed = f"made with the kinematics, gravity and meaning of torques of {robot.name} as they are now"
        raise CalibrationError(source, "its model", "another one", allowed)
    box = calibration.box.intersect(robot.theta_box)
    if box is None:
        apart = np.flatnonzero(
            (calibration.box.lower > robot.theta_box.upper) | (calibration.box.upper < robot.theta_box.lower)
        )
        allowed = f"inside the robot's box, which it misses in {apart.size} parameters: another arm?"
        raise CalibrationError(source, "its parameter box", "elsewhere", allowed)
    nominal = np.clip(calibration.nominal, box.lower, box.upper)
    model = robot.pin_model.copy()
    for body, name in enumerate(robot.joint_names, start=1):
        part = nominal[robot.inertial_slice(body)]
        require_physically_consistent(part, f"everything moved by {name}, calibration {source}")
        model.inertias[body] = pin.Inertia.FromDynamicParameters(part)
    nominal.setflags(write=False)
    known = {"theta_box": box, "theta_nominal": nominal, "pin_model": model, "calibration": calibration}
    known["gripper_states"] = MappingProxyType({})  # its rows hold for the gripper as it was
    return replace(robot, uncalibrated=robot.uncalibrated or robot, **known)


def hash_kinematics(robot: RobotModel) -> str:
    """Return the hash of everything but parameters that rows rest on: joints, geometry, gravity, meaning of torques."""
    model, parts = robot.pin_model, [",".join(robot.joint_names), robot.sensors.effort_meaning.value]
    for i in range(1, model.njoints):
        placement = model.jointPlacements[i]
        parts += [model.joints[i].shortname(), _digits(placement.rotation), _digits(placement.translation)]
    parts += [_digits(robot.gravity), str(robot.sensors.effort_is_held)]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def _digits(values: Any) -> str:
    return " ".join(f"{value + 0.0:.9f}" for value in np.asarray(values, dtype=float).ravel())
