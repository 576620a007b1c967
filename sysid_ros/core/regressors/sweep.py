"""Kinematics of a batch of samples in base axes: the outward sweep all regressors start with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.regressors.tree import JointTree
from sysid_ros.core.regressors.vectors import cross, extend, motion_cross
from sysid_ros.core.regressors.workspace import Workspace

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Frames:
    """Poses of the bodies and motion vectors of the joints (layout: see :mod:`vectors`).

    Attributes:
        rotation: Base components of the body axes, (n, 3, 5, N), entry [i, b] is axis b of body i.
        origin: Origins of the body frames, (n, 5, N) [m].
        axes: Motion vector of each joint per unit of its velocity, (n, 2, 5, N).
    """

    rotation: Array
    origin: Array
    axes: Array


class Sweep:
    """Evaluates kinematics of a tree for one chunk of samples at a time.

    Args:
        tree: The kinematic tree.
        workspace: Where the results live; they are overwritten by the next chunk.
    """

    def __init__(self, tree: JointTree, workspace: Workspace):
        self.tree = tree
        self.workspace = workspace

    def frames(self, q: Array) -> Frames:
        """Poses and joint axes for positions (N, n) [rad or m]."""
        n, samples = self.tree.n, len(q)
        pose = self.workspace.array("pose", n, 4, 5, samples)
        self._compose(self._relative_poses(q), pose)
        rotation, origin = pose[:, :3], pose[:, 3]

        axes = self.workspace.array("axes", n, 2, 5, samples)
        scratch = self.workspace.array("scratch", n, 2, 3, samples)
        angular, linear = axes[:, 0], axes[:, 1, :3]
        _rotate(rotation, self.tree.axis_angular, angular, self.workspace.array("scratch 5", n, 5, samples))
        cross(origin, angular, linear, scratch[:, 0])
        for b in np.flatnonzero(self.tree.axis_linear.any(axis=0)):
            linear += self.tree.axis_linear[:, b, None, None] * rotation[:, b, :3]
        extend(axes[:, 1])
        return Frames(rotation, origin, axes)

    def accumulate(self, axes: Array, rates: Array, name: str) -> Array:
        """Sums ``axes * rates`` from the base to each body: the bodies' twists if ``rates`` are joint velocities.

        Args:
            axes: Motion vectors of the joints, (n, 2, 5, N).
            rates: Their factors, (n, N).
            name: Name of the result's buffer.

        Returns:
            Motion vectors of the bodies, (n, 2, 5, N).
        """
        result = self.workspace.array(name, *axes.shape)
        np.multiply(axes, rates[:, None, None], out=result)
        for body, parent in enumerate(self.tree.parents):
            if parent >= 0:
                result[body] += result[parent]
        return result

    def axis_rates(self, twists: Array, axes: Array, name: str) -> Array:
        """Motion vectors ``V_j x s_j`` (n, 2, 5, N): how the joint axes move.

        Seen from any body i beyond joint j, the derivative of its twist is ``d V_i / d q_j = V_j x s_j``.
        """
        scratch = self.workspace.array("scratch", *axes.shape[:2], 3, axes.shape[-1])
        return motion_cross(twists, axes, self.workspace.array(name, *axes.shape), scratch)

    def _relative_poses(self, q: Array) -> Array:
        """Poses of the bodies in their parents, (n, 4, 3, N): three rotation columns and the position."""
        n, samples = self.tree.n, len(q)
        basis = self.workspace.array("pose basis", n, 4, samples)
        basis[:, 0] = 1.0
        np.cos(q.T, out=basis[:, 1])
        np.sin(q.T, out=basis[:, 2])
        basis[:, 3] = q.T
        relative = self.workspace.array("relative pose", n, 12, samples)
        np.matmul(self.tree.pose_terms, basis, out=relative)
        return relative.reshape(n, 4, 3, samples)

    def _compose(self, relative: Array, pose: Array) -> None:
        """Chains relative poses (n, 4, 3, N) to poses in the base (n, 4, 5, N)."""
        scratch = self.workspace.array("scratch pose", *relative.shape[1:])
        for body, parent in enumerate(self.tree.parents):
            out = pose[body, :, :3]
            if parent < 0:
                out[...] = relative[body]
                continue
            before = pose[parent, :, :3]
            np.multiply(before[0], relative[body, :, :1], out=out)
            for b in (1, 2):
                out += np.multiply(before[b], relative[body, :, b : b + 1], out=scratch)
            out[3] += before[3]
        extend(pose)


def _rotate(rotation: Array, vectors: Array, out: Array, scratch: Array) -> None:
    """Writes constant body vectors (n, 3) in base axes into ``out`` (n, 5, N)."""
    used = np.flatnonzero(vectors.any(axis=0))
    out[...] = 0.0
    for b in used:
        out += np.multiply(rotation[:, b], vectors[:, b, None, None], out=scratch)
