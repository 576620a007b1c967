"""Payload priors from the settings of a robot.

A prior is written in one of two forms. As an *object*: ranges of mass, CoM and radius of gyration in the tool frame,
from which the box of the ten parameters follows. Or as a *box* of the ten parameters themselves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.inertia import (
    from_com_form,
    require_physically_consistent,
    transform_box,
    transform_parameters,
)
from sysid_ros.core.model.robot import PayloadPrior, PayloadShape, Sphere, TurnedBox
from sysid_ros.core.model.settings import Section
from sysid_ros.core.model.spheres import read_sphere_rows

TARGETS = ("payload", "end_effector")
_LENGTH_MAX = 10.0  # [m]
_INERTIA_MAX = 1.0e5  # [kg m^2]


Placement = tuple[NDArray[np.float64], NDArray[np.float64]]


def object_box(mass: ArrayLike, com: Box, gyration: float) -> Box:
    """Compute the box of the ten parameters of all bodies with these properties.

    A body with radii of gyration up to r about any axis through its CoM c has ``0 <= Ic <= m r^2`` (as matrices), so
    ``|Ic_xy| <= m r^2 / 2``; with ``I = Ic + m (c.c 1 - c c^T)`` every parameter is m times a range.

    Args:
        mass: Lower and upper mass, (2,) [kg], not negative.
        com: Box of the CoM, (3,) [m].
        gyration: Largest radius of gyration about an axis through the CoM [m].

    Returns:
        The box in the frame of ``com``, rounded outwards; each single bound is reached by some body.
    """
    lightest, heaviest = np.asarray(mass, dtype=float)
    reach = np.maximum(np.abs(com.lower), np.abs(com.upper))
    nearest = np.where((com.lower <= 0.0) & (com.upper >= 0.0), 0.0, np.minimum(np.abs(com.lower), np.abs(com.upper)))
    low, high = [1.0, *com.lower], [1.0, *com.upper]
    for row, column in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)):
        if row == column:
            others = [axis for axis in range(3) if axis != row]
            low.append(float(np.sum(nearest[others] ** 2)))
            high.append(float(np.sum(reach[others] ** 2)) + gyration**2)
        else:
            products = np.outer([com.lower[row], com.upper[row]], [com.lower[column], com.upper[column]])
            low.append(-float(products.max()) - 0.5 * gyration**2)
            high.append(-float(products.min()) + 0.5 * gyration**2)
    lower = np.minimum(lightest * np.array(low), heaviest * np.array(low))
    upper = np.maximum(lightest * np.array(high), heaviest * np.array(high))
    pad = 1e-14 * heaviest * np.maximum(np.abs(low), np.abs(high))
    # Mass and moments of inertia of a body are never negative, whatever the rounding.
    floor = np.where(np.isin(np.arange(10), (0, 4, 6, 9)), np.maximum(lower - pad, 0.0), lower - pad)
    return Box(np.where(np.arange(10) == 0, lightest, floor), np.where(np.arange(10) == 0, heaviest, upper + pad))


def read_prior(settings: Section, name: str, tool: Placement, body: int) -> PayloadPrior:
    """Read one prior and express it in the frame of the last joint.

    Args:
        settings: Section ``payload_priors.<name>``.
        name: Name of the prior.
        tool: Rotation (3, 3) and translation (3,) [m] of the tool frame in the frame of the last joint.
        body: Index of the last body, which carries the payload.

    Raises:
        ParameterOutOfRange: A setting is out of range, or the nominal payload outside its box.
        NotPhysicallyConsistent: No body can have the nominal parameters.
    """
    target = settings.text("target", "payload", TARGETS)
    shape = None
    is_tool = settings.text("frame", "tool", ("tool", "joint")) == "tool"
    placement = tool if is_tool else (np.eye(3), np.zeros(3))
    if "mass" in settings:
        box, nominal, shape = _read_object(settings, placement)
    else:
        lower = settings.vector("lower", 10, "SI", -_INERTIA_MAX, _INERTIA_MAX)
        upper = settings.vector("upper", 10, "SI", -_INERTIA_MAX, _INERTIA_MAX)
        if not np.all(lower <= upper):
            raise ParameterOutOfRange(f"{settings.path}.lower", lower.tolist(), f"at most upper, {upper.tolist()}")
        box = transform_box(Box(lower, upper), *placement)
        nominal = transform_parameters(settings.vector("nominal", 10, "SI"), *placement)
    spheres = _read_spheres(settings, placement, body)
    settings.finish()
    require_physically_consistent(nominal, f"nominal payload of prior '{name}'")
    if not box.contains(nominal):
        allowed = f"inside its box, {box.lower.tolist()} to {box.upper.tolist()} (in the frame of the last joint)"
        raise ParameterOutOfRange(f"{settings.path}.nominal", nominal.tolist(), allowed)
    return PayloadPrior(box, nominal, name=name, target=target, spheres=spheres, shape=shape)


def _read_object(settings: Section, placement: Placement) -> tuple[Box, NDArray[np.float64], PayloadShape]:
    rotation, translation = placement
    mass = settings.vector("mass", 2, "kg", 0.0, 1000.0)
    limits = settings.section("center_of_mass")
    lower = limits.vector("lower", 3, "m", -_LENGTH_MAX, _LENGTH_MAX)
    upper = limits.vector("upper", 3, "m", -_LENGTH_MAX, _LENGTH_MAX)
    limits.finish()
    gyration = settings.number("radius_of_gyration", "m", 1e-4, _LENGTH_MAX)
    for path, low, high in ((f"{settings.path}.mass", mass[:1], mass[1:]), (f"{limits.path}.lower", lower, upper)):
        if not np.all(low <= high) or high[0] == low[0] == 0.0 and path.endswith("mass"):
            raise ParameterOutOfRange(
                path, low.tolist(), f"at most the upper value, {high.tolist()}, which is not zero"
            )
    center, radius = 0.5 * (lower + upper), 0.5 * (upper - lower)
    middle = rotation @ center + translation
    # The ranges of the ten parameters are taken in the joint frame: the CoM box is turned first, which is exact where
    # the two frames are parallel, and the radius of gyration is the same in every frame.
    half = np.abs(rotation) @ radius + 1e-14 * (np.abs(rotation) @ np.abs(center) + np.abs(translation))
    com = Box.around(middle, half)
    nominal_mass = 0.5 * (mass[0] + mass[1])
    nominal = from_com_form(nominal_mass, middle, 0.5 * nominal_mass * gyration**2 * np.eye(3))
    turned = None
    if np.min(np.abs(rotation).max(axis=1)) < 1.0 - 1e-6:
        size = 1e-14 * (np.abs(center) + radius + np.abs(rotation.T) @ np.abs(translation))
        turned = TurnedBox(rotation, Box.around(center + rotation.T @ translation, radius + size))
    return object_box(mass, com, gyration), nominal, PayloadShape(com, gyration, turned)


def _read_spheres(settings: Section, placement: Placement, body: int) -> tuple[Sphere, ...]:
    rotation, translation = placement
    rows = read_sphere_rows(settings, "spheres")
    return tuple(Sphere(body, rotation @ row[:3] + translation, float(row[3]), "payload") for row in rows)
