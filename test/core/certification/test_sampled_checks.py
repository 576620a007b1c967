"""The sampled checks: every one rejects its own violation, and what passes is really free."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.certification.certificate import box_hash
from sysid_ros.core.certification.motion_checks import PlanRejected, TorqueDemand
from sysid_ros.core.certification.sampled_checks import SampledCheckSettings, certify_sampled
from sysid_ros.core.collision.clearance import Obstacle
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import INERTIAL, Sphere
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.trajectories.bezier import BezierFamily
from sysid_ros.core.trajectories.braking import slowdown_states
from sysid_ros.core.trajectories.serialization import BezierTrajectory, BrakedTrajectory, InvalidTrajectory

ZERO = np.zeros(7)
STEP = np.array([0.3, 0.1, -0.2, 0.1, 0.3, -0.1, 0.4])


def rest_to_rest(start, goal, duration=2.0):
    return BezierTrajectory(start, ZERO, ZERO, goal, duration)


@pytest.fixture
def plan(gen3):
    return rest_to_rest(gen3.home, gen3.home + STEP)


@pytest.fixture
def reject(gen3, boxes, tracking):
    """Certifies a plan that must be rejected and returns the rejection."""

    def run(trajectory, robot=gen3, **changes):
        arguments = {"boxes": boxes, "tracking_bound": tracking, **changes}
        with pytest.raises(PlanRejected) as caught:
            certify_sampled(robot, trajectory, **arguments)
        return caught.value

    return run


def test_a_good_plan_gets_a_certificate(gen3, boxes, tracking, plan):
    certificate = certify_sampled(gen3, plan, boxes, tracking, now=5.0)
    certificate.matches(plan, *boxes, now=5.0)
    assert (
        certificate.method == "sampled" and "at samples" in certificate.claims and "not a proof" in certificate.claims
    )
    assert certificate.box_hash == box_hash(*boxes) and certificate.expires_at > 5.0
    np.testing.assert_array_equal(certificate.tracking_bound, tracking.position)
    names = {
        "position [rad]",
        "velocity [-]",
        "acceleration [-]",
        "torque [-]",
        "braking torque [-]",
        "self-collision [m]",
    }
    assert set(certificate.margins) == names and min(certificate.margins.values()) > 0.0
    assert certificate.brake_time in SampledCheckSettings().brake_times


def test_claims_follow_what_was_checked(gen3, boxes, tracking, plan):
    bare = certify_sampled(
        gen3, plan, boxes, tracking, settings=SampledCheckSettings(brake_times=(), payload_spheres=())
    )
    assert bare.brake_time == 0.0
    for words in ("stops along the path", "collisions of the payload", "the ground", "obstacles"):
        assert words in bare.claims.split("not checked:")[1]
    far = Obstacle("wall", [3.0, 0, 0], [0.1, 1, 1])
    full = certify_sampled(gen3, plan, boxes, tracking, [far], SampledCheckSettings(ground_height=0.0))
    assert "nothing else that is known" in full.claims and "with 1 obstacle" in full.claims
    left = replace(gen3, spheres=tuple(s for s in gen3.spheres if s.link != "forearm_link"))
    partly = certify_sampled(left, plan, boxes, tracking, [far], SampledCheckSettings(ground_height=0.0))
    assert "not checked: collisions of forearm_link (no spheres)." in partly.claims
    assert full.margins["obstacle [m]"] > 1.0 and full.margins["ground [m]"] > 0.0


# One violation per check


def test_position_limit(gen3, reject):
    goal = gen3.home.copy()
    goal[3] = 2.565
    rejection = reject(rest_to_rest(gen3.home, goal, 3.0))
    assert (rejection.check, rejection.where) == ("position", "joint 'joint_4'")
    assert rejection.value == pytest.approx(2.575, abs=1e-6) and rejection.allowed == 2.57
    assert "2.575 rad, allowed 2.57 rad" in str(rejection)


def test_velocity_limit(gen3, reject):
    rejection = reject(rest_to_rest(gen3.home, gen3.home + np.eye(7)[0], 1.35))  # 1.875 / 1.35 = 1.389, plus 0.02
    assert (rejection.check, rejection.where) == ("velocity", "joint 'joint_1'")
    assert rejection.time == pytest.approx(0.675, abs=0.01) and rejection.value == pytest.approx(1.409, abs=1e-3)


def test_acceleration_limit(gen3, reject):
    rejection = reject(rest_to_rest(gen3.home, gen3.home + 0.1 * np.eye(7)[0], 0.33))
    assert (rejection.check, rejection.where, rejection.unit) == ("acceleration", "joint 'joint_1'", "rad/s^2")


def test_torque_limit(gen3, boxes, reject):
    heavy = Box(boxes[1].lower, boxes[1].upper + np.eye(10)[0] * 6.0)
    rejection = reject(rest_to_rest(gen3.home, gen3.home + STEP), boxes=(boxes[0], heavy))
    assert (rejection.check, rejection.unit) == ("torque", "Nm") and rejection.value > rejection.allowed


def test_torque_limit_counts_the_feedback(gen3, reject, plan):
    feedback = np.zeros(7)
    feedback[2] = 38.0
    rejection = reject(plan, settings=SampledCheckSettings(feedback_torque=feedback))
    assert (rejection.check, rejection.where) == ("torque", "joint 'joint_3'")


def test_braking_torque_limit(gen3, reject):
    # Fast enough that the plan itself is just possible, but not a sudden stop in the middle of it.
    limits = replace(gen3.limits, tau_max=np.array([3.8, 1e3, 1e3, 1e3, 1e3, 1e3, 1e3]))
    weak = replace(gen3, limits=limits)
    plan = rest_to_rest(gen3.home, gen3.home + 0.6 * np.eye(7)[0], 2.0)
    rejection = reject(plan, robot=weak, settings=SampledCheckSettings(brake_times=(0.1,)))
    assert (rejection.check, rejection.where) == ("braking torque", "joint 'joint_1'")


def test_the_shortest_possible_brake_time_is_noted(gen3, boxes, tracking):
    limits = replace(gen3.limits, tau_max=np.array([3.8, 1e3, 1e3, 1e3, 1e3, 1e3, 1e3]))
    plan = rest_to_rest(gen3.home, gen3.home + 0.6 * np.eye(7)[0], 2.0)
    settings = SampledCheckSettings(brake_times=(0.1, 2.5))
    certificate = certify_sampled(replace(gen3, limits=limits), plan, boxes, tracking, settings=settings)
    assert certificate.brake_time == 2.5


def test_ground(gen3, reject, plan):
    rejection = reject(plan, settings=SampledCheckSettings(ground_height=0.3))
    assert (rejection.check, rejection.unit) == ("ground", "m")


def test_obstacle(gen3, reject, plan):
    rejection = reject(plan, obstacles=[Obstacle("crate", [0.5, 0.0, 0.3], [0.1, 0.1, 0.1])])
    assert rejection.check == "obstacle" and "crate" in rejection.where


def test_clearance_counts(gen3, boxes, tracking, reject, plan):
    margin = certify_sampled(gen3, plan, boxes, tracking).margins["self-collision [m]"]
    rejection = reject(plan, settings=SampledCheckSettings(clearance=margin + 0.001))
    assert rejection.check == "self-collision"


def test_self_collision(gen3, reject):
    strong = replace(gen3, limits=replace(gen3.limits, tau_max=np.full(7, 1e3), q_upper=np.full(7, 9.0)))
    goal = np.array([0.0, 0.2, 0.0, 2.9, 0.0, 1.6, 0.0])
    rejection = reject(rest_to_rest(gen3.home, goal, 6.0), robot=strong)
    assert rejection.check == "self-collision" and " and " in rejection.where


def test_payload_spheres_can_collide(gen3, reject, plan):
    huge = Sphere(7, np.array([0.0, 0.0, -0.2]), 0.45, "payload")
    rejection = reject(plan, settings=SampledCheckSettings(payload_spheres=(huge,)))
    assert rejection.check == "self-collision" and "payload" in rejection.where


def test_wrong_number_of_joints(gen3, boxes, tracking):
    plan = BezierTrajectory(*np.zeros((4, 6)), 1.0)
    with pytest.raises(InvalidTrajectory, match="number of joints is 6; allowed: 7"):
        certify_sampled(gen3, plan, boxes, tracking)


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.1, np.zeros(6)])
def test_a_tracking_bound_that_bounds_nothing_is_refused(gen3, boxes, tracking, plan, value):
    with pytest.raises(ParameterOutOfRange, match="tracking_bound.position .* one per joint, 0 or more"):
        certify_sampled(gen3, plan, boxes, replace(tracking, position=value))
    with pytest.raises(ParameterOutOfRange, match="tracking_bound.velocity"):
        certify_sampled(gen3, plan, boxes, replace(tracking, velocity=value))


def test_boxes_of_the_wrong_length_are_refused(gen3, boxes, tracking, plan):
    with pytest.raises(ParameterOutOfRange, match="length of the arm's parameter box is 10; allowed: 98"):
        certify_sampled(gen3, plan, boxes[::-1], tracking)
    with pytest.raises(ParameterOutOfRange, match="length of the payload's parameter box is 98; allowed: 10"):
        certify_sampled(gen3, plan, (boxes[0], boxes[0]), tracking)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": 0.01}, r"step \[s\] is 0.01; allowed: above 0, at most 0.002"),
        ({"clearance": -0.1}, "clearance"),
        ({"torque_fraction": 0.0}, "torque_fraction"),
        ({"feedback_torque": -1.0}, "feedback_torque"),
        ({"feedback_torque": np.nan}, "feedback_torque"),
        ({"brake_times": (0.5, 0.3)}, "brake_times"),
        ({"brake_times": (0.0, 0.3)}, "brake_times"),
        ({"validity": 0.0}, "validity"),
    ],
)
def test_settings_out_of_range(changes, message):
    with pytest.raises(ParameterOutOfRange, match=message):
        SampledCheckSettings(**changes)


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


# Planning to a posture


def test_the_family_replans_from_motion():
    family = BezierFamily(np.zeros(7), np.full(7, 0.4))
    first = family.member((ZERO, ZERO, ZERO), 0.5 * np.ones(7))
    assert (first.duration, family.planning_time) == (3.0, 1.5)
    state = family.takeover(first)
    second = family.member(state, -np.ones(7))
    for value, expected in zip(second.evaluate(0.0), first.evaluate(1.5), strict=True):
        np.testing.assert_allclose(value, expected, atol=1e-12)
    np.testing.assert_allclose(second.end, state[0] - 0.4)


def test_the_family_refuses_what_is_outside():
    family = BezierFamily(np.zeros(7), np.full(7, 0.4))
    with pytest.raises(ParameterOutOfRange, match=r"k \[-\] .* each -1 to 1"):
        family.member((ZERO, ZERO, ZERO), 1.01 * np.ones(7))
    with pytest.raises(ParameterOutOfRange, match="k_range"):
        BezierFamily(np.zeros(7), np.zeros(7))
    with pytest.raises(ParameterOutOfRange, match="planning_time"):
        BezierFamily(np.zeros(7), np.ones(7), duration=1.0)
