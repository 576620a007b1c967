"""Rows of the momentum equation with a bound of their errors.

``K(q, v) theta + h = P`` holds for true positions and velocities, not for measured ones. Each sample, or the mean of a
block of samples, gives six rows ``y x + b delta + v eta = r + e`` of the linear programs of ``estimation.lp``: the
target x, other unknowns that all rows share (delta: the rest of the robot, the momentum, the wheels), the errors of the
velocities of this sample (eta), and all other errors (e). docs/theory/free_floating.md derives it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.space.core.measurements import FloatingData, Recording
from sysid_ros.space.core.minimal_parameters import momentum_columns, unit_momenta
from sysid_ros.space.core.momentum import PARAMETERS, BodyStates, FloatingTree, joint_axis
from sysid_ros.space.core.robot import FreeFlyer

Array = NDArray[np.float64]

ERROR_TERMS = ("velocity", "position", "wheels", "pose", "disturbance", "rounding")
"""Terms of the error budget of a row, in the order of its columns."""
ROWS = 6
"""Rows of a sample: linear, then angular momentum in the axes of the base and about its origin."""
_CHUNK = 192
"""Samples that are evaluated at once."""
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Unknowns:
    """Inertial parameters that are not known exactly.

    Attributes:
        matrix: Their effect on the parameters of the tree, (10 B, U).
        box: Box that holds them, (U,).
        target: Number of them, the first ones, that are the target.
    """

    matrix: Array
    box: Box
    target: int


def build_problem(robot: FreeFlyer, unknowns: Unknowns, recordings: list[Recording]) -> Problem:
    """Build the rows of all recordings, centred on the box of the unknowns.

    Raises:
        ParameterOutOfRange: There is no recording, or one is shorter than its block.
    """
    if not recordings:
        raise ParameterOutOfRange("recordings", 0, "one or more")
    target, center, radius = unknowns.target, unknowns.box.center, unknowns.box.radius
    parts = [_RecordingRows(robot, unknowns, recording) for recording in recordings]
    wheel_size = max(recording.sensors.wheel_inertia for recording in recordings)
    widths = [part.momentum.shape[2] for part in parts]
    rows = [len(part.regressor) * ROWS for part in parts]
    extra = np.zeros((sum(rows), sum(widths)))
    for k, part in enumerate(parts):
        row, column = sum(rows[:k]), sum(widths[:k])
        extra[row : row + rows[k], column : column + widths[k]] = part.momentum.reshape(rows[k], -1)
    regressor = np.concatenate([part.regressor.reshape(-1, radius.size) for part in parts])
    wheels = np.concatenate([part.wheels.reshape(-1, robot.wheels.count) for part in parts])
    gains = np.concatenate([part.gains.reshape(-1, 6 + robot.n) for part in parts])
    instants = np.repeat(np.arange(len(gains) // ROWS), ROWS)
    return Problem(
        center=center[:target],
        radius=radius[:target],
        y=regressor[:, :target],
        b=np.concatenate([regressor[:, target:], wheels, extra], axis=1),
        delta_radius=np.concatenate(
            [radius[target:], np.full(robot.wheels.count, wheel_size), *(part.momentum_radius for part in parts)]
        ),
        # All errors of a sample belong to the end of its rows; their start has none.
        ends=np.stack([np.zeros_like(gains), gains], axis=1),
        end_index=np.stack([instants, instants + 1], axis=1),
        end_radius=np.ones(6 + robot.n),
        r=np.concatenate([part.right.reshape(-1) for part in parts]),
        errors=np.concatenate([part.errors.reshape(-1, len(ERROR_TERMS)) for part in parts]),
        theta_size=np.abs(center[:target]) + radius[:target],
        joints=ROWS,
        objectives=np.eye(target),
        end_term=np.zeros(6 + robot.n, dtype=np.int64),
    )


def position_derivatives(tree: FloatingTree, states: BodyStates, units: Array, regressor: Array) -> Array:
    """Compute the derivatives of the system kinematic matrix along the joint positions, velocities fixed.

    Args:
        tree: The robot; its joints are revolute or prismatic.
        states: Bodies with their absolute velocities.
        units: Momentum matrices of unit velocities, (N, 6 + n, 6, 10 B).
        regressor: System kinematic matrix, (N, 6, 10 B).

    Returns:
        Derivatives, (N, n, 6, 10 B).
    """
    result = np.zeros((len(regressor), tree.count - 1, ROWS, regressor.shape[2]))
    origin_velocity = states.linear - np.cross(states.angular, states.positions)
    for body in range(1, tree.count):
        axis = joint_axis(tree.model.joints[body + 1])
        if axis is None:
            raise ParameterOutOfRange(f"joint '{tree.body_names[body]}'", "several degrees of freedom", "one")
        direction, parent = states.rotations[:, body] @ axis, tree.parents[body]
        if tree.model.joints[body + 1].shortname().startswith("JointModelP"):
            linear, angular = direction, np.zeros_like(direction)
        else:
            linear, angular = np.cross(states.positions[:, body], direction), direction
        moved = np.repeat(_descendants(tree)[body], PARAMETERS)
        own = regressor[:, :, moved]
        change = np.concatenate(
            [
                np.cross(angular[:, :, None], own[:, :3], axis=1),
                np.cross(angular[:, :, None], own[:, 3:], axis=1) + np.cross(linear[:, :, None], own[:, :3], axis=1),
            ],
            axis=1,
        )
        # The part of the parent's motion does not turn with the moved bodies.
        carried = np.concatenate(
            [
                np.cross(angular, origin_velocity[:, parent]) + np.cross(linear, states.angular[:, parent]),
                np.cross(angular, states.angular[:, parent]),
            ],
            axis=1,
        )
        change -= np.einsum("nc,nciu->niu", carried, units[:, :6][..., moved])
        result[:, body - 1, :, moved] = np.moveaxis(change, 2, 0)
    return result


class _RecordingRows:
    """Rows of one recording, G of them times six.

    Attributes:
        regressor: (G, 6, U).
        right: r, (G, 6).
        gains: Gains of the errors of the velocities in units of their bounds, (G, 6, 6 + n).
        wheels: Part of each wheel's momentum, (G, 6, W).
        momentum: Columns of the momentum and of external impulses, (G, 6, k).
        momentum_radius: Their radii, (k,).
        errors: (G, 6, terms).
    """

    def __init__(self, robot: FreeFlyer, unknowns: Unknowns, recording: Recording):
        self._robot, self._unknowns, self._recording = robot, unknowns, recording
        block, count = recording.block, len(recording.data)
        if not 1 <= block <= count:
            raise ParameterOutOfRange("block [samples]", block, f"1 to {count}, the length of the recording")
        self._joint_error = np.broadcast_to(recording.sensors.joint_position, (count, robot.n))
        used = count - count % block
        ends = [*range(0, used, block * max(1, _CHUNK // block)), used]
        if len(ends) > 2 and ends[-1] - ends[-2] == 1:  # samples come at least in pairs
            del ends[-2]
        pieces = [self._evaluate(slice(begin, end)) for begin, end in itertools.pairwise(ends)]
        self.regressor, self.gains, kinematic_errors = (
            np.concatenate([piece[k] for piece in pieces]) for k in range(3)
        )
        data = recording.data.select(slice(0, used))
        turning = (
            data.wheel_rates[:, None]
            * robot.wheels.inertias
            * np.concatenate([np.zeros((3, robot.wheels.count)), robot.wheels.axes.T])
        )
        self.wheels = self._mean(turning)
        columns, self.momentum_radius, momentum_errors = self._momentum(data)
        self.momentum = -self._mean(columns)
        self.right = -self.wheels.sum(axis=2) - self.momentum[..., :6] @ recording.momentum.initial.center
        self.right = self.right - self.regressor @ unknowns.box.center
        self.errors = np.concatenate([kinematic_errors[..., :2], self._wheel_errors(), momentum_errors], axis=2)
        rounding = kinematic_errors[..., 2:] + _ROUNDING * np.abs(self.wheels).sum(axis=2)[..., None]
        self.errors = np.concatenate([self.errors, rounding], axis=2)

    def _mean(self, values: Array) -> Array:
        mean: Array = values.reshape(-1, self._recording.block, *values.shape[1:]).mean(axis=1)
        return mean

    def _evaluate(self, part: slice) -> tuple[Array, Array, Array]:
        """Return regressor, gains and the errors by velocities, positions and rounding of some blocks."""
        robot, sensors, block = self._robot, self._recording.sensors, self._recording.block
        data, matrix = self._recording.data.select(part), self._unknowns.matrix
        center, radius = self._unknowns.box.center, self._unknowns.box.radius
        single, mean = (sensors.velocity(robot.n, of_means) for of_means in (False, block > 1))
        units = unit_momenta(robot.tree, data.q)
        whole = np.einsum("nk,nkiu->niu", data.velocities, units)
        states = robot.tree.evaluate(data.q, data.v).with_base_twist(data.base_twist)
        slopes = position_derivatives(robot.tree, states, units, whole) @ matrix
        units, regressor = units @ matrix, whole @ matrix
        if not self._recording.holds_object:
            for array in (slopes, units, regressor):
                array[..., : self._unknowns.target] = 0.0
        mean_units = self._mean(units)
        spread = units - np.repeat(mean_units, block, axis=0)
        velocity = self._mean(np.einsum("k,nki->ni", single, np.abs(spread @ center) + np.abs(spread) @ radius))
        velocity += np.einsum("k,gki->gi", mean, np.abs(mean_units) @ radius)
        position = np.einsum("nj,nji->ni", self._joint_error[part], np.abs(slopes @ center) + np.abs(slopes) @ radius)
        second, mixed, size = self._remainders(data, self._joint_error[part], single)
        errors = np.stack(
            [velocity + self._mean(mixed), self._mean(position + second), _ROUNDING * self._mean(size)], 2
        )
        gains = np.swapaxes(mean_units @ center, 1, 2) * mean
        return self._mean(regressor), gains, errors

    def _remainders(self, data: FloatingData, joint_error: Array, velocity_error: Array) -> tuple[Array, Array, Array]:
        """Return the second-order effect of position errors, alone and with velocity errors, and sizes, (N, 6) each.

        Every point of a body is ``a + Z y`` with y in its frame, ``|Z| <= 1``, ``|a|`` at most the length of its chain;
        so are its derivatives along revolute joints. Integrals of products follow from mass and moments.
        """
        tree = self._robot.tree
        largest = np.abs(self._unknowns.box.center) + self._unknowns.box.radius
        sizes = (np.abs(self._unknowns.matrix) @ largest).reshape(tree.count, PARAMETERS)
        mass, first = sizes[:, 0], np.linalg.norm(sizes[:, 1:4], axis=1)
        second = 1.5 * sizes[:, [4, 6, 9]].sum(axis=1) + 2.0 * sizes[:, [5, 7, 8]].sum(axis=1)
        ancestors = np.array(_descendants(tree))[1:].T.astype(float)  # (B, n)
        sliding = np.array(
            [tree.model.joints[k + 1].shortname().startswith("JointModelP") for k in range(1, tree.count)]
        )
        lengths = np.array(
            [np.linalg.norm(tree.model.jointPlacements[k + 1].translation) for k in range(1, tree.count)]
        )
        reach = (lengths + sliding * (np.abs(data.q) + joint_error)) @ ancestors.T
        reach = np.maximum(reach, (ancestors @ sliding > 0.0).astype(float))

        def moments(base: Array, joints: Array) -> tuple[Array, Array, Array]:
            """Bound linear and angular momentum, and the part of the linear one that depends on the positions."""
            turning = np.linalg.norm(base[:, 3:], axis=1)[:, None] + np.abs(joints) @ ancestors.T
            speed = np.linalg.norm(base[:, :3], axis=1)[:, None] + turning * reach
            angular = mass * reach * speed + first * (reach * turning + speed) + second * turning
            return mass * speed + first * turning, angular, mass * turning * reach + first * turning

        linear, angular, varying = moments(data.base_twist, data.v)
        error = np.broadcast_to(velocity_error, (len(data), velocity_error.size))
        _, angular_error, varying_error = moments(error[:, :6], error[:, 6:])
        shift = joint_error @ ancestors.T
        both = [0.5 * shift**2 * varying, 2.0 * shift**2 * angular]
        mixed = [shift * varying_error, 2.0 * shift * angular_error]
        pairs = (both, mixed, [linear, angular])
        found = [np.repeat(np.stack([part.sum(axis=1) for part in pair], axis=1), 3, axis=1) for pair in pairs]
        return found[0], found[1], found[2]

    def _wheel_errors(self) -> Array:
        wheels, sensors = self._robot.wheels, self._recording.sensors
        size = np.abs(wheels.axes.T) @ wheels.inertias * sensors.wheel_rate * (1.0 + sensors.wheel_inertia)
        return np.broadcast_to(np.concatenate([np.zeros(3), size])[:, None], (len(self.wheels), ROWS, 1))

    def _momentum(self, data: FloatingData) -> tuple[Array, Array, Array]:
        """Return columns of the momentum, their radii, and the errors by pose and disturbance."""
        known, sensors = self._recording.momentum, self._recording.sensors
        columns, radii = [momentum_columns(data.rotations, data.positions)], [known.initial.radius]
        elapsed = data.times - data.times[0]
        strength = np.repeat([known.force, known.torque], 3)
        deviation = np.zeros(len(data))
        if np.any(strength > 0.0):
            length = elapsed[-1] / known.knots
            for knot in range(known.knots):
                share = np.clip(elapsed / length - knot, 0.0, 1.0)
                # An integral with slopes within 1 leaves the line between two of its values by this at most.
                deviation += 2.0 * length * share * (1.0 - share)
                columns.append(columns[0] * share[:, None, None])
                radii.append(strength * length)
        largest = np.maximum(np.abs(known.initial.lower), np.abs(known.initial.upper))
        linear, angular = (
            np.linalg.norm(largest[part]) + np.sqrt(3.0) * size * elapsed
            for part, size in ((slice(0, 3), known.force), (slice(3, 6), known.torque))
        )
        away = np.linalg.norm(data.positions, axis=1)
        tilt, shift = (
            np.broadcast_to(size, len(self._joint_error))[: len(data)] for size in (sensors.attitude, sensors.place)
        )
        pose = np.stack([tilt * linear, tilt * (angular + (away + shift) * linear) + shift * linear], axis=1)
        outside = (
            np.sqrt(3.0)
            * deviation[:, None]
            * np.stack([np.full(len(data), known.force), known.torque + (away + shift) * known.force], axis=1)
        )
        errors = np.repeat(np.stack([self._mean(pose), self._mean(outside)], axis=2), 3, axis=1)
        return np.concatenate(columns, axis=2), np.concatenate(radii), errors


def _descendants(tree: FloatingTree) -> list[Array]:
    """Return for each body which bodies move with it, itself included, (B,) each."""
    result = [np.zeros(tree.count, dtype=bool) for _ in range(tree.count)]
    for body in range(tree.count):
        above = body
        while above >= 0:
            result[above][body] = True
            above = int(tree.parents[above])
    return result
