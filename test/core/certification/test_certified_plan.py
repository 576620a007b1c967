"""Certified plans as data: whatever is changed, checking again finds it."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.certification.certificate import CertificateMismatch
from sysid_ros.core.certification.plan import CertifiedPlan, check_sequence, recheck, robot_hash
from sysid_ros.core.certification.sampled_checks import certify_sampled
from sysid_ros.core.certification.verify import certify
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.trajectories.serialization import BezierTrajectory

ZERO = np.zeros(7)
SCENE = Scene((Obstacle("wall", [0.0, 0.9, 0.5], [0.5, 0.05, 0.5]),), ground_height=-0.05)


def bundle(robot, boxes, errors, trajectory, now=10.0, scene=SCENE):
    certificate = certify(robot, trajectory, boxes, errors, scene, now=now)
    return CertifiedPlan(trajectory, certificate, boxes, scene, robot.name, robot_hash(robot))


@pytest.fixture(scope="module")
def errors(tracking):
    return type("Errors", (), {"position": tracking.position, "velocity": tracking.velocity, "torque": np.full(7, 0.2)})


@pytest.fixture(scope="module")
def plan(gen3, boxes, errors):
    return bundle(gen3, boxes, errors, BezierTrajectory(gen3.home, ZERO, ZERO, gen3.home + 0.2, 3.0))


def test_an_unchanged_plan_holds_after_json(gen3, plan):
    received = CertifiedPlan.from_dict(json.loads(json.dumps(plan.to_dict(), allow_nan=False)))
    assert received.to_dict() == plan.to_dict()
    found = recheck(gen3, received)
    assert found.problems == () and dict(found.verification.margins) == dict(plan.certificate.margins)


def changed(plan, path, value):
    data = copy.deepcopy(plan.to_dict())
    target = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value(target[path[-1]])
    return CertifiedPlan.from_dict(data)


TAMPERED = [
    (("trajectory", "coefficients", "q1", 3), lambda x: x + 1e-6, "issued for plan"),
    (("trajectory", "duration"), lambda x: x * 0.9, "issued for plan"),
    (("boxes", 0, "upper", 12), lambda x: x + 1e-6, "issued for parameter box"),
    (("boxes", 1, "lower", 0), lambda x: x - 0.1, "issued for parameter box"),
    (("scene", "obstacles", 0, "center", 1), lambda x: x - 0.001, "issued for scene"),
    (("scene", "clearance"), lambda x: 0.02, "issued for scene"),
    (("certificate", "start_q", 2), lambda x: x + 0.01, "starts 0.01.* rad away from the plan at joint 3"),
    (("certificate", "start_v", 4), lambda x: 0.1, "starts 0.1.* rad/s away from the plan at joint 5"),
    (("certificate", "start_a", 0), lambda x: -1.0, r"starts -1.* rad/s\^2 away from the plan at joint 1"),
    (("certificate", "margins", "torque [-]"), lambda x: x + 0.1, r"states torque \[-\] .*, proven is"),
    (("certificate", "margins"), lambda x: {}, r"has no margin 'position \[rad\]'"),
    (("certificate", "torque_bound"), lambda x: [50.0] * 7, "torque limit broken"),
    (("certificate", "torque_bound"), lambda x: None, "torque_bound of the certificate is 'not stated'"),
    (("certificate", "tracking_bound"), lambda x: [0.5] * 7, "(position|obstacle|collision) limit broken"),
    (("certificate", "brake_time"), lambda x: 0.01, "braking torque limit broken"),
    (("certificate", "brake_time"), lambda x: 0.0, "brake time of its certificate is 0 s, so no stop of it is proven"),
    (("certificate", "brake_time"), lambda x: -0.5, "brake time of its certificate is -0.5 s"),
    (("certificate", "brake_time"), lambda x: np.nan, "brake time of its certificate is nan s"),
    (("certificate", "brake_time"), lambda x: np.inf, "brake time of its certificate is inf s"),
    (("certificate", "torque_fraction"), lambda x: 0.2, "torque limit broken"),
    (("robot_hash",), lambda x: "0" * 64, "for a robot 000000000000, but"),
]


@pytest.mark.parametrize(("path", "value", "message"), TAMPERED)
def test_every_change_is_found(gen3, plan, path, value, message):
    problems = recheck(gen3, changed(plan, path, value)).problems
    assert problems and any(re.search(message, sentence) for sentence in problems), problems


def test_a_changed_robot_is_found(gen3, plan):
    limits = replace(gen3.limits, tau_max=0.99 * gen3.limits.tau_max)
    assert any("for a robot" in text for text in recheck(replace(gen3, limits=limits), plan).problems)
    grown = tuple(replace(sphere, radius=sphere.radius + 1e-6) for sphere in gen3.spheres)
    assert robot_hash(replace(gen3, spheres=grown)) != robot_hash(gen3)


def test_certificates_that_cannot_be_are_refused(plan):
    with pytest.raises(CertificateMismatch, match="expires at"):
        changed(plan, ("certificate", "expires_at"), lambda x: 0.0)
    with pytest.raises(ParameterOutOfRange, match="the form that to_dict gives"):
        changed(plan, ("boxes",), lambda x: x[:1])
    with pytest.raises(ParameterOutOfRange, match="scene"):
        CertifiedPlan.from_dict({k: v for k, v in plan.to_dict().items() if k != "scene"})


def test_a_sampled_certificate_is_proven_anew(gen3, boxes, tracking, plan):
    certificate = certify_sampled(gen3, plan.trajectory, boxes, tracking, SCENE.obstacles)
    scene = replace(SCENE, ground_height=None)
    found = recheck(gen3, replace(plan, certificate=certificate, scene=scene))
    assert found.problems == () and found.verification.margins["torque [-]"] > 0.0


def test_plans_must_follow_each_other(gen3, boxes, errors, plan):
    state = plan.trajectory.evaluate(1.5)
    second = bundle(gen3, boxes, errors, BezierTrajectory(*state, gen3.home, 3.0), now=11.5)
    assert check_sequence([plan, second]) == [(), ()]
    q, v, a = state
    apart = bundle(gen3, boxes, errors, BezierTrajectory(q, v + 1e-3, a, gen3.home, 3.0), now=11.5)
    assert "not in a state of the plan before" in check_sequence([plan, apart])[1][0]
    assert "not in a state of the plan before" in check_sequence([second])[0][0]
    assert any("issued before" in text for text in check_sequence([second, plan])[1])
