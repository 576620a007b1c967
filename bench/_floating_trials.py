"""Random and adversarial trials of the guaranteed bounds: small random robots whose errors reach their bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin
from _space import simulate
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.space.core.bounds import bound_minimal, estimate_object, known_minimal
from sysid_ros.space.core.intervals import FloatingMotion
from sysid_ros.space.core.measurements import FloatingData, MomentumRange, Recording, SensorBounds
from sysid_ros.space.core.minimal_parameters import MinimalParameters, build_minimal_parameters, unit_momenta
from sysid_ros.space.core.momentum import FloatingTree
from sysid_ros.space.core.robot import FreeFlyer, ReactionWheels

Array = NDArray[np.float64]

KINDS = ("random", "corner", "constant", "worst")
"""Errors within their bounds: anywhere, at corners, the same corner all the time, against one parameter."""
_JOINTS = (pin.JointModelRX, pin.JointModelRY, pin.JointModelRZ, pin.JointModelPX, pin.JointModelPZ)
_INTERVALS = 6


@dataclass(frozen=True, eq=False)
class Scenario:
    """A robot, its true parameters, what it measured, and what is known."""

    robot: FreeFlyer
    minimal: MinimalParameters
    values: np.ndarray
    recording: Recording
    prior: Box


def minimal_box(minimal: MinimalParameters, parameters: ArrayLike, share: float, floor: float = 0.0) -> Box:
    """Return a prior of the minimal parameters around nominal ones: a share of each, and a floor of each [SI].

    Args:
        minimal: The minimal parameters.
        parameters: Nominal inertial parameters, (10 B,).
        share: Radius relative to each minimal parameter [-].
        floor: Least radius in the unit of each.
    """
    center = minimal.values(parameters)
    return Box.around(center, np.maximum(share * np.abs(center), floor))


def small_robot(rng: np.random.Generator, joints: int) -> FreeFlyer:
    """A base of about 20 kg with random branches of revolute and prismatic joints, and three wheels."""
    model = pin.Model()
    model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "base")
    model.appendBodyToJoint(1, _inertia(rng, 20.0, 0.5), pin.SE3.Identity())
    for k in range(joints):
        parent = int(rng.integers(1, model.njoints))
        placement = pin.SE3(pin.exp3(rng.normal(size=3)), rng.uniform(-0.5, 0.5, 3))
        joint = model.addJoint(parent, _JOINTS[rng.integers(len(_JOINTS))](), placement, f"joint_{k + 1}")
        model.appendBodyToJoint(joint, _inertia(rng, 4.0, 0.4), pin.SE3.Identity())
    tree = FloatingTree(model)
    axes, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    wheels = ReactionWheels(("a", "b", "c"), axes, np.full(3, 0.05), np.full(3, 40.0))
    wide, names = np.full(joints, 3.0), tree.body_names[1:]
    limits = (np.zeros(joints), -wide, wide, np.full(joints, 2.0), np.full(joints, 10.0))
    return FreeFlyer("trial", "", tree, names, *limits, wheels, np.full(3, 1e-3), None)


def random_motion(rng: np.random.Generator, robot: FreeFlyer, wheel_turn: float = 15.0) -> FloatingMotion:
    """Joints that turn by up to 0.8 rad (m) in each second."""
    knots = np.cumsum(rng.uniform(-0.8, 0.8, (_INTERVALS + 1, robot.n)), axis=0)
    turns = wheel_turn * rng.choice([-1.0, 1.0], (_INTERVALS, robot.wheels.count))
    return FloatingMotion(CycloidTrajectory(knots, 1.0), turns)


def random_object(rng: np.random.Generator) -> np.ndarray:
    """A body of up to 5 kg within 0.5 m of its frame's origin."""
    mass, radius = rng.uniform(0.5, 5.0), rng.uniform(0.02, 0.2)
    turn = pin.exp3(rng.normal(size=3))
    com = rng.uniform(-1.0, 1.0, 3)
    com *= rng.uniform(0.0, 0.25) / np.linalg.norm(com)
    inertia = turn @ np.diag(0.4 * mass * radius**2 * rng.uniform(0.5, 1.0) * np.array([1.0, 0.9, 0.7])) @ turn.T
    return from_com_form(mass, com, inertia)


def make_scenario(seed: int, kind: str, joints: int = 2, parameters: np.ndarray | None = None) -> Scenario:
    """Simulate a random robot, push it, and disturb what it measures within the bounds.

    Args:
        seed: Of everything that is random.
        kind: One of ``KINDS``.
        joints: Number of joints.
        parameters: Parameters that what it holds adds to the last body, (10,).
    """
    rng = np.random.default_rng(seed)
    robot = small_robot(rng, joints)
    truth = robot.tree.parameters.copy()
    minimal = build_minimal_parameters(robot.tree)
    values = minimal.values(truth)
    prior = _prior(rng, values, at_corner=kind != "random")
    if parameters is not None:
        truth[-10:] += parameters
    known, momentum = _momentum(rng, kind)
    sensors = SensorBounds(
        *rng.uniform(1e-4, 3e-3, 3),
        joint_position=rng.uniform(0.0, 3e-3),
        wheel_rate=rng.uniform(0.0, 1e-2),
        wheel_inertia=rng.choice([0.0, 1e-3]),
        attitude=1e-3,
        place=1e-3,
    )
    share = _error(rng, kind, (robot.wheels.count,)) * sensors.wheel_inertia
    real = replace(robot, wheels=replace(robot.wheels, inertias=robot.wheels.inertias * (1.0 + share)))
    times = np.arange(0.05, _INTERVALS, 0.125)
    motion = random_motion(rng, robot)
    exact = simulate(real, truth, motion, times, momentum)
    # Momentum ranges speak of the first sample: known there, and about its origin, which is the origin of the data.
    block = int(rng.choice([1, 1, 2])) if kind == "random" else 1
    data = _measure(rng, kind, robot, exact, sensors, values, minimal)
    return Scenario(robot, minimal, values, Recording(data, sensors, known, block), prior)


def minimal_trial(seed: int, kind: str, joints: int = 2) -> tuple[bool, float]:
    """Bound the minimal parameters; return whether the truth is inside, and the median width over that of the prior."""
    case = make_scenario(seed, kind, joints)
    found = bound_minimal(case.robot, case.minimal, [case.recording], case.prior, passes=1 + (seed % 4 == 0))
    return found.box.contains(case.values), float(np.median(found.box.width / case.prior.width))


def object_trial(seed: int, kind: str, joints: int = 2) -> tuple[bool, float]:
    """Bound an object on the last body; return whether it is inside, and the width of the mass over its prior's."""
    held = random_object(np.random.default_rng(10**6 + seed))
    case = make_scenario(seed, kind, joints, held)
    # The rest is known ten times better than a robot that nobody identified.
    center, radius = case.prior.center, case.prior.radius
    nearer = Box.around(case.values + 0.1 * (center - case.values), 0.1 * radius * (1.0 + 1e-9))
    body = case.robot.tree.body_names[-1]
    found = estimate_object(
        case.robot, body, [case.recording], known_minimal(case.minimal, nearer), None, passes=1 + seed % 2
    )
    com = held[1:4] / held[0]
    inside = found.bounds.box.contains(held) and found.com_box.contains(com) and found.bounds.box.contains(found.values)
    return inside, float(found.bounds.box.width[0] / found.bounds.prior.width[0])


def _inertia(rng: np.random.Generator, mass: float, size: float) -> pin.Inertia:
    turn = pin.exp3(rng.normal(size=3))
    sides = (size * rng.uniform(0.3, 1.0, 3)) ** 2
    weight = mass * rng.uniform(0.5, 1.5)
    inertia = turn @ np.diag(weight / 12.0 * (sides.sum() - sides)) @ turn.T
    return pin.Inertia(weight, rng.uniform(-0.5, 0.5, 3) * size, inertia)


def _prior(rng: np.random.Generator, values: np.ndarray, at_corner: bool) -> Box:
    radius = 0.3 * np.abs(values) + 0.05
    offset = rng.choice([-1.0, 1.0], values.size) if at_corner else rng.uniform(-1.0, 1.0, values.size)
    return Box.around(values + offset * radius, radius * (1.0 + 1e-9))


def _error(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Errors in units of their bounds."""
    if kind == "random":
        return rng.uniform(-1.0, 1.0, shape)
    return rng.choice([-1.0, 1.0], shape)


def _momentum(rng: np.random.Generator, kind: str):
    """What is known of the momentum, and the true one: at a corner of it, pushed as hard as is allowed."""
    radius = rng.choice([0.0, 0.2]) * np.ones(6)
    start = _error(rng, kind, (6,)) * radius
    force, torque = rng.choice([0.0, 0.02], 2)
    sign = _error(rng, kind, (6,)) * np.repeat([force, torque], 3)
    known = MomentumRange(Box(-radius, radius), force, torque, knots=4)
    turning = rng.uniform(0.0, _INTERVALS)  # the push changes its sign here

    def momentum(times: np.ndarray) -> np.ndarray:
        lasted = times - 0.05
        effective = lasted if kind == "constant" else lasted - 2.0 * np.maximum(times - turning, 0.0)
        return start + effective[:, None] * sign

    return known, momentum


def _measure(
    rng: np.random.Generator,
    kind: str,
    robot: FreeFlyer,
    exact: FloatingData,
    sensors: SensorBounds,
    values: np.ndarray,
    minimal: MinimalParameters,
) -> FloatingData:
    count = len(exact)
    sizes = sensors.velocity(robot.n, False)
    errors = _error(rng, kind, (1, sizes.size) if kind == "constant" else (count, sizes.size)) * np.ones((count, 1))
    if kind == "worst":
        # Against the least-squares estimate of one parameter: each error as the sign of its gain.
        units = unit_momenta(robot.tree, exact.q)[..., minimal.kept]
        regressor = np.einsum("nk,nkiu->niu", exact.velocities, units).reshape(-1, minimal.count)
        gains = np.linalg.pinv(regressor)[rng.integers(minimal.count)].reshape(count, 6)
        errors = np.where(np.einsum("ni,nki->nk", gains, units @ values) > 0.0, 1.0, -1.0)
    errors = errors * sizes
    q = exact.q + _error(rng, kind, exact.q.shape) * np.asarray(sensors.joint_position)
    wheels = exact.wheel_rates + _error(rng, kind, exact.wheel_rates.shape) * sensors.wheel_rate
    axis = rng.normal(size=(count, 3))
    axis /= np.linalg.norm(axis, axis=1)[:, None]
    tilt = np.stack([pin.exp3(float(np.asarray(sensors.attitude)) * one) for one in axis])
    place = exact.positions + float(np.asarray(sensors.place)) * axis[:, ::-1]
    turned = exact.rotations @ tilt
    return FloatingData(
        exact.times, exact.base_twist + errors[:, :6], q, exact.v + errors[:, 6:], wheels, turned, place
    )
