"""Places of the bodies and of the tool in the base frame."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.model.robot import RobotModel, tool_transform

Array = NDArray[np.float64]


def joint_axis(model: pin.Model, joint: int) -> Array:
    """Return the axis of a revolute joint in its own frame, (3,)."""
    data = model.joints[joint].createData()
    model.joints[joint].calc(data, np.zeros(model.nq))
    return np.array(data.S[3:]).reshape(3)


class BodyPoses:
    """Forward kinematics of one robot; keeps Pinocchio's workspace, so use one per thread.

    Args:
        robot: The robot.
    """

    def __init__(self, robot: RobotModel):
        self._model = robot.pin_model
        self._data = robot.pin_model.createData()
        _, self._tool = tool_transform(robot)

    def compute(self, q: ArrayLike) -> tuple[Array, Array]:
        """Compute the poses of the base (0) and of the bodies 1..n in the base frame.

        Args:
            q: Joint positions, (n,) [rad].

        Returns:
            Rotations, (n + 1, 3, 3), and origins, (n + 1, 3) [m].
        """
        pin.forwardKinematics(self._model, self._data, np.asarray(q, dtype=float))
        placements = self._data.oMi
        return np.array([m.rotation for m in placements]), np.array([m.translation for m in placements])

    def tool_path(self, positions: ArrayLike) -> Array:
        """Compute the origin of the tool frame in the base frame.

        Args:
            positions: Joint positions, (N, n) [rad].

        Returns:
            Points, (N, 3) [m].
        """
        points = []
        for q in np.asarray(positions, dtype=float):
            rotations, origins = self.compute(q)
            points.append(origins[-1] + rotations[-1] @ self._tool)
        return np.array(points).reshape(-1, 3)
