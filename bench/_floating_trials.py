"""Random and adversarial trials of the guaranteed bounds: small random robots whose errors reach their bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.spatial import skew
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.space.core.assumptions import MomentumRange, Recording, SensorBounds
from sysid_ros.space.core.bounds import bound_minimal, estimate_object, known_minimal
from sysid_ros.space.core.intervals import FloatingMotion
from sysid_ros.space.core.kinematics import FloatingTree
from sysid_ros.space.core.measurements import FloatingData, data_from_euler_rates, euler_rate_matrices
from sysid_ros.space.core.minimal_parameters import MinimalParameters, build_minimal_parameters
from sysid_ros.space.core.momentum import composite_inertia, compute_momentum
from sysid_ros.space.core.regression import unit_momenta
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


def simulate(
    robot: FreeFlyer,
    parameters: ArrayLike,
    motion: FloatingMotion,
    times: ArrayLike,
    momentum: Callable[[Array], Array] | None = None,
) -> FloatingData:
    """Simulate the base while joints and wheels move as prescribed.

    The velocity of the base follows from the momentum, exactly; only its pose is integrated, by the Runge-Kutta method
    of fourth order.

    Args:
        robot: The robot.
        parameters: Inertial parameters, (10 B,).
        motion: Motion of joints and wheels.
        times: Ascending, (N,) [s].
        momentum: Linear and angular momentum of robot and wheels at times (M,), in the axes of the first sample and
            about its origin, (M, 6) [kg m/s, kg m^2/s]; zero by default.

    Returns:
        The motion, without errors.
    """
    theta, stamps = np.asarray(parameters, dtype=float), np.asarray(times, dtype=float)
    nodes = np.empty(2 * stamps.size - 1)
    nodes[::2], nodes[1::2] = stamps, 0.5 * (stamps[1:] + stamps[:-1])
    q, v, _ = motion.joints.sample(nodes)
    wheel_rates = motion.wheel_rates(nodes)
    states = robot.tree.evaluate(q, v)
    inverse = np.linalg.inv(composite_inertia(states, theta))
    own = compute_momentum(states, theta)
    own += robot.wheels.momentum(wheel_rates)
    total = np.zeros((nodes.size, 6)) if momentum is None else np.asarray(momentum(nodes), dtype=float)

    def twist(node: int, turn: Array, place: Array) -> Array:
        linear = total[node, :3]
        seen = np.concatenate([turn.T @ linear, turn.T @ (total[node, 3:] - np.cross(place, linear))])
        result: Array = inverse[node] @ (seen - own[node])
        return result

    def rate(node: int, turn: Array, place: Array) -> tuple[Array, Array]:
        now = twist(node, turn, place)
        return turn @ skew(now[3:]), turn @ now[:3]

    rotations, positions, twists = np.empty((stamps.size, 3, 3)), np.empty((stamps.size, 3)), np.empty((stamps.size, 6))
    turn, place = np.eye(3), np.zeros(3)
    for k in range(stamps.size):
        rotations[k], positions[k], twists[k] = turn, place, twist(2 * k, turn, place)
        if k + 1 == stamps.size:
            break
        h = stamps[k + 1] - stamps[k]
        a = rate(2 * k, turn, place)
        b = rate(2 * k + 1, turn + 0.5 * h * a[0], place + 0.5 * h * a[1])
        c = rate(2 * k + 1, turn + 0.5 * h * b[0], place + 0.5 * h * b[1])
        d = rate(2 * k + 2, turn + h * c[0], place + h * c[1])
        u, _, w = np.linalg.svd(turn + h / 6.0 * (a[0] + 2.0 * b[0] + 2.0 * c[0] + d[0]))
        turn, place = u @ w, place + h / 6.0 * (a[1] + 2.0 * b[1] + 2.0 * c[1] + d[1])
    return FloatingData(stamps, twists, q[::2], v[::2], wheel_rates[::2], rotations, positions)


def euler_angles(rotations: Array) -> Array:
    """Return the Z-X-Y Euler angles (N, 3) [rad] of rotations (N, 3, 3)."""
    about_x = np.arcsin(np.clip(rotations[:, 2, 1], -1.0, 1.0))
    about_z = np.arctan2(-rotations[:, 0, 1], rotations[:, 1, 1])
    return np.stack([about_z, about_x, np.arctan2(-rotations[:, 2, 0], rotations[:, 2, 2])], axis=1)


def add_noise(
    robot: FreeFlyer, truth: FloatingData, rng: np.random.Generator, rule: str = "forward_euler"
) -> FloatingData:
    """Measure a simulated motion as the paper does: white noise on the rates, and all else integrated from them.

    Args:
        robot: The robot, with the standard deviations of its sensors.
        truth: The motion without errors.
        rng: Random numbers.
        rule: Rule of integration, see :func:`data_from_rates`.

    Source: SPACE sections 6.3 and 7.3.
    """
    angles = euler_angles(truth.rotations)
    matrices = euler_rate_matrices(angles, truth.times)
    rates = np.linalg.solve(matrices, truth.base_twist[:, 3:, None])[..., 0]
    linear, angular, joint = robot.noise
    velocity = np.einsum("nij,nj->ni", truth.rotations, truth.base_twist[:, :3])
    velocity += rng.normal(0.0, linear, (len(truth), 3))
    rates = rates + rng.normal(0.0, angular, (len(truth), 3))
    v = truth.v + rng.normal(0.0, joint, truth.v.shape)
    return data_from_euler_rates(robot, truth.times, velocity, rates, v, truth.wheel_rates, truth.q[0], rule)


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
