"""Choice of the controller's nominal payload while the payload is uncertain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.regressors.rest_torque import largest_rest_torque
from sysid_ros.core.tracking_bound.bound import tracking_bound
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.tracking_bound.uncertainty import InertialUncertainty, inertia_ratios, inertial_uncertainties

Array = NDArray[np.float64]

_KEPT = 0.65
"""The proposed payload is kept where the true inertia is at least this share of the nominal one."""
_LEAST = 0.75
"""Otherwise the payload is made so light that the true inertia is at least about this share."""
_WEIGHED_SHARES = (0.04, 0.08, 0.12, 0.16, 0.25)
"""Shares of the heaviest payload that are tried after weighing."""
_TAKEN_OFF = (0.5, 0.9)
"""Shares of the last body that counterweights take off."""
_GAIN = 0.9
"""Largest cost, relative to the present payload's, that is worth the seconds at rest a change takes."""
_SHARES = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.14, 0.17, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6)


def choose_payload(robot: RobotModel, boxes: tuple[Box, Box] | None = None, payload: ArrayLike | None = None) -> Array:
    """Choose a nominal payload with a small tracking bound, for the controller and for the bound.

    Feedback is shaped by the nominal inertia. A nominal payload that is too heavy makes the gains too high: delay and
    sampling amplify errors. One that is too light only slows the loop down; the integral state balances its weight.

    Args:
        robot: The arm.
        boxes: Boxes of the parameters of arm (14 n,) and payload (10,); the robot's own if None.
        payload: Proposed payload, (10,), kept where it is good enough; None as in :meth:`ControlModel.of_boxes`.

    Returns:
        A payload inside its box, (10,).
    """
    model = ControlModel.of_boxes(robot, boxes, payload)
    options = inertial_uncertainties(robot, model)
    low, high = _ratios(robot, options, model.payload)
    if low >= _KEPT:
        return np.array(model.payload)
    found = []
    for candidate in _candidates(model, options[-1]):
        low, high = _ratios(robot, options, candidate)
        found.append((high / max(min(low, _LEAST), 1e-9) ** 2, candidate))
    return min(found, key=lambda one: one[0])[1]


def _candidates(model: ControlModel, uncertainty: InertialUncertainty) -> list[Array]:
    """List payloads inside the box between a light one and the mean of the heaviest."""
    box, heavy = model.payload_box, _heaviest(uncertainty)
    body = uncertainty.theta[uncertainty.last] if uncertainty.payloads.replaces else np.zeros(10)
    mass = max(float(box.lower[0] + body[0]), 0.0)
    moment = np.clip(0.0, box.lower[1:4] + body[1:4], box.upper[1:4] + body[1:4])
    com = moment / mass if mass > 0.0 else np.zeros(3)
    light = from_com_form(mass, com, mass * 0.03**2 * np.eye(3))
    return [np.clip(light + share * (heavy - light) - body, box.lower, box.upper) for share in _SHARES]


def _heaviest(uncertainty: InertialUncertainty) -> Array:
    """Return the mean of the heaviest payloads in the set, (10,)."""
    upper = uncertainty.payloads.upper[-1]
    mean: Array = upper[upper[:, 0] >= upper[:, 0].max()].mean(axis=0)
    return mean


def _ratios(robot: RobotModel, options: list[InertialUncertainty], payload: Array) -> tuple[float, float]:
    """Bound the inertia ratio at the home posture; (0, inf) where the nominal inertia is not positive."""
    try:
        ranges = [inertia_ratios(robot, replace(one, payload=payload), robot.home[None]) for one in options]
    except np.linalg.LinAlgError:
        return 0.0, np.inf
    return max(float(low[0]) for low, _ in ranges), min(float(high[0]) for _, high in ranges)


def weighed_payload(robot: RobotModel, boxes: tuple[Box, Box], present: ArrayLike, posture: ArrayLike) -> Array:
    """Choose the nominal payload for the next motions after weighing, while the arm still rests.

    A small share of the heaviest possible payload: the integral state balances its weight, and its inertia raises the
    gains of light joints just where an unknown payload slows them down. The best share has the least product of the
    bounds of feedback torque and position error when holding the posture.

    Args:
        robot: The arm.
        boxes: Boxes of the parameters of arm (14 n,) and payload (10,).
        present: Present nominal payload, (10,); kept where no other one is clearly better.
        posture: Posture, (n,) [rad].
    """
    posture, present = np.asarray(posture, dtype=float), np.array(present, dtype=float)
    uncertainty = inertial_uncertainties(robot, ControlModel.of_boxes(robot, boxes, None))[-1]
    if uncertainty.payloads.replaces:
        return present
    heavy = _heaviest(uncertainty)

    def cost(payload: Array) -> float:
        try:
            bound = tracking_bound(robot, ControlModel.of_boxes(robot, boxes, payload), posture)
        except BoundNotAvailable:
            return np.inf
        return float((bound.torque / robot.limits.tau_held).max() * bound.position.max())

    found = cost(present)
    least, best = min(((cost(share * heavy), share * heavy) for share in _WEIGHED_SHARES), key=lambda one: one[0])
    return best if least < _GAIN * found else present


def light_payloads(robot: RobotModel, boxes: tuple[Box, Box]) -> list[Array]:
    """List no payload and small shares of the heaviest possible payload, (10,) each.

    Feedback is shaped by the nominal inertia, so a light one takes less feedback torque, noise of the sensors included;
    empty where the box is that of the last body and payload together. ``boxes`` are those of the arm (14 n,) and
    payload (10,).
    """
    uncertainty = inertial_uncertainties(robot, ControlModel.of_boxes(robot, boxes, None))[-1]
    if uncertainty.payloads.replaces:
        return []
    return [share * _heaviest(uncertainty) for share in (0.0, *_WEIGHED_SHARES)]


def counterweights(robot: RobotModel, boxes: tuple[Box, Box]) -> list[Array]:
    """List payloads that offset most of the last body's weight, (10,) each, for an arm that can hardly be held.

    They are no bodies, and need not be: they only make the nominal inertia lighter, most of all about the joints near
    the base, and so the feedback weaker. The integral state balances the weight that they leave out. ``boxes`` are
    those of the arm (14 n,) and payload (10,).
    """
    if boxes[1].lower[0] < 0.0:  # the payload is a body only together with the last one
        return []
    body = np.clip(robot.theta_nominal, boxes[0].lower, boxes[0].upper)[robot.inertial_slice(robot.n)]
    only_mass = np.where(np.arange(10) == 0, body, 0.0)
    return [-share * one for one in (body, only_mass) for share in _TAKEN_OFF]


def nominal_payload_range(robot: RobotModel) -> Box:
    """Return the box of all nominal payloads that a controller may be given, (10,).

    It holds nothing, whatever the payload prior has, and either with the heaviest counterweight of the last body.
    """
    prior, body = robot.payload_prior.box, robot.theta_box.select(robot.inertial_slice(robot.n))
    off = np.maximum(np.abs(body.lower), np.abs(body.upper))
    off[0] = robot.theta_nominal[robot.inertial_slice(robot.n)][0]  # some of it must be left
    lower = np.minimum(prior.lower, 0.0) - _TAKEN_OFF[-1] * off
    upper = np.maximum(prior.upper, 0.0) + _TAKEN_OFF[-1] * off
    upper[0] = max(prior.upper[0], 0.0)  # no counterweight adds mass
    return Box(lower, upper)


def best_payload(
    robot: RobotModel,
    boxes: tuple[Box, Box],
    candidates: Sequence[ArrayLike],
    posture: ArrayLike,
    needed: Array | float = 0.0,
) -> Array:
    """Select the nominal payload with which holding takes the least share of the torque limits.

    Args:
        robot: The arm.
        boxes: Boxes of the parameters of arm (14 n,) and payload (10,).
        candidates: Payloads, (10,) each; the first is taken where none has a bound.
        posture: Posture, (n,) [rad].
        needed: Holding torque besides the feedback, (n,) [Nm]; 0 to count the feedback alone.
    """
    still = np.asarray(posture, dtype=float)

    def need(payload: Array) -> float:
        try:
            bound = tracking_bound(robot, ControlModel.of_boxes(robot, boxes, payload), still)
        except (BoundNotAvailable, ParameterOutOfRange):
            return np.inf  # of a counterweight an arm with light armatures may have no inertia left
        return float(((bound.torque + needed) / robot.limits.tau_held).max())

    return min((np.array(one, dtype=float) for one in candidates), key=need)


def easiest_payload(robot: RobotModel, boxes: tuple[Box, Box], present: ArrayLike, posture: ArrayLike) -> Array:
    """Choose the nominal payload that leaves the most torque when holding a posture, at any other cost.

    Args:
        robot: The arm.
        boxes: Boxes of the parameters of arm (14 n,) and payload (10,).
        present: Present nominal payload, (10,); kept where no other one leaves more.
        posture: Posture, (n,) [rad].
    """
    posture = np.asarray(posture, dtype=float)
    candidates = [present, *light_payloads(robot, boxes), *counterweights(robot, boxes)]
    return best_payload(robot, boxes, candidates, posture, largest_rest_torque(robot, boxes, posture))
