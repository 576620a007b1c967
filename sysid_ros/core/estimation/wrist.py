"""Weigh with a wrist sensor: mass and first moments from wrenches at rest, with bounds.

A sensor between the flange and the tool measures the weight of what is behind it, besides a constant bias. With gravity
g and the origin p of the sensor in the frame of the last joint, that is the force ``m g`` and the moment
``(m c - m p) x g``, linear in mass and first moments. Bias and tool are unknowns that the same arm with its hand empty
shares; 2 linear programs for each of the four parameters bound them. What they leave is a narrower payload prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray
from scipy.optimize import linprog

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.common.spatial import skew
from sysid_ros.core.estimation.parameters.settings import PAYLOAD, EstimatorSettings
from sysid_ros.core.estimation.sensor_statistics import find_standstills
from sysid_ros.core.estimation.windows.samples import SampleBlock, Wrenches
from sysid_ros.core.model.inertia import from_com_form, to_com_form
from sysid_ros.core.model.payload import object_box
from sysid_ros.core.model.robot import RobotModel, frame_placement

Array = NDArray[np.float64]

_HEAVIEST = 100.0
"""Mass [kg] and first moments [kg m] beyond which no tool is."""
_CREEP = 0.01
"""Sum of the turns of all joints beyond which an arm does not rest [rad]."""
_LONGEST_STEP = 0.25
"""Longest time between wrenches of one rest, over the time of all [-]."""
_MARGIN = 1e-6
"""Allowance for the tolerances of the solver, of the size of a bound [-]."""
_INFEASIBLE = 2
"""Status of scipy's ``linprog`` where there is no solution; any other but 0 says nothing."""


@dataclass(frozen=True)
class WristSensor:
    """A force-torque sensor behind the flange.

    Attributes:
        frame: Frame in which it measures, fixed to the last body.
        force_error: Largest error of a mean force at rest along each axis, besides bias and gain [N].
        moment_error: Largest error of a mean moment likewise [Nm].
        share: Largest error of the gain of each axis besides, which stays the same [-].
    """

    frame: str
    force_error: float
    moment_error: float
    share: float = 0.01


Run = tuple[Sequence[SampleBlock], Wrenches]
"""Samples of the arm, and wrenches of the same time."""


def bound_by_wrench(
    robot: RobotModel, sensor: WristSensor, settings: EstimatorSettings, loaded: Run, empty: Run | None = None
) -> Box:
    """Bound mass and first moments of a payload by wrenches at rest.

    Args:
        robot: The arm, with the prior of its payload.
        sensor: The sensor.
        settings: How well gravity is known, and the state of the gripper with the payload.
        loaded: A run with the payload.
        empty: One with the hand empty; None where nothing but the payload is behind the sensor.

    Returns:
        Mass [kg] and first moments [kg m] about the frame of the last joint, (4,).

    Raises:
        SysidError: The arm does not rest while there are wrenches, no payload of the prior explains them, or the prior
            is of the whole end effector, part of which is in front of the sensor.
        ModelError: There is no such frame, or it is not fixed to the last body.
    """
    if robot.payload_prior.target != PAYLOAD:
        allowed = "one of a payload: part of the end effector is in front of the sensor"
        raise ParameterOutOfRange("--prior", robot.payload_prior.name, allowed)
    rows, right, errors = [], [], []
    # The gripper may have moved since the hand was empty, in any state.
    now, then = (robot.gripper_state(name).change for name in (settings.gripper, ""))
    moved = float(np.linalg.norm((now.radius + then.radius + np.abs(now.center - then.center))[1:4]))
    for run, holds in ((loaded, 1.0), (empty, 0.0)):
        if run is not None:
            for weight, measured, error in _rests(robot, sensor, settings, *run):
                error[3:] += holds * moved * float(np.linalg.norm(robot.gravity))
                rows.append(np.concatenate([holds * weight, weight * (empty is not None), np.eye(6)], axis=1))
                right.append(measured)
                errors.append(error)
    prior, tool = robot.payload_prior.box, np.full(4, _HEAVIEST)
    lower = np.concatenate([prior.lower[:4], [0.0], -tool[1:]])
    upper = np.concatenate([prior.upper[:4], tool])
    limits = [*zip(lower, upper, strict=True), *[(None, None)] * 6]
    a, b, size = np.concatenate(rows), np.concatenate(right), np.concatenate(errors)
    found = []
    for sign in (1.0, -1.0):  # sensors report what acts on the tool, or what the tool does
        own = a * np.concatenate([np.full(8, sign), np.ones(6)])
        program = {"A_ub": np.concatenate([own, -own]), "b_ub": np.concatenate([b + size, size - b]), "bounds": limits}
        ends = [linprog(way * np.eye(14)[k], **program) for k in range(4) for way in (1.0, -1.0)]
        if failed := [one for one in ends if one.status not in (0, _INFEASIBLE)]:
            raise SysidError(f"the linear program of the wrenches was not solved: {failed[0].message}")
        if all(one.status == 0 for one in ends):
            low, high = (np.array([one.fun for one in ends[first::2]]) for first in (0, 1))
            found.append((low, -high))
    if not found:
        raise SysidError(
            f"no payload of the prior '{robot.payload_prior.name}' explains the wrenches at rest: is the frame "
            f"'{sensor.frame}' the sensor's, are its errors wide enough, is the hand of the other recording empty?"
        )
    low, high = np.min([one[0] for one in found], axis=0), np.max([one[1] for one in found], axis=0)
    room = _MARGIN * (1.0 + np.maximum(np.abs(low), np.abs(high)))
    return Box(np.maximum(low - room, prior.lower[:4]), np.minimum(high + room, prior.upper[:4]))


def _rests(
    robot: RobotModel,
    sensor: WristSensor,
    settings: EstimatorSettings,
    blocks: Sequence[SampleBlock],
    wrenches: Wrenches,
) -> list[tuple[Array, Array, Array]]:
    """List for each rest the wrench by mass and first moments (6, 4), the measured one (6,), and its error (6,)."""
    rotation, origin = frame_placement(robot, sensor.frame)
    model, data = robot.pin_model, robot.pin_model.createData()
    # Of the last body, which the tool belongs to, and the payload: mass, and length of first moments about the sensor.
    prior, last, found = robot.payload_prior, robot.inertial_slice(robot.n), []
    upper = np.maximum(np.abs(robot.theta_box.lower[last]), robot.theta_box.upper[last])
    upper = upper + np.maximum(np.abs(prior.box.lower), prior.box.upper)
    heaviest, lever = upper[0], float(np.linalg.norm(upper[1:4]) + upper[0] * np.linalg.norm(origin))
    lever += float(upper[[4, 6, 9]].sum())  # turned by 1 rad/s^2 while the CoM stays
    # Gears that deflect between encoder and link count as resolution.
    tilt = settings.gravity_cone + 0.5 * float(np.sum(robot.link_sensors.position_resolution))
    for piece in find_standstills(robot, blocks, settings):
        inside = (wrenches.stamps >= piece.stamps[0]) & (wrenches.stamps <= piece.stamps[-1])
        times = 1e-9 * (wrenches.stamps[inside] - piece.stamps[0])
        change = np.ptp(piece.q, axis=0)
        turned, seconds = float(np.sum(change)), float(np.ptp(times)) if times.size else 0.0
        if turned > _CREEP or seconds == 0.0 or np.diff(times).max() > _LONGEST_STEP * seconds:
            continue
        share = (times - times[0]) / seconds
        weights = np.gradient(times) * share * (1.0 - share)
        q = piece.q.mean(axis=0)
        pin.computeJointJacobians(model, data, q)
        gravity = data.oMi[robot.n].rotation.T @ robot.gravity
        weight = np.zeros((6, 4))
        weight[:3, 0] = rotation.T @ gravity
        weight[3:, 0] = -rotation.T @ np.cross(origin, gravity)
        weight[3:, 1:] = -rotation.T @ skew(gravity)
        # With weights w = 6 s (1 - s) / T over s = t / T, partial integration leaves of an acceleration positions,
        # |mean of w a| <= 12 / T^2 (largest - smallest position), or speeds, |mean of w a| <= 3 / T (largest speed).
        jacobian = pin.getJointJacobian(model, data, robot.n, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED)
        gears = robot.link_sensors.velocity_error - robot.sensors.velocity_error
        swing = 12.0 * (change + robot.sensors.position_resolution) / seconds**2 + 3.0 * gears / seconds
        reach, turn = (np.linalg.norm(part, axis=0) for part in (jacobian[:3], jacobian[3:]))
        moved = float((reach + turn) @ swing) + (tilt + turned) * float(np.linalg.norm(gravity))
        measured = weights @ wrenches.values[inside] / weights.sum()
        errors = np.repeat([sensor.force_error + heaviest * moved, sensor.moment_error + lever * moved], 3)
        # With (1 + c) true + bias = measured, c / (1 + c) measured is missing, and a constant, which is bias.
        found.append((weight, measured, errors + sensor.share / (1.0 - sensor.share) * np.abs(measured)))
    if not found:
        raise SysidError("the arm does not rest while there are wrenches: record them with the joint states")
    return found


def with_wrench(robot: RobotModel, box: Box) -> RobotModel:
    """Return the arm with a payload prior whose mass and first moments, (4,), were weighed by a wrist sensor."""
    prior, shape = robot.payload_prior, robot.payload_prior.shape
    low, high = prior.box.lower.copy(), prior.box.upper.copy()
    low[:4], high[:4] = box.lower, box.upper
    mass = max(float(box.center[0]), 1e-6)
    com, about_com = box.center[1:] / mass, to_com_form(prior.nominal)[2] * mass / max(float(prior.nominal[0]), 1e-6)
    if shape is not None:
        of_mass = object_box([box.lower[0], box.upper[0]], shape.com, shape.gyration)
        low, high = np.maximum(low, of_mass.lower), np.minimum(high, of_mass.upper)
        com = np.clip(com, shape.com.lower, shape.com.upper)
        about_com = 0.5 * mass * shape.gyration**2 * np.eye(3)
    nominal = from_com_form(mass, com, about_com)
    name = f"{prior.name}, weighed by a wrist sensor: {box.lower[0]:.3f} to {box.upper[0]:.3f} kg"
    return replace(robot, payload_prior=replace(prior, box=Box(low, high), nominal=nominal, name=name))
