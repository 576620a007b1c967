"""Random robots and payloads: points of a parameter box that bodies can have.

A box of inertial parameters holds points no body has (its corners, mostly). Draws are therefore made in the
intersection of the box with the cone of physically consistent parameters, which is convex.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.model.inertia import from_com_form, is_physically_consistent, largest_share, pseudo_inertia
from sysid_ros.core.model.robot import INERTIAL, PayloadPrior, PayloadShape, RobotModel

Array = NDArray[np.float64]

_SMALL = 1e-3
"""Share of the largest mass or second moment that stands for none."""
_INSIDE = 0.9
"""Share of the way to the edge of the cone that is used; ten steps of it leave room for rounding."""


def sample_parameters(robot: RobotModel, rng: np.random.Generator, corner: bool = False) -> Array:
    """Draw physically consistent parameters of the arm in its box, and within the bounds of whole bodies.

    Args:
        robot: The arm.
        rng: Source of randomness.
        corner: Whether to draw at the corners, the worst cases: each body gets a random corner of its box, or, where no
            body is like that, each parameter goes towards its corner as far as bodies exist; friction is exactly at a
            corner. Otherwise the draw is about uniform.

    Returns:
        theta, (14 n,).
    """
    theta = np.empty_like(robot.theta_nominal)
    split = INERTIAL * robot.n
    for body in range(1, robot.n + 1):
        part = robot.inertial_slice(body)
        theta[part] = _sample_body(robot.theta_box.select(part), robot.theta_nominal[part], rng, corner)
        if robot.inertia_order is not None:
            theta[part] = _within_share(theta[part], robot.inertia_order.nominal[part], robot.inertia_order.share)
    friction = robot.theta_box.select(slice(split, None))
    theta[split:] = _corner(friction, rng) if corner else rng.uniform(friction.lower, friction.upper)
    return theta


def sample_payload(prior: PayloadPrior, rng: np.random.Generator, corner: bool = False) -> Array:
    """Draw a physically consistent payload (10,) of a prior; see :func:`sample_parameters`.

    It lies in the prior's box. Where the prior has a shape it is an object of that shape.
    """
    if prior.shape is None:
        return _sample_body(prior.box, prior.nominal, rng, corner)
    return np.clip(_sample_object(prior, prior.shape, rng, corner), prior.box.lower, prior.box.upper)


def _sample_object(prior: PayloadPrior, shape: PayloadShape, rng: np.random.Generator, corner: bool) -> Array:
    """Draw an object: mass and CoM in their ranges, second moments about the CoM of a random ellipsoid.

    Two of the principal second moments together are the radius of gyration squared about the third axis.
    """
    lightest, heaviest = prior.box.lower[0], prior.box.upper[0]
    lightest = max(lightest, _SMALL * heaviest)
    mass = rng.choice([lightest, heaviest]) if corner else rng.uniform(lightest, heaviest)
    box = shape.com if shape.turned is None else shape.turned.box
    com = _corner(box, rng) if corner else rng.uniform(box.lower, box.upper)
    com = com if shape.turned is None else shape.turned.axes @ com
    moments = rng.uniform(_SMALL, 1.0, 3)
    if corner:  # a ball's shell, a rod, or hardly anything
        moments = np.array([[0.5, 0.5, 0.5], [1.0, _SMALL, _SMALL], [_SMALL, _SMALL, _SMALL]])[rng.integers(0, 3)]
    moments = moments * min(1.0, (1.0 - _SMALL) / (np.sort(moments)[1:].sum())) * shape.gyration**2
    axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    spread = axes @ np.diag(moments) @ axes.T
    return from_com_form(mass, com, mass * (np.trace(spread) * np.eye(3) - spread))


def _corner(box: Box, rng: np.random.Generator) -> Array:
    return np.where(rng.integers(0, 2, box.lower.size) == 1, box.upper, box.lower)


def _sample_body(box: Box, nominal: Array, rng: np.random.Generator, corner: bool) -> Array:
    for _ in range(1 if corner else 10):
        point = _corner(box, rng) if corner else rng.uniform(box.lower, box.upper)
        if is_physically_consistent(point):
            return point
    return _push(point, box, nominal, rng) if corner else _walk(box, nominal, rng)


def _within_share(point: Array, nominal: Array, share: float) -> Array:
    """Move a body towards the nominal one until its pseudo-inertia is within a share of the nominal one's."""
    excess = largest_share(point, nominal) / share if share > 0.0 else np.inf
    if excess <= 1.0:
        return point
    return np.asarray(nominal + (1.0 - 1e-9) / excess * (point - nominal))  # inside in spite of rounding


def _push(goal: Array, box: Box, nominal: Array, rng: np.random.Generator) -> Array:
    """Move the nominal point towards a corner, one parameter after another, as far as it stays consistent."""
    point = np.array(nominal)
    for index in rng.permutation(INERTIAL):
        step = np.where(np.arange(INERTIAL) == index, goal - point, 0.0)
        _, longest = _consistent_range(point, step)
        point = np.clip(point + min(1.0, _INSIDE * longest) * step, box.lower, box.upper)
    return point


def _walk(box: Box, nominal: Array, rng: np.random.Generator) -> Array:
    """Walk by hit-and-run: steps of random direction and length within the box and the cone."""
    point = np.array(nominal)
    for _ in range(60):
        direction = box.width * rng.standard_normal(INERTIAL)
        shortest, longest = _consistent_range(point, direction)
        lower, upper = _box_range(box, point, direction)
        step = rng.uniform(max(_INSIDE * shortest, lower), min(_INSIDE * longest, upper))
        point = np.clip(point + step * direction, box.lower, box.upper)
    return point


def _consistent_range(point: Array, direction: Array) -> tuple[float, float]:
    """Return the range of s for which ``point + s direction`` is physically consistent; ``point`` must be.

    ``P + s D > 0`` with ``P = L L^T`` if and only if ``1 + s w > 0`` for every eigenvalue w of ``L^-1 D L^-T``.
    """
    inverse = np.linalg.inv(np.linalg.cholesky(pseudo_inertia(point)))
    values = np.linalg.eigvalsh(inverse @ pseudo_inertia(direction) @ inverse.T)
    lowest, highest = float(values[0]), float(values[-1])
    return -1.0 / highest if highest > 0.0 else -np.inf, -1.0 / lowest if lowest < 0.0 else np.inf


def _box_range(box: Box, point: Array, direction: Array) -> tuple[float, float]:
    moving = direction != 0.0
    if not np.any(moving):
        return 0.0, 0.0
    ends = np.stack([box.lower[moving] - point[moving], box.upper[moving] - point[moving]]) / direction[moving]
    return min(0.0, float(ends.min(axis=0).max())), max(0.0, float(ends.max(axis=0).min()))
