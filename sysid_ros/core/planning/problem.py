"""One planning problem: cost, constraints and coordinates for given errors and margins, and starts of its search."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.held_feedback import HeldFeedback
from sysid_ros.core.certification.stop_model import STOP_ERRORS
from sysid_ros.core.collision.clearance import build_scene_model
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.constraints import AssumedErrors, ConstraintSamples, Margins, MotionConstraints, Room
from sysid_ros.core.planning.costs import (
    GoalCost,
    InformationCost,
    PlanCost,
    WidthCost,
    WindowRows,
    WindowRule,
    prior_information,
)
from sysid_ros.core.planning.distances import ArmSpheres, FreeDistances
from sysid_ros.core.planning.dynamics import WorstTorque
from sysid_ros.core.planning.motions import MotionBasis, allowed_ends, minimum_acceleration_offset
from sysid_ros.core.planning.request import PlanRequest, RecedingSettings
from sysid_ros.core.planning.search import PENALTY, Space, StepProblem
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.families import BezierTrajectory

Array = NDArray[np.float64]

_SMALLEST_HALF = 1e-6
"""Radius given to joints whose end position is fixed by their limits [rad]."""
_CONTINUATION = 8
"""Times at which a possible next motion is evaluated."""
_NEAR = 0.3
"""Pairs and obstacles that stay further apart than this in all random motions are left out of the search [m]."""
_APART = 0.5
"""Starts differ by at least this in some coordinate."""


class NoMotion(SysidError):
    """No motion respects the limits, or no way to the goal was found."""


class PlannerModel:
    """Model of a robot, built once.

    Raises:
        ModelError: The arm branches.
    """

    def __init__(self, robot: RobotModel, settings: RecedingSettings):
        self.robot, self.settings = robot, settings
        self.torque = WorstTorque(robot)
        self.step_problem = StepProblem(robot.n)
        regressor = TorqueRegressor(robot, bodies=(robot.n,))
        self._rules = {
            (is_last, nodes): WindowRule(regressor, duration, settings.window, nodes)
            for is_last, duration in ((False, settings.planning_time), (True, settings.duration))
            for nodes in (1, 2)
        }
        self._last_spheres: tuple[Scene, ArmSpheres] | None = None

    def rows(self, request: PlanRequest, nodes: int = 2) -> WindowRows:
        """Return the windows that the executed part of a requested motion fills, with 1 or 2 nodes each."""
        return WindowRows(self._rules[request.is_last, nodes], request.state, self.settings.duration)

    def spheres_in(self, scene: Scene) -> ArmSpheres:
        """Return the spheres and obstacles of a scene; the last one's are cached."""
        if self._last_spheres is None or self._last_spheres[0] is not scene:
            self._last_spheres = scene, ArmSpheres(self.robot, build_scene_model(self.robot, scene))
        return self._last_spheres[1]


def build_cost(model: PlannerModel, request: PlanRequest, nodes: int = 2) -> PlanCost:
    """Build the cost of a plan, with windows of 1 or 2 nodes."""
    if request.goal is not None:
        return GoalCost(request.state, request.goal)
    settings, rows = model.settings, model.rows(request, nodes)
    if settings.cost == "bounds":
        return WidthCost(rows, request.information, request.assumptions)
    # Not the present box: the cost shall not change with it.
    prior = prior_information(model.robot.payload_prior.box.radius, settings.prior_error)
    return InformationCost(rows, request.information, prior, settings.cost)


class PlanProblem:
    """A request with the tracking errors and margins to plan with.

    Args:
        model: Model of the robot.
        request: The request.
        errors: Tracking errors to plan with.
        margins: Margins besides.
        reach: Share of the settings' k_range that may be used [-].

    Raises:
        NoMotion: No end position satisfies the limits of a joint.
    """

    def __init__(
        self, model: PlannerModel, request: PlanRequest, errors: AssumedErrors, margins: Margins, reach: float = 1.0
    ):
        self.model, self.request = model, request
        settings, robot, start = model.settings, model.robot, request.state
        limits = margins.state_limits(robot.limits, errors)
        widest = np.full(robot.n, reach * settings.k_range)
        # A goal may be close to a limit.
        preferred = limits if request.goal is not None else margins.with_reserve().state_limits(robot.limits, errors)
        lower, upper = allowed_ends(start, limits, preferred, settings.duration, widest)
        for joint in np.flatnonzero(~(lower <= upper)):
            raise NoMotion(
                "no motion to rest in the plan's duration respects the position, velocity and acceleration limits of "
                f"joint '{robot.joint_names[joint]}' with the tracking error"
            )
        self.space = Space(0.5 * (lower + upper), np.maximum(0.5 * (upper - lower), _SMALLEST_HALF))
        self.minimum_acceleration = self.space.coordinates(minimum_acceleration_offset(start, settings.duration))
        self._margins, self._errors = margins, errors
        clearance = request.assumptions.scene.clearance + margins.distance + margins.reserve.distance
        spheres = model.spheres_in(request.assumptions.scene)
        self._distances = None
        if spheres.has_rows:
            self._distances = FreeDistances(spheres, STOP_ERRORS * errors.position, clearance)

    @cached_property
    def cost(self) -> PlanCost:
        """Cost of a motion; built on demand, as most problems are only used for their constraints."""
        return build_cost(self.model, self.request)

    def worst_rows(self, x: Array) -> Array:
        """Find the largest rows of motions with end offsets x (B, n) [rad], (B,); inf outside of the space."""
        is_outside = np.any(np.abs(x - self.space.center) > self.space.half + 1e-9, axis=1)
        return np.where(is_outside, np.inf, self.constraints().evaluate(x).worst)

    def trajectory(self, k: Array) -> BezierTrajectory:
        """Return the motion with coordinates k (n,): it ends at ``q0 + center + half k``, SAFE-ID section V-A."""
        q0, v0, a0 = self.request.state
        return BezierTrajectory(q0, v0, a0, q0 + self.space.center + self.space.half * k, self.model.settings.duration)

    def constraints(self) -> MotionConstraints:
        """Build the constraints."""
        settings = self.model.settings
        return self._constraints(settings.samples, settings.brake_time, not self.request.is_last)

    def first_starts(self, last_end: Array | None) -> Array:
        """Choose the best of random motions, the minimum-acceleration stop, going on as before and to the goal; (B, n).

        They are compared by a coarser rule for the integrals and at few samples of the motion itself, and differ from
        each other. Pairs and obstacles far from all of them are left out of the problem on the way.

        Args:
            last_end: End position of the last plan, (n,) [rad]; None without one.
        """
        settings, n, q0 = self.model.settings, self.model.robot.n, self.request.state[0]
        rng = np.random.default_rng(settings.seed)
        # Large motions excite: most draws are near the faces of the cube.
        draws = rng.choice([-1.0, 1.0], (settings.draws, n)) * np.sqrt(rng.uniform(0.0, 1.0, (settings.draws, n)))
        wanted = [self.space.coordinates(end - q0) for end in (last_end, self.request.goal) if end is not None]
        k = np.concatenate([[self.minimum_acceleration, *wanted], draws])
        x = self.space.offsets(k)
        samples = self._constraints(7, None, False).evaluate(x, little=0.0)
        cost = build_cost(self.model, self.request, nodes=1).evaluate(x)
        merit = cost + PENALTY * np.maximum(samples.worst, 0.0)
        self.leave_out_far(samples)
        chosen: list[Array] = []
        for index in np.argsort(merit, kind="stable"):
            if all(np.abs(k[index] - other).max() >= _APART for other in chosen):
                chosen.append(k[index])
            if len(chosen) == settings.starts:
                break
        return np.array(chosen)

    def repair_starts(self, rejected: Array) -> Array:
        """Return a rejected motion, end offset (n,) [rad], and one halfway to the minimum-acceleration stop; (2, n)."""
        k = self.space.coordinates(rejected)
        return np.stack([k, 0.5 * (k + self.minimum_acceleration)])

    def leave_out_far(self, samples: ConstraintSamples) -> None:
        """Leave out pairs and obstacles that none of many motions came near to."""
        if self._distances is not None and samples.distances is not None:
            self._distances.keep_near(samples.distances, _NEAR)

    def _constraints(self, samples: int, brake_time: float | None, looks_ahead: bool) -> MotionConstraints:
        settings, margins = self.model.settings, self._margins
        start, duration = self.request.state, settings.duration
        basis = MotionBasis.of(start, duration, np.linspace(0.0, duration, samples))
        if looks_ahead:
            # A state from which the limits leave no way to rest is useless, however exciting the way there.
            times = np.linspace(0.0, duration, _CONTINUATION + 1)[1:]
            basis = basis.joined(MotionBasis.continuation(start, duration, settings.planning_time, times))
        is_ahead = np.where(np.arange(basis.times.size) >= samples, 1.0, 0.0)
        limits, held = self.model.robot.limits, HeldFeedback.bound(self.request.assumptions, self._errors)
        reserved = (1.0 - margins.torque) * (1.0 - margins.reserve.torque * is_ahead[:, None])
        # Wherever a plan ends and whatever follows it, the arm must be able to stay.
        is_end = np.isin(np.arange(basis.times.size), (samples - 1, basis.times.size - 1))
        room = Room(
            torque=limits.tau_max * reserved,
            rest=np.where(is_end[:, None], held.largest_rest(limits) + held.largest, limits.tau_max) * reserved,
            feedback=self._errors.torque,
            clearance=self.request.assumptions.scene.clearance + margins.distance + margins.reserve.distance * is_ahead,
            friction_speed=self.request.assumptions.control_law.friction_speed,
        )
        return MotionConstraints(self.model.torque, self._distances, basis, room, brake_time)
