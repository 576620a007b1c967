"""Robot, start states and problems the tests of the receding-horizon planner run on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.planning.constraints import AssumedErrors, Margins
from sysid_ros.core.planning.problem import PlannerModel, PlanProblem
from sysid_ros.core.planning.request import PlanRequest, RecedingSettings
from sysid_ros.core.trajectories.families import BezierTrajectory


@dataclass(frozen=True)
class Errors:
    """Tracking errors of a stand-in for the controller, whatever was executed before."""

    position: np.ndarray
    velocity: np.ndarray
    torque: np.ndarray
    settling_time: float = 0.0

    def until(self, time):
        return None


@pytest.fixture(scope="session")
def gen3(robot):
    """The arm with one torque limit for everything, which leaves little room: what planners do then is looked at."""
    return replace(robot, limits=replace(robot.limits, tau_max=robot.limits.tau_continuous))


@pytest.fixture(scope="session")
def boxes(gen3):
    return gen3.theta_box, gen3.payload_prior.box


@pytest.fixture(scope="session")
def errors(gen3):
    return Errors(np.full(7, 0.01), np.full(7, 0.03), 0.04 * gen3.limits.tau_continuous)


@pytest.fixture(scope="session")
def scene():
    turned = np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3)))[0]
    return Scene(
        (
            Obstacle("wall", np.array([0.0, 0.6, 0.5]), np.array([0.8, 0.05, 0.5])),
            Obstacle("box", np.array([0.7, -0.3, 0.3]), np.array([0.1, 0.15, 0.2]), turned),
        ),
        ground_height=0.0,
    )


@pytest.fixture
def moving_start(gen3):
    rng = np.random.default_rng(3)
    return gen3.home + rng.normal(scale=0.2, size=7), rng.normal(scale=0.3, size=7), rng.normal(scale=0.5, size=7)


@pytest.fixture(scope="session")
def make_request():
    """Maker of a request that starts in any state: from rest, or at the begin of a plan that somebody made before."""

    def make(assumptions, state, bound, **more):
        q, v, a = state
        if not np.any(v) and not np.any(a):
            return PlanRequest(assumptions, start=q, **more)
        path = BezierTrajectory(q, v, a, q, 3.0)
        return PlanRequest(
            assumptions, predecessor=SimpleNamespace(trajectory=path, bound=bound, plan_id="f" * 64), **more
        )

    return make


@pytest.fixture
def make_problem(gen3, boxes, errors, scene, moving_start, make_request):
    """Maker of a problem from a moving start; keywords change settings, request or the robot's base."""

    def make(start=None, environment=scene, information=None, goal=None, is_last=False, robot=gen3, **settings):
        model = PlannerModel(robot, RecedingSettings(**settings))
        model.torque.set_boxes(*boxes)
        known = np.zeros((10, 10)) if information is None else information
        assumptions = Assumptions(robot, boxes, robot.payload_prior.nominal, environment)
        request = make_request(
            assumptions, start or moving_start, errors, information=known, goal=goal, is_last=is_last
        )
        assumed = AssumedErrors(errors.position, errors.velocity, errors.torque, is_measured=True)
        return PlanProblem(model, request, assumed, Margins.of(model.settings, robot.n))

    return make


@pytest.fixture(scope="session")
def tilted_gen3(gen3):
    """The same arm whose base frame is not the frame Pinocchio calculates in."""
    model = gen3.pin_model.copy()
    frame = model.frames[model.getFrameId(gen3.base_frame)]
    placement = frame.placement
    placement.translation = np.array([0.1, -0.2, 0.05])
    frame.placement = placement
    return replace(gen3, pin_model=model)
