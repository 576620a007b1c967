"""Momentum and force of rigid bodies, one column per inertial parameter.

A body with parameters ``(m, m c, I)`` about its frame, moving with angular velocity ``w`` and velocity ``v`` of the
frame's origin, has the linear momentum ``m v + w x m c`` and, about that origin, the angular momentum
``m c x v + I w``. Both are linear in the parameters. The same map turns an acceleration into a force.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.regressors.sweep import Frames
from sysid_ros.core.regressors.vectors import cross, extend
from sysid_ros.core.regressors.workspace import Workspace

Array = NDArray[np.float64]

# Columns of the inertia (xx, xy, yy, xz, yz, zz), Pinocchio's order, as pairs of body axes.
INERTIA_AXES = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))


@dataclass(frozen=True)
class WrenchColumns:
    """Wrenches about the base origin in base axes, per inertial parameter.

    Attributes:
        moment: (m, 10, 3, N).
        force: (m, 4, 5, N); the inertia has none.
    """

    moment: Array
    force: Array


class BodyWrenches:
    """Evaluates wrench columns of selected bodies.

    Args:
        bodies: Bodies (0-based), a slice or an index array.
        workspace: Where the results live.
    """

    def __init__(self, bodies: slice | NDArray[np.intp], workspace: Workspace):
        self.bodies = bodies
        self.workspace = workspace

    def columns(self, frames: Frames, twists: Array, name: str) -> WrenchColumns:
        """Momentum columns of the bodies for motion vectors (n, 2, 5, N) (force columns for accelerations)."""
        rotation, origin = frames.rotation[self.bodies], frames.origin[self.bodies]
        angular, linear = twists[self.bodies, 0], twists[self.bodies, 1]
        m, samples = len(origin), origin.shape[-1]
        moment = self.workspace.array(name + " moment", m, 10, 3, samples)
        force = self.workspace.array(name + " force", m, 4, 5, samples)
        scratch = self.workspace.array("wrench scratch", 2, m, 4, 3, samples)

        velocity = force[:, 0]  # of the body frame's origin: the momentum of a unit mass
        cross(angular, origin, velocity[:, :3], scratch[0, :, 0])
        velocity[:, :3] += linear[:, :3]
        extend(velocity)
        cross(angular[:, None], rotation, force[:, 1:, :3], scratch[0, :, 1:])
        extend(force[:, 1:])
        cross(origin[:, None], force, moment[:, :4], scratch[0])
        moment[:, 1:4] += cross(rotation, velocity[:, None], scratch[1, :, 1:], scratch[0, :, 1:])
        self._inertia_columns(rotation, angular, moment[:, 4:])
        return WrenchColumns(moment, force)

    def gravity_moment(self, frames: Frames, gravity: Array) -> Array:
        """Moments of weight about the base origin per (m, m c), (m, 4, 3, N); a mass's force is ``gravity`` itself."""
        rotation, origin = frames.rotation[self.bodies], frames.origin[self.bodies]
        m, samples = len(origin), origin.shape[-1]
        field = np.append(gravity, gravity[:2])[:, None]
        moment = self.workspace.array("gravity moment", m, 4, 3, samples)
        scratch = self.workspace.array("wrench scratch", m, 4, 3, samples)
        cross(origin, field, moment[:, 0], scratch[:, 0])
        cross(rotation, field, moment[:, 1:], scratch[:, 1:])
        return moment

    def _inertia_columns(self, rotation: Array, angular: Array, out: Array) -> None:
        """Writes the angular momentum ``R I R^T w`` of unit inertias into ``out`` (m, 6, 3, N)."""
        m, samples = len(angular), angular.shape[-1]
        spin = self.workspace.array("spin", m, 3, samples)  # angular velocity in body axes
        np.einsum("ibat,iat->ibt", rotation[:, :, :3], angular[:, :3], out=spin)
        scratch = self.workspace.array("wrench scratch", m, 3, samples)
        for k, (b, c) in enumerate(INERTIA_AXES):
            column = out[:, k]
            np.multiply(rotation[:, b, :3], spin[:, c, None], out=column)
            if b != c:
                column += np.multiply(rotation[:, c, :3], spin[:, b, None], out=scratch)


def write_rows(motions: Array, out: Array) -> None:
    """Copies motion vectors (n, 2, 5, N) sample by sample into ``out`` (N, n, 6)."""
    for part in range(2):
        out[:, :, 3 * part : 3 * part + 3] = motions[:, part, :3].transpose(2, 0, 1)


def write_columns(columns: WrenchColumns, out: Array) -> None:
    """Copies wrench columns sample by sample into ``out`` (N, 6, m, 10), whose inertia forces are already zero."""
    out[:, :3] = columns.moment.transpose(3, 2, 0, 1)
    out[:, 3:, :, :4] = columns.force[:, :, :3].transpose(3, 2, 0, 1)
