"""The solid ellipsoid that has a body's mass, centre of mass and inertia: how people see an inertia."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.model.inertia import require_physically_consistent, to_com_form


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
    """The solid ellipsoid with inertial parameters ``theta`` (10,).

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
