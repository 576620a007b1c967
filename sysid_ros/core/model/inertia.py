"""Algebra of the ten inertial parameters of a rigid body.

The one order used in this package is Pinocchio's, ``[m, m cx, m cy, m cz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz]``, with the
inertia about the origin of the *body (joint) frame*. Every other form (about the CoM, URDF, the papers' order) is
converted here and nowhere else. Parameters of bodies fixed to each other add when expressed in one frame.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import NotPhysicallyConsistent
from sysid_ros.core.common.spatial import skew

PARAMETER_NAMES = ("m", "mcx", "mcy", "mcz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")
PARAMETER_UNITS = ("kg",) + ("kg m",) * 3 + ("kg m^2",) * 6


def inertia_matrix(theta: ArrayLike) -> NDArray[np.float64]:
    """Return the 3x3 inertia matrix about the body frame origin [kg m^2]."""
    xx, xy, yy, xz, yz, zz = np.asarray(theta, dtype=float)[4:10]
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def pack(mass: float, first_moment: ArrayLike, inertia: ArrayLike) -> NDArray[np.float64]:
    """Pack mass [kg], first moment (3,) [kg m] and inertia about the frame origin (3, 3) [kg m^2] into (10,)."""
    matrix = np.asarray(inertia, dtype=float)
    rows, columns = (0, 0, 1, 0, 1, 2), (0, 1, 1, 2, 2, 2)
    return np.concatenate([[mass], np.asarray(first_moment, dtype=float), matrix[rows, columns]])


def from_com_form(mass: float, com: ArrayLike, inertia_com: ArrayLike) -> NDArray[np.float64]:
    """Build parameters (10,) from mass [kg], CoM (3,) [m] and inertia about the CoM (3, 3) [kg m^2], in body axes."""
    center = np.asarray(com, dtype=float)
    shift = mass * (center @ center * np.eye(3) - np.outer(center, center))
    return pack(mass, mass * center, np.asarray(inertia_com, dtype=float) + shift)


def to_com_form(theta: ArrayLike) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Convert parameters (10,) to mass [kg], CoM (3,) [m] and inertia about the CoM (3, 3) [kg m^2].

    A body without mass has no CoM: zeros are returned for it, with the inertia left as it is.
    """
    parameters = np.asarray(theta, dtype=float)
    mass = float(parameters[0])
    if mass == 0.0:
        return 0.0, np.zeros(3), inertia_matrix(parameters)
    com = parameters[1:4] / mass
    shift = mass * (com @ com * np.eye(3) - np.outer(com, com))
    return mass, com, inertia_matrix(parameters) - shift


def pseudo_inertia(theta: ArrayLike) -> NDArray[np.float64]:
    """Build the 4x4 pseudo-inertia matrix; positive definite if and only if a body can have these parameters.

    Source: SAFE-ID (31), with the 3x3 block ``tr(I)/2 1 - I``.
    """
    parameters = np.asarray(theta, dtype=float)
    inertia = inertia_matrix(parameters)
    result = np.empty((4, 4))
    result[:3, :3] = 0.5 * np.trace(inertia) * np.eye(3) - inertia
    result[:3, 3] = result[3, :3] = parameters[1:4]
    result[3, 3] = parameters[0]
    return result


def from_pseudo_inertia(matrix: ArrayLike) -> NDArray[np.float64]:
    """Return the parameters (10,) of a 4x4 pseudo-inertia matrix, the inverse of :func:`pseudo_inertia`."""
    pseudo = np.asarray(matrix, dtype=float)
    second_moment = pseudo[:3, :3]
    return pack(pseudo[3, 3], pseudo[:3, 3], np.trace(second_moment) * np.eye(3) - second_moment)


def radius_of_share(theta: ArrayLike, share: float) -> NDArray[np.float64]:
    """Bound the difference of parameters whose pseudo-inertia is within a share of theirs (10,), each attained, (10,).

    Over ``-share J <= D <= share J``, in the order of positive semidefinite matrices, a linear function ``tr(L D)``
    reaches the nuclear norm of ``J^1/2 L J^1/2`` times the share. For an entry ij of D that is ``(J_ii J_jj)^1/2``.
    """
    matrix = pseudo_inertia(theta)
    size = np.sqrt(np.diag(matrix))
    largest = np.outer(size, size)
    moments = from_pseudo_inertia(matrix)[[4, 6, 9]]  # sums of two diagonal entries
    result = pack(largest[3, 3], largest[:3, 3], largest[:3, :3])
    result[[4, 6, 9]] = moments
    return np.asarray(share * result, dtype=np.float64)


def largest_share(theta: ArrayLike, nominal: ArrayLike) -> float:
    """Compute the least share of the nominal pseudo-inertia within which that of theta (10,) lies [-]."""
    factor = np.linalg.inv(np.linalg.cholesky(pseudo_inertia(nominal)))
    change = pseudo_inertia(np.asarray(theta, dtype=float) - np.asarray(nominal, dtype=float))
    return float(np.abs(np.linalg.eigvalsh(factor @ change @ factor.T)).max())


def is_physically_consistent(theta: ArrayLike) -> bool:
    """Test whether the pseudo-inertia of parameters (10,) is positive definite."""
    return bool(np.linalg.eigvalsh(pseudo_inertia(theta))[0] > 0.0)


def require_physically_consistent(theta: ArrayLike, body: str) -> None:
    """Raise an error for parameters that no body can have.

    Raises:
        NotPhysicallyConsistent: The pseudo-inertia is not positive definite.
    """
    eigenvalues = np.linalg.eigvalsh(pseudo_inertia(theta))
    if not eigenvalues[0] > 0.0:
        raise NotPhysicallyConsistent(body, eigenvalues.tolist())


def transform_parameters(theta: ArrayLike, rotation: ArrayLike, translation: ArrayLike) -> NDArray[np.float64]:
    """Express the parameters (10,) of a body in another frame.

    Args:
        theta: Parameters in frame B.
        rotation: (3, 3) rotation of frame B seen from frame A.
        translation: (3,) origin of frame B in frame A [m].

    Returns:
        The parameters in frame A, (10,); linear in ``theta``.
    """
    transform = np.eye(4)
    transform[:3, :3] = rotation
    transform[:3, 3] = translation
    return from_pseudo_inertia(transform @ pseudo_inertia(theta) @ transform.T)


def transform_matrix(rotation: ArrayLike, translation: ArrayLike) -> NDArray[np.float64]:
    """Build the matrix A (10, 10) with ``transform_parameters(theta, rotation, translation) = A theta``."""
    return np.stack([transform_parameters(column, rotation, translation) for column in np.eye(10)], axis=1)


def transform_box(box: Box, rotation: ArrayLike, translation: ArrayLike) -> Box:
    """Compute the smallest box of the parameters (10,), seen from another frame, of every body in ``box``.

    Entry by entry the hull is exact, up to outward rounding. It ignores the coupling of the entries: there and back
    again gives a larger box.

    Args:
        box: Box of parameters in frame B.
        rotation: (3, 3) rotation of frame B seen from frame A.
        translation: (3,) origin of frame B in frame A [m].

    Returns:
        The box in frame A.
    """
    matrix = transform_matrix(rotation, translation)
    positive, negative = np.maximum(matrix, 0.0), np.minimum(matrix, 0.0)
    lower = positive @ box.lower + negative @ box.upper
    upper = positive @ box.upper + negative @ box.lower
    # Rounding errors of A and of the sums are a few units of the sum of the terms' magnitudes.
    sizes = np.abs(transform_matrix(np.abs(rotation), np.abs(translation)))
    pad = 64.0 * np.finfo(float).eps * (sizes @ np.maximum(np.abs(box.lower), np.abs(box.upper)))
    # The mass is the same from everywhere, without rounding: one that is not negative stays so.
    pad[0] = 0.0
    return Box(lower - pad, upper + pad)


def unit_inertias() -> NDArray[np.float64]:
    """Build the spatial inertias of unit parameters (10, 6, 6) about the frame's origin, linear before angular."""
    inertias = np.zeros((10, 6, 6))
    inertias[0, :3, :3] = np.eye(3)
    for axis in range(3):
        turn = skew(np.eye(3)[axis])
        inertias[1 + axis, 3:, :3], inertias[1 + axis, :3, 3:] = turn, turn.T
    for index, (row, column) in enumerate(((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))):
        inertias[4 + index, 3 + row, 3 + column] = inertias[4 + index, 3 + column, 3 + row] = 1.0
    inertias.setflags(write=False)
    return inertias


@dataclass(frozen=True)
class InertiaEllipsoid:
    """A homogeneous solid ellipsoid.

    Attributes:
        center: Centre of mass in the body frame, (3,) [m].
        rotation: Columns are the directions of the semi-axes in the body frame, right-handed, (3, 3).
        semi_axes: Their lengths, (3,) [m].
        principal_moments: Principal moments of inertia about the CoM, ascending, (3,) [kg m^2].
    """

    center: NDArray[np.float64]
    rotation: NDArray[np.float64]
    semi_axes: NDArray[np.float64]
    principal_moments: NDArray[np.float64]


def compute_inertia_ellipsoid(theta: ArrayLike) -> InertiaEllipsoid:
    """Compute the solid ellipsoid with inertial parameters ``theta`` (10,).

    A solid ellipsoid with semi-axes a, b, c has ``I_a = m (b^2 + c^2) / 5``, so ``a^2 = 5 (I_b + I_c - I_a) / (2 m)``.

    Raises:
        NotPhysicallyConsistent: No body has these parameters.
    """
    require_physically_consistent(theta, "ellipsoid")
    mass, center, inertia = to_com_form(theta)
    moments, axes = np.linalg.eigh(inertia)
    if np.linalg.det(axes) < 0.0:
        axes[:, 2] = -axes[:, 2]
    squares = 5.0 / (2.0 * mass) * (moments.sum() - 2.0 * moments)
    return InertiaEllipsoid(center, axes, np.sqrt(squares), moments)


def bound_com(
    lower: ArrayLike, upper: ArrayLike, within: Box | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the interval of the centre of mass that follows from bounds of mass and first moments.

    Args:
        lower: Lower bounds of the ten parameters, (10,).
        upper: Upper bounds, (10,).
        within: A box that it cannot leave, (3,) [m]; along an axis where the two do not meet, it is not used.

    Returns:
        Lower and upper bounds in the same frame, each (3,) [m], widened by a few rounding errors; infinite where the
        mass may be zero and nothing else is known.
    """
    low, high = np.asarray(lower, dtype=float), np.asarray(upper, dtype=float)
    least, most = np.full(3, -np.inf), np.full(3, np.inf)
    if low[0] > 0.0:
        corners = np.array([low[1:4] / low[0], low[1:4] / high[0], high[1:4] / low[0], high[1:4] / high[0]])
        slack = 64.0 * np.finfo(float).eps * np.abs(corners).max(axis=0)
        least, most = corners.min(axis=0) - slack, corners.max(axis=0) + slack
    if within is not None:
        inner, outer = np.maximum(least, within.lower), np.minimum(most, within.upper)
        meets = inner <= outer
        least, most = np.where(meets, inner, least), np.where(meets, outer, most)
    return least, most
