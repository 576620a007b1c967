"""One planning problem: cost, constraints and coordinates for given errors and margins. Solves nothing."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.stop_model import STOP_ERRORS
from sysid_ros.core.collision.clearance import build_scene_model
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.constraints import ConstraintSamples, MotionConstraints
from sysid_ros.core.planning.costs import GoalCost, InformationCost, PlanCost, WidthCost
from sysid_ros.core.planning.distances import ArmSpheres, FreeDistances
from sysid_ros.core.planning.kinematics import SerialArm
from sysid_ros.core.planning.margins import AssumedErrors, Margins, allowed_ends
from sysid_ros.core.planning.motions import MotionBasis, minimum_acceleration_offset
from sysid_ros.core.planning.payload_windows import PayloadRegressor, WindowRows
from sysid_ros.core.planning.request import PlanRequest
from sysid_ros.core.planning.search import Space
from sysid_ros.core.planning.settings import RecedingSettings
from sysid_ros.core.planning.torques import WorstTorque
from sysid_ros.core.trajectories.bezier import BezierFamily, BezierTrajectory

Array = NDArray[np.float64]

_SMALLEST_HALF = 1e-6
"""Half width given to joints whose end position is fixed by their limits [rad]."""
_COARSE = 7
"""Times at which random motions are looked at."""
_CONTINUATION = 8
"""Times at which a motion that could take over is looked at."""


class NoMotion(SysidError):
    """No motion of the family respects the limits of a joint.

    Args:
        joint: Name of the joint.
    """

    def __init__(self, joint: str):
        self.joint = joint
        super().__init__(
            f"no motion to rest in the plan's duration respects the position, velocity and acceleration limits of "
            f"joint '{joint}' with the tracking error"
        )


class PlannerModel:
    """What is built once per robot.

    Args:
        robot: The arm.
        settings: Settings of the planner.

    Raises:
        ModelError: The arm branches.
    """

    def __init__(self, robot: RobotModel, settings: RecedingSettings):
        self.robot, self.settings = robot, settings
        self.torque = WorstTorque(robot)
        regressor = PayloadRegressor(robot)
        self.rows = {
            is_last: WindowRows(regressor, duration, settings.window)
            for is_last, duration in ((False, settings.planning_time), (True, settings.duration))
        }
        self.coarse_rows = {
            is_last: WindowRows(regressor, duration, settings.window, nodes=1)
            for is_last, duration in ((False, settings.planning_time), (True, settings.duration))
        }
        self._arm = SerialArm(robot)
        self._last_spheres: tuple[Scene, ArmSpheres] | None = None

    def spheres_in(self, scene: Scene) -> ArmSpheres:
        """Spheres and surroundings of a scene; those of the last one are kept."""
        if self._last_spheres is None or self._last_spheres[0] is not scene:
            self._last_spheres = scene, ArmSpheres(self.robot, build_scene_model(self.robot, scene), self._arm)
        return self._last_spheres[1]


def build_cost(model: PlannerModel, request: PlanRequest, rows: dict[bool, WindowRows]) -> PlanCost:
    """What a plan is chosen for, with the windows of ``model.rows`` or ``model.coarse_rows``."""
    if request.goal is not None:
        return GoalCost(request.state, request.goal)
    settings, chosen = model.settings, rows[request.is_last]
    if settings.cost == "bounds":
        known = (request.information, request.assumptions.boxes, request.assumptions.nominal)
        return WidthCost(model.robot, model.torque, chosen, request.state, settings.duration, *known)
    radius = model.robot.payload_prior.box.radius  # not the box in use: the cost shall not change with it
    known = (request.information, radius, settings.cost, settings.prior_error)
    return InformationCost(chosen, request.state, settings.duration, *known)


class PlanProblem:
    """A request with the tracking errors and margins to plan with.

    Args:
        model: What is built once per robot.
        request: What is wanted.
        errors: Tracking errors to plan with.
        margins: What is kept free besides.
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
            raise NoMotion(robot.joint_names[joint])
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
        """What a motion is chosen for; built where it is asked for, as most problems only tell what has room."""
        return build_cost(self.model, self.request, self.model.rows)

    def worst_rows(self, x: Array) -> Array:
        """Largest rows of motions with end offsets x (B, n) [rad], (B,); infinite where a joint may not end there."""
        is_outside = np.any(np.abs(x - self.space.center) > self.space.half + 1e-9, axis=1)
        return np.where(is_outside, np.inf, self.constraints().evaluate(x).worst)

    @property
    def family(self) -> BezierFamily:
        """The motions to choose from."""
        settings = self.model.settings
        return BezierFamily(self.space.center, self.space.half, settings.duration, settings.planning_time)

    def trajectory(self, k: Array) -> BezierTrajectory:
        """The motion with coordinates k (n,)."""
        return self.family.member(self.request.state, k)

    def coarse_cost(self) -> PlanCost:
        """The cost with a coarser rule for its integrals, to compare many motions."""
        return build_cost(self.model, self.request, self.model.coarse_rows)

    def constraints(self) -> MotionConstraints:
        """The constraints."""
        settings = self.model.settings
        return self._constraints(settings.samples, settings.brake_time, not self.request.is_last)

    def coarse_constraints(self) -> MotionConstraints:
        """The constraints at few samples of the motion itself, to compare many motions."""
        return self._constraints(_COARSE, None, False)

    def leave_out_far(self, samples: ConstraintSamples, distance: float) -> None:
        """Leaves out pairs and obstacles that none of many motions came near to, at coarse samples [m]."""
        if samples.distances is not None:
            self._distances.keep_near(samples.distances, distance)

    def _constraints(self, samples: int, brake_time: float | None, looks_ahead: bool) -> MotionConstraints:
        settings, margins = self.model.settings, self._margins
        start, duration = self.request.state, settings.duration
        basis = MotionBasis.of(start, duration, np.linspace(0.0, duration, samples))
        if looks_ahead:
            # A state from which the limits leave no way to rest is no use, however exciting the way there.
            times = np.linspace(0.0, duration, _CONTINUATION + 1)[1:]
            basis = basis.joined(MotionBasis.continuation(start, duration, settings.planning_time, times))
        is_ahead = np.arange(basis.times.size) >= samples
        torque_limit = margins.torque_limit(self.model.robot.limits)
        torque_limits = torque_limit * (1.0 - margins.reserve.torque * is_ahead[:, None])
        clearances = self.request.assumptions.scene.clearance + margins.distance + margins.reserve.distance * is_ahead
        return MotionConstraints(
            self.model.torque, self._distances, basis, torque_limits, self._errors.torque, clearances, brake_time
        )
