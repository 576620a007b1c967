"""The checks of a plan over pieces of its time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.box import Box
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.clearance import build_scene_model
from sysid_ros.core.planning.motion_checks import STOP_ERRORS, stop_torque_shape, stop_velocity_errors
from sysid_ros.core.planning.scene import Scene
from sysid_ros.core.planning.verifier.chain import Motion
from sysid_ros.core.planning.verifier.distance import SphereBounds
from sysid_ros.core.planning.verifier.path import PathPieces, bounds
from sysid_ros.core.planning.verifier.refine import Check
from sysid_ros.core.planning.verifier.settings import VerifierSettings
from sysid_ros.core.planning.verifier.stops import stop_corners
from sysid_ros.core.planning.verifier.torque import TorqueBounds, spread_parameters

Array = NDArray[np.float64]

BRAKING = "braking torque"


class MotionChecks:
    """Margins of a plan over pieces of its time, and of the stops along it where the settings name brake times.

    A stop passes the same positions, but errors may be larger in it, by ``STOP_ERRORS`` and ``stop_torque_growths``.

    Args:
        robot: The arm.
        boxes: Boxes of the arm's parameters (14 n,) and of the payload's (10,).
        position_error: Largest position errors, (n,) [rad].
        velocity_error: Largest velocity errors, (n,) [rad/s].
        torque_error: Largest torque errors, (n,) [Nm].
        scene: What surrounds the arm.
        settings: What may be used.
    """

    def __init__(
        self,
        robot: RobotModel,
        boxes: tuple[Box, Box],
        position_error: Array,
        velocity_error: Array,
        torque_error: Array,
        scene: Scene,
        settings: VerifierSettings,
    ):
        self._limits = robot.limits
        self._names = [f"joint '{name}'" for name in robot.joint_names]
        if settings.brake_times:
            position_error = STOP_ERRORS * position_error
            velocity_error = stop_velocity_errors(velocity_error, robot.limits.v_max)
        self._position_error, self._velocity_error, self._torque_error = position_error, velocity_error, torque_error
        self._spread = spread_parameters(robot, boxes)
        self._spheres = SphereBounds(robot, build_scene_model(robot, scene), self._position_error)
        self._clearance = scene.clearance
        self._settings = settings
        self._tau = settings.torque_fraction * robot.limits.tau_max

    def limits(self, path: PathPieces) -> list[Check]:
        """Position, velocity and acceleration limits."""
        rates = (
            ("velocity", "rad/s", path.velocity, self._velocity_error, self._limits.v_max),
            ("acceleration", "rad/s^2", path.acceleration, np.zeros_like(self._velocity_error), self._limits.a_max),
        )
        return [self._positions(path), *(self._rates(*arguments) for arguments in rates)]

    def torques(self, motion: Motion) -> TorqueBounds:
        """Worst-case torques over the pieces."""
        return TorqueBounds(self._spread, motion)

    def motion_torque(self, torques: TorqueBounds) -> list[Check]:
        """Torque limits of the plan itself."""
        return [self._torque("torque", *torques.evaluate(1.0, 1.0, 0.0))]

    def stop_torque(self, torques: TorqueBounds, brake_time: float, growths: Array) -> list[Check]:
        """Torque limits of stops that pass the pieces at any share of their progress.

        The torque is convex in (r, r^2, d) and the growth of the feedback linear, so the largest sum over the polytope
        is at a corner.

        Args:
            torques: Worst-case torques over the pieces.
            brake_time: Time to rest [s].
            growths: :func:`stop_torque_growths` of the pieces, (P,).
        """
        found = []
        for r, square, slow in stop_corners():
            more = stop_torque_shape(r, square) * growths * self._torque_error[:, None]
            found.append([size + more for size in torques.evaluate(r, square, slow / brake_time)])
        bound, middle = (np.maximum.reduce(values) for values in zip(*found, strict=True))
        return [self._torque(BRAKING, bound, middle)]

    def distances(self, motion: Motion) -> list[Check]:
        """Distances of spheres to each other, to the ground and to obstacles."""
        return [
            Check(
                gap.kind,
                "m",
                gap.names,
                gap.bound - self._clearance,
                gap.middle - self._clearance,
                lambda row, margin: (margin + self._clearance, self._clearance),
                self._settings.distance_tolerance,
            )
            for gap in self._spheres.evaluate(motion)
        ]

    def _positions(self, path: PathPieces) -> Check:
        lower, upper = bounds(path.position)
        limits, error = self._limits, self._position_error[:, None]
        n = len(self._names)

        def margins(lowest: Array, highest: Array) -> Array:
            below = lowest - error - limits.q_lower[:, None]
            return np.concatenate([below, limits.q_upper[:, None] - highest - error])

        def value(row: int, margin: float) -> tuple[float, float]:
            is_low = row < n
            allowed = float((limits.q_lower if is_low else limits.q_upper)[row % n])
            return (allowed + margin if is_low else allowed - margin), allowed

        middle = margins(path.position[0], path.position[0])
        tolerance = self._settings.distance_tolerance
        return Check("position", "rad", self._names * 2, margins(lower, upper), middle, value, tolerance)

    def _rates(self, kind: str, unit: str, polynomials: Array, error: Array, limit: Array) -> Check:
        lower, upper = bounds(polynomials)
        largest = np.maximum(-lower, upper)
        return self._relative(kind, unit, largest, np.abs(polynomials[0]), error, limit)

    def _torque(self, kind: str, bound: Array, middle: Array) -> Check:
        return self._relative(kind, "Nm", bound, middle, self._torque_error, self._tau)

    def _relative(self, kind: str, unit: str, bound: Array, middle: Array, error: Array, limit: Array) -> Check:
        """Margins of sizes (n, P) as shares of their limits (n,)."""

        def margins(size: Array) -> Array:
            return 1.0 - (size + error[:, None]) / limit[:, None]

        def value(row: int, margin: float) -> tuple[float, float]:
            return float((1.0 - margin) * limit[row]), float(limit[row])

        return Check(kind, unit, self._names, margins(bound), margins(middle), value, self._settings.rate_tolerance)
