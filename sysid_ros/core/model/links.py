"""Poses of the links of an arm relative to each other, as in tf."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LinkPose:
    """Pose of a link in another one.

    Attributes:
        parent: Link in whose frame the pose is.
        child: The link.
        rotation: (3, 3).
        translation: (3,) [m].
    """

    parent: str
    child: str
    rotation: Array
    translation: Array


class LinkTree:
    """The links of an arm: one for each body, at its joint, and the links fixed to them; one per thread.

    Attributes:
        bodies: Link with the frame of the joint, for the base (0) and the bodies 1..n.
        fixed: Poses of all other links in those.
    """

    def __init__(self, model: pin.Model):
        self._model, self._data = model, model.createData()
        links = [frame for frame in model.frames if frame.type == pin.FrameType.BODY]
        at_joint: dict[int, str] = {}
        for frame in links:
            if frame.placement.isIdentity(1e-12):
                at_joint.setdefault(frame.parentJoint, frame.name)
        self.bodies = tuple(at_joint[body] for body in range(model.njoints))
        self.fixed = tuple(
            LinkPose(
                self.bodies[frame.parentJoint],
                frame.name,
                np.array(frame.placement.rotation),
                np.array(frame.placement.translation),
            )
            for frame in links
            if frame.name not in self.bodies
        )

    def moving(self, q: ArrayLike) -> list[LinkPose]:
        """Compute the pose of each body's link in the link of the body before it, at positions q (n,) [rad]."""
        # Joints without limits may have two numbers for one angle.
        angles = pin.integrate(self._model, pin.neutral(self._model), np.asarray(q, dtype=float))
        pin.forwardKinematics(self._model, self._data, angles)
        poses = []
        for body in range(1, self._model.njoints):
            place = self._data.liMi[body]
            parent = self.bodies[self._model.parents[body]]
            poses.append(LinkPose(parent, self.bodies[body], np.array(place.rotation), np.array(place.translation)))
        return poses
