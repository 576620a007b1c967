"""Certified plans as data: whatever is changed, checking again finds it."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from proofs import certify

from sysid_ros.core.certification.assumptions import robot_hash
from sysid_ros.core.certification.certificate import CertificateMismatch
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.recheck import check_sequence, recheck
from sysid_ros.core.certification.verify import Beginning
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.baselines import PidSettings
from sysid_ros.core.trajectories.families import BezierTrajectory

ZERO = np.zeros(7)
SCENE = Scene((Obstacle("wall", [0.0, 0.9, 0.5], [0.5, 0.05, 0.5]),), ground_height=-0.05)


def make_plan(robot, boxes, errors, trajectory, now=10.0, beginning=None):
    certificate = certify(robot, trajectory, boxes, errors, SCENE, beginning=beginning, now=now)
    return CertifiedPlan(trajectory, certificate, boxes, SCENE, robot.name)


@pytest.fixture(scope="module")
def errors(tracking):
    return type("Errors", (), {"position": tracking.position, "velocity": tracking.velocity, "torque": np.full(7, 0.2)})


@pytest.fixture(scope="module")
def plan(gen3, boxes, errors):
    return make_plan(gen3, boxes, errors, BezierTrajectory(gen3.home, ZERO, ZERO, gen3.home + 0.2, 3.0))


def test_an_unchanged_plan_holds_after_json(gen3, plan):
    received = CertifiedPlan.from_dict(json.loads(json.dumps(plan.to_dict(), allow_nan=False)))
    assert received.to_dict() == plan.to_dict() and received == plan
    found = recheck(gen3, received)
    assert found.problems == () and tuple(found.verification.margins.values()) == plan.certificate.margins


def changed(plan, path, value):
    data = copy.deepcopy(plan.to_dict())
    target = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value(target[path[-1]])
    return CertifiedPlan.from_dict(data)


def forged(plan, name, value):
    """With a ``plan_id`` that fits, as from somebody who computes it anew."""
    return replace(plan, certificate=replace(plan.certificate, **{name: value}))


TAMPERED = [
    (("trajectory", "coefficients", "q1", 3), lambda x: x + 1e-6, "issued for path"),
    (("trajectory", "duration"), lambda x: x * 0.9, "issued for path"),
    (("boxes", 0, "upper", 12), lambda x: x + 1e-6, "issued for parameter box"),
    (("boxes", 1, "lower", 0), lambda x: x - 0.1, "issued for parameter box"),
    (("scene", "obstacles", 0, "center", 1), lambda x: x - 0.001, "issued for scene"),
    (("scene", "clearance"), lambda x: 0.02, "issued for scene"),
    (("certificate", "margins", 3, "value"), lambda x: x + 0.1, "states a margin of the torque limit of .*, proven is"),
    (("certificate", "margins"), lambda x: [], "has no margin of the position limit"),
]

FORGED = [
    ("torque_bound", np.full(7, 50.0), "torque bound of joint_5 in its certificate is 50.0 Nm; .* at most 29.4 Nm"),
    ("torque_bound", np.full(7, 9.0), "torque limit broken"),
    ("tracking_bound", np.full(7, 0.5), "tracking bound of joint_1 in its certificate is 0.5 rad; .* at most 0.2 rad"),
    ("tracking_bound", np.full(7, 0.2), "(position|obstacle|collision) limit broken"),
    ("velocity_bound", np.full(7, np.nan), "velocity bound of its certificate is .*nan.*; it must be 7 finite numbers"),
    ("brake_time", 0.01, "brake time of its certificate is 0.01 s; it must be from 0.1 to 10 s"),
    ("torque_fraction", 0.2, "torque limit broken"),
    ("robot_hash", "0" * 64, "for a robot 000000000000, but"),
    ("control_law", PidSettings().law, "no other law has a proven tracking bound"),
]


@pytest.mark.parametrize(("path", "value", "message"), TAMPERED)
def test_every_change_is_found(gen3, plan, path, value, message):
    problems = recheck(gen3, changed(plan, path, value)).problems
    assert problems and any(re.search(message, sentence) for sentence in problems), problems


@pytest.mark.parametrize(("name", "value", "message"), FORGED)
def test_a_certificate_that_claims_too_much_does_not_hold(gen3, plan, name, value, message):
    problems = recheck(gen3, forged(plan, name, value)).problems
    assert problems and any(re.search(message, sentence) for sentence in problems), problems


def test_a_changed_assumption_of_a_certificate_is_another_plan(plan):
    for entry in ("robot_hash", "path_hash"):
        with pytest.raises(CertificateMismatch, match="its plan_id is"):
            changed(plan, ("certificate", entry), lambda x: "0" * 64)
    with pytest.raises(CertificateMismatch, match="its plan_id is"):
        changed(plan, ("certificate", "torque_bound"), lambda x: [50.0] * 7)


def test_plans_of_the_old_format_are_refused_with_their_version(plan):
    old = {key: value for key, value in plan.to_dict().items() if key != "format_version"}
    with pytest.raises(CertificateMismatch, match="recorded in format 1, this version of the package reads format 3"):
        CertifiedPlan.from_dict({**old, "robot_hash": "0" * 64})


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


def test_plans_must_follow_each_other(gen3, boxes, errors, plan):
    q, v, a = plan.trajectory.evaluate(1.5)
    beginning = Beginning(plan.plan_id, 1.5)

    def following(v, beginning=beginning):
        return make_plan(gen3, boxes, errors, BezierTrajectory(q, v, a, gen3.home, 3.0), 11.5, beginning)

    second = following(v)
    assert check_sequence([plan, second]) == [(), ()]
    assert "does not start in the state of plan" in check_sequence([plan, following(v + 1e-3)])[1][0]
    early = following(v, Beginning(plan.plan_id, 1.49))
    assert "at 1.490 s" in check_sequence([plan, early])[1][0]
    assert "takes over from plan" in check_sequence([second])[0][0]
    assert (
        "starts in motion, but its certificate is about a start from rest" in check_sequence([following(v, None)])[0][0]
    )
    assert any("issued before" in text for text in check_sequence([second, plan])[1])


def test_plans_are_told_apart_by_their_identity(gen3, boxes, errors, plan):
    """The same path at another time is the same plan; after another plan, or for other errors, it is another."""
    again = make_plan(gen3, boxes, errors, plan.trajectory, now=20.0)
    assert again == plan and len({plan, again}) == 1
    wider = type("Errors", (), {**vars(errors), "torque": errors.torque + 1e-9})
    for other in (
        make_plan(gen3, boxes, wider, plan.trajectory),
        make_plan(gen3, boxes, errors, plan.trajectory, beginning=Beginning(plan.plan_id, 1.5)),
        make_plan(gen3, boxes, errors, plan.trajectory, beginning=Beginning(rest_before=1.0)),
    ):
        assert other != plan and other.trajectory.hash() == plan.trajectory.hash()
