"""Certificates of motions that nobody has proven, for benchmarks on simulated and emulated arms only."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.certification.assumptions import box_hash, robot_hash
from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.drivers.loop_types import LoopModel


def unproven_certificate(
    robot: RobotModel, model: LoopModel, law: ControlLaw, trajectory: Trajectory, bound: float, now: float = 0.0
) -> Certificate:
    """A certificate that says what the loop wants to read; nothing was checked.

    Args:
        robot: The robot of the loop.
        model: The model it uses.
        law: Its control law.
        trajectory: What it is to follow, from rest.
        bound: Position error at which it brakes [rad].
        now: Time of its clock [s].
    """
    return Certificate(
        path_hash=trajectory.hash(),
        box_hash=box_hash(model.theta_box, model.payload_box),
        scene_hash="",
        robot_hash=robot_hash(robot),
        control_law=law,
        nominal_payload=model.payload,
        predecessor=None,
        takeover_time=0.0,
        rest_before=0.0,
        tracking_bound=np.full(robot.n, bound),
        velocity_bound=robot.limits.v_max,
        torque_bound=robot.limits.tau_max,
        torque_squares=np.zeros((2, robot.n)),
        torque_fraction=1.0,
        brake_time=0.3,
        claims="nothing was checked; for a benchmark in simulation only",
        margins=(),
        issued_at=now - 1.0,
        expires_at=now + 86000.0,
    )
