"""Inertias of bodies and subtrees for given parameters, many samples at once, in base axes about the base origin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.inertia import inertia_matrix
from sysid_ros.core.model.robot import INERTIAL
from sysid_ros.core.regressors.sweep import Frames
from sysid_ros.core.regressors.vectors import cross, extend

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Inertias:
    """Inertia of each body, or of each subtree, about the base origin (layout: see :mod:`vectors`).

    Attributes:
        mass: (n,) [kg].
        first: First moment of mass, (n, 5, N) [kg m].
        second: Rotational inertia, (n, 3, 3, N) [kg m^2].
    """

    mass: Array
    first: Array
    second: Array

    def apply(self, motions: Array) -> Array:
        """Returns the momenta (n, 2, 5, N), moment then force, of the motion vectors (n, 2, 5, N)."""
        result, scratch = np.empty_like(motions), np.empty_like(motions[:, 0, :3])
        angular, linear = motions[:, 0], motions[:, 1]
        cross(self.first, linear, result[:, 0, :3], scratch)
        result[:, 0, :3] += np.einsum("iabt,ibt->iat", self.second, angular[:, :3])
        cross(angular, self.first, result[:, 1, :3], scratch)
        result[:, 1, :3] += self.mass[:, None, None] * linear[:, :3]
        return extend(result)

    def of_subtrees(self, parents: tuple[int, ...]) -> Inertias:
        """Returns the inertia of each body together with all bodies beyond it."""
        return Inertias(*(sum_subtrees(values, parents) for values in (self.mass, self.first, self.second)))


def body_inertias(theta: Array, frames: Frames) -> Inertias:
    """Expresses the bodies' inertias in the base.

    Args:
        theta: Inertial parameters, (10 n,) or longer.
        frames: Poses of the bodies for N samples.

    Returns:
        Inertias of the n bodies.

    Source: parallel axes for any first moment ``c`` about the body's origin ``p``:
    ``R I R^T + 2 (p . c) 1 - c p^T - p c^T + m ((p . p) 1 - p p^T)``.
    """
    n, samples = len(frames.origin), frames.origin.shape[-1]
    parameters = theta[: INERTIAL * n].reshape(n, INERTIAL)
    mass, rotation, origin = parameters[:, 0], frames.rotation[:, :, :3], frames.origin[:, :3]
    moment = np.einsum("ibat,ib->iat", rotation, parameters[:, 1:4])  # about the body's origin
    first = np.empty((n, 5, samples))
    np.add(moment, mass[:, None, None] * origin, out=first[:, :3])

    about_body = np.stack([inertia_matrix(values) for values in parameters])
    second = np.einsum("ibat,ibdt->iadt", rotation, np.einsum("ibc,icdt->ibdt", about_body, rotation))
    product = (moment + 0.5 * mass[:, None, None] * origin)[:, :, None] * origin[:, None]
    second -= product + product.transpose(0, 2, 1, 3)
    trace = 2.0 * np.einsum("iaat->it", product)
    second += np.eye(3)[:, :, None] * trace[:, None, None]
    return Inertias(mass, extend(first), second)


def sum_subtrees(values: Array, parents: tuple[int, ...]) -> Array:
    """Adds to the entry of each body, along the first axis, the entries of all bodies beyond it."""
    result = values.copy()
    for body in reversed(range(len(parents))):
        if parents[body] >= 0:
            result[parents[body]] += result[body]
    return result
