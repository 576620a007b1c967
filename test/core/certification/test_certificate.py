"""The certificate: what it is bound to, and its way through JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.certification.certificate import AssumedControl, Certificate, CertificateMismatch, box_hash
from sysid_ros.core.common.box import Box

ARM, PAYLOAD = Box(np.zeros(98), np.ones(98)), Box(np.zeros(10), np.ones(10))


@pytest.fixture
def trajectory(make_bezier):
    return make_bezier(0)


@pytest.fixture
def certificate(trajectory):
    return Certificate(
        plan_hash=trajectory.hash(),
        box_hash=box_hash(ARM, PAYLOAD),
        start_q=trajectory.start,
        method="sampled",
        claims="checked at samples only",
        margins={"torque [-]": 0.25},
        tracking_bound=np.full(7, 0.01),
        issued_at=10.0,
        expires_at=20.0,
        brake_time=0.5,
        control=AssumedControl("robust", np.arange(10.0), 1.2),
    )


def test_it_matches_what_it_was_issued_for(certificate, trajectory):
    assert certificate.matches(trajectory, ARM, PAYLOAD) is None
    assert certificate.matches(trajectory, ARM, PAYLOAD, now=10.0) is None


def test_another_plan_is_refused(certificate, make_bezier):
    with pytest.raises(CertificateMismatch, match="it was issued for plan [0-9a-f]{12}, but the plan is [0-9a-f]{12}"):
        certificate.matches(make_bezier(1), ARM, PAYLOAD)


@pytest.mark.parametrize(
    "boxes",
    [
        (ARM, Box(np.zeros(10), np.nextafter(np.ones(10), 2.0))),
        (Box(-np.ones(98), np.ones(98)), PAYLOAD),
        (PAYLOAD, ARM),
        (ARM,),
    ],
)
def test_another_box_is_refused(certificate, trajectory, boxes):
    with pytest.raises(CertificateMismatch, match="parameter box .* certify the plan again"):
        certificate.matches(trajectory, *boxes)


def test_another_scene_is_refused(certificate, trajectory):
    certificate.matches(trajectory, ARM, PAYLOAD)
    with pytest.raises(CertificateMismatch, match="issued for scene none, but the arm is in 11"):
        certificate.matches(trajectory, ARM, PAYLOAD, scene_hash="11" * 32)
    stated = replace(certificate, scene_hash="22" * 32)
    stated.matches(trajectory, ARM, PAYLOAD, scene_hash="22" * 32)
    with pytest.raises(CertificateMismatch, match="issued for scene 22.* certify the plan again"):
        stated.matches(trajectory, ARM, PAYLOAD, scene_hash="11" * 32)


@pytest.mark.parametrize(("field", "index"), [("start_q", 0), ("start_v", 1), ("start_a", 2)])
def test_another_start_state_is_refused(certificate, trajectory, field, index):
    start = trajectory.evaluate(0.0)[index]
    replace(certificate, **{field: start}).matches(trajectory, ARM, PAYLOAD)
    for wrong in (start + 1e-6 * np.eye(7)[3], np.where(np.arange(7) == 3, np.nan, start)):
        with pytest.raises(CertificateMismatch, match="it starts .* away from the plan at joint 4"):
            replace(certificate, **{field: wrong}).matches(trajectory, ARM, PAYLOAD)
    with pytest.raises(CertificateMismatch, match="its start has 6 joints"):
        replace(certificate, **{field: start[:6]}).matches(trajectory, ARM, PAYLOAD)


@pytest.mark.parametrize("now", [9.99, 20.0, 1e9, np.nan])
def test_outside_its_time_it_is_refused(certificate, trajectory, now):
    with pytest.raises(CertificateMismatch, match="valid from 10.000 s to 20.000 s, but the time is"):
        certificate.matches(trajectory, ARM, PAYLOAD, now=now)


def test_json_round_trip(certificate):
    copy = Certificate.from_dict(json.loads(json.dumps(certificate.to_dict(), allow_nan=False)))
    assert copy.to_dict() == certificate.to_dict()
    np.testing.assert_array_equal(copy.start_q, certificate.start_q)
    full = replace(certificate, start_v=np.ones(7), torque_bound=np.ones(7), places={"torque [-]": "joint_2, 0.1 s"})
    assert Certificate.from_dict(json.loads(json.dumps(full.to_dict()))).to_dict() == full.to_dict()
    assert not copy.start_q.flags.writeable and not copy.tracking_bound.flags.writeable


def test_missing_and_unknown_entries_are_named(certificate):
    data = certificate.to_dict()
    data["colour"] = data.pop("claims")
    with pytest.raises(CertificateMismatch, match="claims, colour are missing or unknown"):
        Certificate.from_dict(data)


def test_unknown_method_and_empty_validity_are_refused(certificate):
    with pytest.raises(CertificateMismatch, match="method 'hope' is unknown; allowed: sampled, interval"):
        replace(certificate, method="hope")
    with pytest.raises(CertificateMismatch, match="expires at 10.0 s"):
        replace(certificate, expires_at=10.0)


LIFTED = np.arange(10.0)
AFTER = "e" * 64


def test_control_as_assumed_is_accepted():
    AssumedControl("robust", LIFTED, 1.2).matches("robust", LIFTED, rested=1.2)
    AssumedControl("robust", LIFTED, 0.0, AFTER, 1.5).matches("robust", LIFTED, 0.0, AFTER, 1.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"law": "pid"}, "is for the controller 'robust', in use is 'pid'"),
        ({"payload": LIFTED + 1e-9}, "takes payload parameter 0 for 0, but it takes it for 1e-09"),
        ({"rested": 1.1}, "held for 1.10 s, but it holds after 1.20 s; try again then"),
        ({"after": AFTER, "after_time": 1.5}, "about a motion from rest, not taking over from plan eeeeeeeeeeee at"),
    ],
)
def test_control_that_is_not_as_assumed_is_refused(changes, message):
    how = {"law": "robust", "payload": LIFTED, "rested": 5.0, **changes}
    with pytest.raises(CertificateMismatch, match=message):
        AssumedControl("robust", LIFTED, 1.2).matches(**how)


def test_another_moment_to_take_over_is_refused():
    control = AssumedControl("robust", LIFTED, 0.0, AFTER, 1.5)
    for after, time in (("", 0.0), ("d" * 64, 1.5), (AFTER, 1.4)):
        with pytest.raises(CertificateMismatch, match="taking over from plan eeeeeeeeeeee at 1.500 s, not "):
            control.matches("robust", LIFTED, 9.0, after, time)


def test_a_payload_that_is_none_is_refused():
    for payload in (np.zeros(9), np.full(10, np.nan)):
        with pytest.raises(CertificateMismatch, match="it must be 10 finite numbers"):
            AssumedControl("robust", payload)


def test_a_dictionary_with_a_broken_control_is_refused(certificate):
    with pytest.raises(CertificateMismatch, match="its entry control is"):
        Certificate.from_dict({**certificate.to_dict(), "control": {"law": "robust"}})
