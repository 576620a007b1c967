"""Kinematics and momentum of a floating tree, batched over samples; the momentum is linear in its inertial parameters.

Everything is seen from the base, in its axes and about its origin. Where the total momentum is zero, as before any
external impulse, the momentum model then needs neither the pose of the base nor its integration.

Source: SPACE sections 3 and 4.
"""

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

    Attributes:
        body_names: Names of the bodies: "base", then the names of the joints that move them, (B,).
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
        self._generations = _generations(self.parents)
        self._axis_joints = _AxisJoints(model)
        self._other_joints = sorted(set(range(self.count - 1)) - set(self._axis_joints.joints.tolist()))

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
        turns, shifts, joint_linear, joint_angular = self._joint_motions(positions, velocities)
        rotations = np.empty((samples, self.count, 3, 3))
        origins, linear, angular = (np.zeros((samples, self.count, 3)) for _ in range(3))
        rotations[:, 0] = np.eye(3)
        for bodies in self._generations:
            parents, joints = self.parents[bodies], bodies - 1
            turn = rotations[:, parents] @ turns[:, joints]
            arm = _turned(rotations[:, parents], shifts[:, joints])
            rotations[:, bodies] = turn
            origins[:, bodies] = origins[:, parents] + arm
            angular[:, bodies] = angular[:, parents] + _turned(turn, joint_angular[:, joints])
            own = _turned(turn, joint_linear[:, joints])
            linear[:, bodies] = linear[:, parents] + cross(angular[:, parents], arm) + own
        return BodyStates(rotations, origins, linear, angular)

    def _joint_motions(self, q: Array, v: Array) -> tuple[Array, Array, Array, Array]:
        """Return placements in the parents, (N, B - 1, 3, 3) and (N, B - 1, 3), and velocities that joints give bodies.

        Velocities are linear and angular, (N, B - 1, 3) each, in the axes of the moved bodies.
        """
        samples, simple = len(q), self._axis_joints
        turns = np.empty((samples, self.count - 1, 3, 3))
        shifts, linear, angular = (np.empty((samples, self.count - 1, 3)) for _ in range(3))
        position, rate = q[:, simple.q], v[:, simple.v, None]
        cosine, sine = np.cos(position), np.sin(position)
        # The unbounded joint has cosine and sine for its position.
        cosine[:, simple.unbounded] = position[:, simple.unbounded]
        sine[:, simple.unbounded] = q[:, simple.q[simple.unbounded] + 1]
        turns[:, simple.joints] = (
            simple.turns[0] + cosine[..., None, None] * simple.turns[1] + sine[..., None, None] * simple.turns[2]
        )
        shifts[:, simple.joints] = simple.shifts + position[..., None] * simple.slides_in_parent
        linear[:, simple.joints], angular[:, simple.joints] = rate * simple.slides, rate * simple.axes
        for index in self._other_joints:
            joint, placement = self.model.joints[index + 2], self.model.jointPlacements[index + 2]
            turn, shift, linear[:, index], angular[:, index] = _joint_motion(
                joint, q[:, joint.idx_q - 7 :][:, : joint.nq], v[:, joint.idx_v - 6 :][:, : joint.nv]
            )
            turns[:, index] = placement.rotation @ turn
            shifts[:, index] = placement.translation + shift @ placement.rotation.T
        return turns, shifts, linear, angular

    def _checked(self, name: str, values: ArrayLike, size: int) -> Array:
        array = np.asarray(values, dtype=float)
        if array.ndim != 2 or array.shape[1] != size:
            raise ParameterOutOfRange(f"the shape of {name}", array.shape, f"(N, {size}): the joints without the base")
        if not np.all(np.isfinite(array)):
            raise ParameterOutOfRange(name, "not finite", "finite numbers")
        return array


class _AxisJoints:
    """All revolute and prismatic joints of a tree, A of them, so that they are evaluated at once.

    Attributes:
        joints: Their indices, one less than the moved bodies' indices, (A,).
        q: Where their positions begin in all joint positions, (A,).
        v: Where their velocities are, (A,).
        unbounded: Which of them have cosine and sine for their position, indices among the A.
        axes: Axes of revolute ones in body axes, else zero, (A, 3).
        slides: Axes of prismatic ones, else zero, (A, 3).
        slides_in_parent: The same in the axes of the parents, (A, 3).
        shifts: Where the joints are in the parents, (A, 3) [m].
        turns: Rotations of the bodies in the parents: constant, with the cosine and with the sine, (3, A, 3, 3).
    """

    def __init__(self, model: pin.Model):
        found = [(k, joint_axis(model.joints[k + 2])) for k in range(model.njoints - 2)]
        chosen = [(k, axis) for k, axis in found if axis is not None]
        joints = [model.joints[k + 2] for k, _ in chosen]
        self.joints = np.array([k for k, _ in chosen], dtype=int)
        self.q = np.array([joint.idx_q - 7 for joint in joints], dtype=int)
        self.v = np.array([joint.idx_v - 6 for joint in joints], dtype=int)
        self.unbounded = np.flatnonzero([joint.nq == 2 for joint in joints])
        every = np.array([axis for _, axis in chosen]).reshape(-1, 3)
        is_sliding = np.array([joint.shortname().startswith("JointModelP") for joint in joints], dtype=bool)[:, None]
        self.axes, self.slides = np.where(is_sliding, 0.0, every), np.where(is_sliding, every, 0.0)
        placements = [model.jointPlacements[k + 2] for k, _ in chosen]
        rotations = np.array([placement.rotation for placement in placements]).reshape(-1, 3, 3)
        self.shifts = np.array([placement.translation for placement in placements]).reshape(-1, 3)
        self.slides_in_parent = np.einsum("aij,aj->ai", rotations, self.slides)
        along = every[:, :, None] * every[:, None]
        fixed = np.where(is_sliding[..., None], np.eye(3), along)
        self.turns = rotations @ np.stack([fixed, np.eye(3) - fixed, skew(self.axes)])


def _turned(rotations: Array, vectors: Array) -> Array:
    turned: Array = (rotations @ vectors[..., None])[..., 0]
    return turned


def _generations(parents: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Return the children of the base, then their children, and so on, each as an array of bodies."""
    depth = np.zeros(len(parents), dtype=int)
    for body in range(1, len(parents)):
        depth[body] = depth[parents[body]] + 1
    return [np.flatnonzero(depth == level) for level in range(1, int(depth.max()) + 1)]


def _joint_motion(joint: pin.JointModel, q: Array, v: Array) -> tuple[Array, Array, Array, Array]:
    """Return rotation (N, 3, 3), translation, linear and angular velocity (N, 3) of any joint, sample by sample.

    Velocities are in the axes of the moved body.
    """
    samples = len(q)
    turns, (shifts, linear, angular) = np.empty((samples, 3, 3)), np.zeros((3, samples, 3))
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


PARAMETERS = 10
"""Inertial parameters of a body, in Pinocchio's order."""
INERTIA_ENTRIES = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))
"""Rows and columns of the inertia matrix in that order."""
_FIRST, _SECOND = np.array(INERTIA_ENTRIES).T
_MIXED = np.flatnonzero(_FIRST != _SECOND)


def link_kinematic_matrices(states: BodyStates) -> Array:
    """Compute the matrices that turn the parameters of each body into its momentum.

    Args:
        states: Bodies with their absolute velocities, see :meth:`BodyStates.with_base_twist`.

    Returns:
        Matrices K_i, (N, B, 6, 10): momentum [linear, kg m/s; angular about the origin of the base, kg m^2/s] per
        parameter in Pinocchio's order.

    Source: SPACE (10).
    """
    turn, r, v, w = states.rotations, states.positions, states.linear, states.angular
    matrices = np.zeros((*r.shape[:2], 6, PARAMETERS))
    matrices[..., :3, 0], matrices[..., 3:, 0] = v, cross(r, v)
    spin = skew(w)
    matrices[..., :3, 1:4] = spin @ turn
    matrices[..., 3:, 1:4] = (skew(r) @ spin - skew(v)) @ turn
    rates = (w[..., None, :] @ turn)[..., 0, :]
    matrices[..., 3:, 4:] = turn[..., _FIRST] * rates[..., None, _SECOND]
    matrices[..., 3:, 4 + _MIXED] += turn[..., _SECOND[_MIXED]] * rates[..., None, _FIRST[_MIXED]]
    return matrices


def system_kinematic_matrix(tree: FloatingTree, q: ArrayLike, v: ArrayLike, base_twist: ArrayLike) -> Array:
    """Compute the matrix that turns the parameters of all bodies into the momentum of the robot.

    Args:
        tree: The robot.
        q: Joint positions, (N, nq) [rad, m].
        v: Joint velocities, (N, nv) [rad/s, m/s].
        base_twist: Linear and angular velocity of the base in its own axes, (N, 6) [m/s, rad/s].

    Returns:
        K, (N, 6, 10 B): momentum in the axes of the base and about its origin.

    Raises:
        ParameterOutOfRange: A shape is wrong or a number is not finite.

    Source: SPACE (11).
    """
    states = tree.evaluate(q, v)
    twist = np.asarray(base_twist, dtype=float)
    if twist.shape != (len(states.positions), 6) or not np.all(np.isfinite(twist)):
        raise ParameterOutOfRange(
            "base_twist",
            f"an array of shape {twist.shape}",
            f"({len(states.positions)}, 6) finite numbers [m/s, rad/s], one twist per sample",
        )
    matrices = link_kinematic_matrices(states.with_base_twist(twist))
    samples, bodies = matrices.shape[:2]
    return np.swapaxes(matrices, 1, 2).reshape(samples, 6, bodies * PARAMETERS)


def compute_base_twist(
    tree: FloatingTree, parameters: ArrayLike, q: ArrayLike, v: ArrayLike, momentum: ArrayLike = 0.0
) -> Array:
    """Compute the motion of the base that gives the robot a certain momentum.

    Args:
        tree: The robot.
        parameters: Inertial parameters of all bodies, (10 B,).
        q: Joint positions, (N, nq) [rad, m].
        v: Joint velocities, (N, nv) [rad/s, m/s].
        momentum: Momentum of everything in ``tree`` in the axes of the base and about its origin, (N, 6) [kg m/s, kg
            m^2/s]; the additional momentum of reaction wheels counts with the opposite sign.

    Returns:
        Twist of the base in its own axes, (N, 6) [m/s, rad/s].

    Raises:
        ParameterOutOfRange: A shape is wrong, or the parameters give the robot no positive definite inertia.
    """
    theta = np.asarray(parameters, dtype=float)
    if theta.shape != (PARAMETERS * tree.count,):
        raise ParameterOutOfRange("the shape of parameters", theta.shape, f"({PARAMETERS * tree.count},)")
    return solve_base_twist(tree.evaluate(q, v), theta, momentum)


def solve_base_twist(
    states: BodyStates, parameters: ArrayLike, momentum: ArrayLike = 0.0, inertia: Array | None = None
) -> Array:
    """Compute the same as :func:`compute_base_twist` from bodies as they move relative to the base.

    The composite inertia (N, 6, 6) need not be given.
    """
    theta = np.asarray(parameters, dtype=float)
    relative = compute_momentum(states, theta)
    inertia = composite_inertia(states, theta) if inertia is None else inertia
    try:
        np.linalg.cholesky(inertia)
    except np.linalg.LinAlgError:
        problem = "a composite inertia that is not positive definite"
        raise ParameterOutOfRange("parameters", problem, "physical bodies") from None
    missing: Array = np.asarray(momentum, dtype=float) - relative
    twist: NDArray[np.floating] = np.linalg.solve(inertia, missing[..., None])[..., 0]
    return twist.astype(float, copy=False)


def composite_inertia(states: BodyStates, parameters: ArrayLike) -> Array:
    """Compute the spatial inertia of the whole robot with its joints locked.

    Args:
        states: The bodies.
        parameters: Inertial parameters of all bodies, (10 B,).

    Returns:
        Inertia in the axes of the base and about its origin, linear before angular, (N, 6, 6).
    """
    turn, r = states.rotations, states.positions
    mass, moment, own = _body_parameters(states, parameters)
    weighted = mass[:, None] * r
    first = (weighted + moment).sum(axis=1)
    mixed = np.swapaxes(r, 1, 2) @ (0.5 * weighted + moment)
    shift = mixed + np.swapaxes(mixed, 1, 2)
    rotational = (turn @ own @ np.swapaxes(turn, -1, -2)).sum(axis=1)
    rotational += np.trace(shift, axis1=1, axis2=2)[:, None, None] * np.eye(3) - shift
    result = np.zeros((len(r), 6, 6))
    result[:, :3, :3] = mass.sum() * np.eye(3)
    moment_matrix = skew(first)
    result[:, 3:, :3], result[:, :3, 3:] = moment_matrix, -moment_matrix
    result[:, 3:, 3:] = rotational
    return result


def compute_momentum(states: BodyStates, parameters: ArrayLike) -> Array:
    """Compute the momentum of bodies as they move.

    Args:
        states: The bodies.
        parameters: Inertial parameters of all bodies, (10 B,).

    Returns:
        Momentum in the axes of the base and about its origin, (N, 6) [kg m/s, kg m^2/s].

    Source: SPACE (4), (8).
    """
    turn, r, v, w = states.rotations, states.positions, states.linear, states.angular
    mass, moment, own = _body_parameters(states, parameters)
    linear = mass[:, None] * v + cross(w, moment)
    spin = turn @ (own @ (np.swapaxes(turn, -1, -2) @ w[..., None]))
    angular = cross(r, linear) + cross(moment, v) + spin[..., 0]
    return np.concatenate([linear.sum(axis=1), angular.sum(axis=1)], axis=1)


def _body_parameters(states: BodyStates, parameters: ArrayLike) -> tuple[Array, Array, Array]:
    """Return masses (B,), first moments in the axes of the base (N, B, 3), and inertias in body axes."""
    theta = np.asarray(parameters, dtype=float).reshape(-1, PARAMETERS)
    xx, xy, yy, xz, yz, zz = theta[:, 4:].T
    own = np.moveaxis(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), -1, 0)
    return theta[:, 0], (states.rotations @ theta[:, 1:4, None])[..., 0], own
