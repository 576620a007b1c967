"""The certificate: what it is bound to, and its way through JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.model.box import Box
from sysid_ros.core.planning.certificate import Certificate, CertificateMismatch, box_hash

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


@pytest.mark.parametrize("now", [9.99, 20.0, 1e9, np.nan])
def test_outside_its_time_it_is_refused(certificate, trajectory, now):
    with pytest.raises(CertificateMismatch, match="valid from 10.000 s to 20.000 s, but the time is"):
        certificate.matches(trajectory, ARM, PAYLOAD, now=now)


def test_json_round_trip(certificate):
    copy = Certificate.from_dict(json.loads(json.dumps(certificate.to_dict(), allow_nan=False)))
    assert copy.to_dict() == certificate.to_dict()
    np.testing.assert_array_equal(copy.start_q, certificate.start_q)
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
