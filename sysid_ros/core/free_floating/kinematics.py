"""Kinematics of a floating tree relative to its base, batched over samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.common.spatial import cross, skew

Array = NDArray[np.float64]

_AXES = {"X": 0, "Y": 1, "Z": 2}


@dataclass(frozen=True)
class BodyStates:
    """Bodies of a floating tree at N samples, seen from the base and in its axes; body 0 is the base.

    Attributes:
        rotations: Axes of the bodies, (N, B, 3, 3).
        positions: Origins of the bodies, (N, B, 3) [m].
        linear: Velocities of the origins relative to the base, (N, B, 3) [m/s].
        angular: Angular velocities relative to the base, (N, B, 3) [rad/s].
    """

    rotations: Array
    positions: Array
    linear: Array
    angular: Array

    def with_base_twist(self, twist: ArrayLike) -> BodyStates:
        """Return the same bodies with their absolute velocities.

        Args:
            twist: Linear and angular velocity of the base in its own axes, (N, 6) or (6,) [m/s, rad/s].
        """
        base = np.broadcast_to(np.asarray(twist, dtype=float), (len(self.positions), 6))[:, None]
        linear = self.linear + base[..., :3] + cross(base[..., 3:], self.positions)
        return BodyStates(self.rotations, self.positions, linear, self.angular + base[..., 3:])


class FloatingTree:
    """A kinematic tree whose root moves freely.

    Args:
        model: Pinocchio model whose first joint is a free flyer; every other body descends from it.

    Attributes:
        body_names: Names of the bodies: "base", then those of the joints that move them, (B,).
        nq: Size of the joint positions, the base left out [-].
        nv: Size of the joint velocities, the base left out [-].

    Raises:
        ModelError: The root does not float, or there is more than one root.
    """

    def __init__(self, model: pin.Model):
        kind = model.joints[1].shortname() if model.njoints > 1 else "nothing"
        if kind != "JointModelFreeFlyer":
            raise ModelError(
                f"the first joint of '{model.name}' is {kind}; a floating robot needs a free flyer "
                "(pinocchio.JointModelFreeFlyer) as the root of its model"
            )
        roots = [model.names[i] for i in range(2, model.njoints) if model.parents[i] == 0]
        if roots:
            raise ModelError(
                f"'{model.name}' has bodies that do not descend from the floating base: {', '.join(roots)}"
            )
        self.model = model
        self.body_names = ("base", *(model.names[i] for i in range(2, model.njoints)))
        self.nq, self.nv = model.nq - 7, model.nv - 6
        self.parents = np.array([-1, *(int(model.parents[i]) - 1 for i in range(2, model.njoints))])

    @property
    def count(self) -> int:
        """Number of bodies, the base included [-]."""
        return len(self.body_names)

    @property
    def parameters(self) -> Array:
        """Inertial parameters of the bodies as modelled, in Pinocchio's order, (10 B,)."""
        return np.concatenate([self.model.inertias[i].toDynamicParameters() for i in range(1, self.model.njoints)])

    def evaluate(self, q: ArrayLike, v: ArrayLike) -> BodyStates:
        """Compute the states of the bodies relative to the base.

        Args:
            q: Joint positions, (N, nq) [rad, m].
            v: Joint velocities, (N, nv) [rad/s, m/s].

        Raises:
            ParameterOutOfRange: A shape is wrong or a number is not finite.
        """
        positions, velocities = self._checked("q", q, self.nq), self._checked("v", v, self.nv)
        if len(positions) != len(velocities):
            raise ParameterOutOfRange("v", f"{len(velocities)} samples", f"{len(positions)}, as many as of q")
        samples = len(positions)
        rotations = np.empty((samples, self.count, 3, 3))
        origins, linear, angular = (np.zeros((samples, self.count, 3)) for _ in range(3))
        rotations[:, 0] = np.eye(3)
        for body in range(1, self.count):
            joint, parent = self.model.joints[body + 1], self.parents[body]
            placement = self.model.jointPlacements[body + 1]
            part_q = positions[:, joint.idx_q - 7 : joint.idx_q - 7 + joint.nq]
            part_v = velocities[:, joint.idx_v - 6 : joint.idx_v - 6 + joint.nv]
            turn, shift, joint_linear, joint_angular = _joint_motion(joint, part_q, part_v)
            # From the parent to the joint's fixed frame, and on to the body; joint velocities are in the body's axes.
            local_turn = placement.rotation @ turn
            local_shift = placement.translation + shift @ placement.rotation.T
            rotations[:, body] = rotations[:, parent] @ local_turn
            arm = np.einsum("nij,nj->ni", rotations[:, parent], local_shift)
            origins[:, body] = origins[:, parent] + arm
            angular[:, body] = angular[:, parent] + np.einsum("nij,nj->ni", rotations[:, body], joint_angular)
            own = np.einsum("nij,nj->ni", rotations[:, body], joint_linear)
            linear[:, body] = linear[:, parent] + cross(angular[:, parent], arm) + own
        return BodyStates(rotations, origins, linear, angular)

    def _checked(self, name: str, values: ArrayLike, size: int) -> Array:
        array = np.asarray(values, dtype=float)
        if array.ndim != 2 or array.shape[1] != size:
            raise ParameterOutOfRange(f"the shape of {name}", array.shape, f"(N, {size}): the joints without the base")
        if not np.all(np.isfinite(array)):
            raise ParameterOutOfRange(name, "not finite", "finite numbers")
        return array


def _joint_motion(joint: pin.JointModel, q: Array, v: Array) -> tuple[Array, Array, Array, Array]:
    """Return rotation (N, 3, 3), translation, linear and angular velocity (N, 3) of a joint at N samples.

    Velocities are in the axes of the moved body. Revolute and prismatic joints are batched, others go one by one.
    """
    samples, kind = len(q), joint.shortname()
    axis = joint_axis(joint)
    zeros = np.zeros((samples, 3))
    if axis is not None and kind.startswith("JointModelP"):
        return np.broadcast_to(np.eye(3), (samples, 3, 3)), q * axis, v * axis, zeros
    if axis is not None:
        # The unbounded joint has cosine and sine for its position.
        cosine, sine = (q[:, 0], q[:, 1]) if joint.nq == 2 else (np.cos(q[:, 0]), np.sin(q[:, 0]))
        turn = np.outer(axis, axis) + cosine[:, None, None] * (np.eye(3) - np.outer(axis, axis))
        return turn + sine[:, None, None] * skew(axis), zeros, zeros, v * axis
    turns, shifts, linear, angular = np.empty((samples, 3, 3)), zeros.copy(), zeros.copy(), zeros.copy()
    single = pin.Model()
    single.addJoint(0, joint, pin.SE3.Identity(), "joint")
    data = single.createData()
    for k in range(samples):
        pin.forwardKinematics(single, data, np.ascontiguousarray(q[k]), np.ascontiguousarray(v[k]))
        turns[k], shifts[k] = data.oMi[1].rotation, data.oMi[1].translation
        linear[k], angular[k] = data.v[1].linear, data.v[1].angular
    return turns, shifts, linear, angular


def joint_axis(joint: pin.JointModel) -> Array | None:
    """Return the axis (3,) of a revolute or prismatic joint in its own frame; None for every other joint."""
    kind = joint.shortname()
    if kind in ("JointModelRevoluteUnaligned", "JointModelPrismaticUnaligned"):
        return np.array(joint.extract().axis, dtype=float)
    if kind.startswith(("JointModelR", "JointModelP")) and kind[-1] in _AXES:
        aligned: Array = np.eye(3)[_AXES[kind[-1]]]
        return aligned
    return None
