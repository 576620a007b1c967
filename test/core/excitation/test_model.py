"""Worst-case torques and free distances at samples: every check rejects its own violation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected
from sysid_ros.core.collision.clearance import Obstacle, build_scene_model
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.excitation.model import TorqueDemand, check_clearance
from sysid_ros.core.model.robot import INERTIAL, Sphere
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.trajectories.braking import BrakedTrajectory, slowdown_states
from sysid_ros.core.trajectories.families import BezierTrajectory

ZERO = np.zeros(7)
STEP = np.array([0.3, 0.1, -0.2, 0.1, 0.3, -0.1, 0.4])


def rest_to_rest(start, goal, duration=2.0):
    return BezierTrajectory(start, ZERO, ZERO, goal, duration)


@pytest.fixture
def boxes(gen3):
    return gen3.theta_box, gen3.payload_prior.box


@pytest.fixture
def plan(gen3):
    return rest_to_rest(gen3.home, gen3.home + STEP)


def check_torque(robot, boxes, trajectory, feedback=ZERO):
    times = np.linspace(0.0, trajectory.duration, 1001)
    return TorqueDemand(robot, *boxes, feedback).check(LimitKind.TORQUE, times, trajectory.sample(times))


def check_distances(robot, trajectory, scene):
    times = np.linspace(0.0, trajectory.duration, 1001)
    model, error = build_scene_model(robot, scene), np.full(7, 0.01)
    return check_clearance(robot, model, error, scene.clearance, times, trajectory.sample(times)[0])


def test_a_good_plan_has_margins(gen3, boxes, plan):
    assert check_torque(gen3, boxes, plan) > 0.0
    assert TorqueDemand(gen3, *boxes, ZERO).check_stops(plan, 0.5) > 0.0
    margins = check_distances(gen3, plan, Scene((Obstacle("wall", [3.0, 0, 0], [0.1, 1, 1]),), ground_height=0.0))
    assert margins[LimitKind.OBSTACLE] > 1.0 and margins[LimitKind.GROUND] > 0.0
    assert margins[LimitKind.SELF_COLLISION] > 0.0


def test_torque_limit(gen3, boxes, plan):
    heavy = Box(boxes[1].lower, boxes[1].upper + np.eye(10)[0] * 6.0)
    with pytest.raises(PlanRejected, match="^torque limit broken at joint") as caught:
        check_torque(gen3, (boxes[0], heavy), plan)
    assert caught.value.limit is LimitKind.TORQUE and caught.value.value > caught.value.allowed


def test_torque_limit_counts_the_feedback(gen3, boxes, plan):
    with pytest.raises(PlanRejected) as caught:
        check_torque(gen3, boxes, plan, feedback=38.0 * np.eye(7)[2])
    assert (caught.value.limit, caught.value.names) == (LimitKind.TORQUE, ("joint_3",))


def test_braking_torque_limit(gen3, boxes):
    # Fast enough that the plan itself is just possible, but not a sudden stop in the middle of it.
    limits = replace(gen3.limits, tau_max=np.array([3.8, 1e3, 1e3, 1e3, 1e3, 1e3, 1e3]))
    weak = replace(gen3, limits=limits)
    plan = rest_to_rest(gen3.home, gen3.home + 0.6 * np.eye(7)[0], 2.0)
    demand = TorqueDemand(weak, *boxes, ZERO)
    with pytest.raises(PlanRejected) as caught:
        demand.check_stops(plan, 0.1)
    assert (caught.value.limit, caught.value.names) == (LimitKind.BRAKING_TORQUE, ("joint_1",))
    assert demand.check_stops(plan, 2.5) > 0.0


CLOSE = {
    "ground": (Scene(ground_height=0.3), LimitKind.GROUND, None),
    "obstacle": (Scene((Obstacle("crate", [0.5, 0.0, 0.3], [0.1, 0.1, 0.1]),)), LimitKind.OBSTACLE, "crate"),
    "payload": (
        Scene(payload_spheres=(Sphere(7, np.array([0.0, 0.0, -0.2]), 0.45, "payload"),)),
        LimitKind.SELF_COLLISION,
        "payload",
    ),
}


@pytest.mark.parametrize("name", CLOSE)
def test_what_comes_too_close_is_named(gen3, plan, name):
    scene, limit, thing = CLOSE[name]
    with pytest.raises(PlanRejected) as caught:
        check_distances(gen3, plan, scene)
    assert caught.value.limit is limit and (thing is None or thing in caught.value.names)


def test_clearance_counts(gen3, plan):
    margin = check_distances(gen3, plan, Scene())[LimitKind.SELF_COLLISION]
    with pytest.raises(PlanRejected, match="self-collision"):
        check_distances(gen3, plan, Scene(clearance=margin + 0.001))


def test_self_collision(gen3):
    goal = np.array([0.0, 0.2, 0.0, 2.9, 0.0, 1.6, 0.0])
    with pytest.raises(PlanRejected, match="self-collision limit broken at .* and "):
        check_distances(gen3, rest_to_rest(gen3.home, goal, 6.0), Scene())


# What the worst case is worth


def test_no_parameters_in_the_boxes_need_more_torque(gen3, boxes):
    rng = np.random.default_rng(3)
    demand = TorqueDemand(gen3, *boxes, np.zeros(7))
    q, v, a = rng.normal(size=(3, 1, 7))
    worst = demand.evaluate(q, v, a)[0]
    reached = np.zeros(7)
    for draw in range(40):
        theta = sample_parameters(gen3, rng, corner=draw % 2 == 0)
        payload = sample_payload(gen3.payload_prior, rng, corner=draw % 2 == 0)
        model = pin.Model(gen3.pin_model)
        for body in range(1, 8):
            extra = payload if body == 7 else 0.0
            parameters = theta[INERTIAL * (body - 1) : INERTIAL * body] + extra
            model.inertias[body] = pin.Inertia.FromDynamicParameters(parameters)
        friction = gen3.friction(theta)
        torque = pin.rnea(model, model.createData(), q[0], v[0], a[0]) + friction[:, 3]
        torque += friction[:, 0] * np.sign(v[0]) + friction[:, 1] * v[0] + friction[:, 2] * a[0]
        assert np.all(np.abs(torque) <= worst + 1e-9)
        reached = np.maximum(reached, np.abs(torque) / worst)
    assert reached.max() > 0.7  # the bound is not far from what happens


def test_slowdown_states_cover_real_stops(make_fourier):
    path = make_fourier(0)
    brake_time, points = 0.5, 101
    on_path = path.sample(np.array([2.0]))
    q, v, a = slowdown_states(on_path, brake_time, points)
    for index in (0, 30, 80, 100):
        x = index / (points - 1)
        progress = brake_time * (x - x**3 + 0.5 * x**4)
        stop = BrakedTrajectory(path, 2.0 - progress, brake_time)
        state = stop.evaluate(2.0 - progress + x * brake_time)
        for value, expected in zip((q, v, a), state, strict=True):
            np.testing.assert_allclose(value[index], expected, atol=1e-9)
