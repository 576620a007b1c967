"""The certificate: what it is bound to, its identity, and its way through JSON."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import pytest

from sysid_ros.core.certification.assumptions import box_hash
from sysid_ros.core.certification.certificate import Certificate, CertificateMismatch, Margin, margin_rows
from sysid_ros.core.certification.stop_model import LimitKind
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.baselines import PidSettings
from sysid_ros.core.control.settings import ControlLaw, RobustSettings

ARM, PAYLOAD = Box(np.zeros(98), np.ones(98)), Box(np.zeros(10), np.ones(10))
LAW, LIFTED = RobustSettings().law, np.arange(10.0)


@pytest.fixture
def trajectory(make_bezier):
    return make_bezier(0)


@pytest.fixture
def certificate(trajectory):
    return Certificate(
        path_hash=trajectory.hash(),
        box_hash=box_hash(ARM, PAYLOAD),
        scene_hash="22" * 32,
        robot_hash="33" * 32,
        control_law=LAW,
        nominal_payload=LIFTED,
        predecessor=None,
        takeover_time=0.0,
        rest_before=1.2,
        tracking_bound=np.full(7, 0.01),
        velocity_bound=np.full(7, 0.03),
        torque_bound=np.full(7, 0.5),
        torque_squares=np.arange(1.0, 22.0).reshape(3, 7),
        torque_fraction=1.0,
        brake_time=0.5,
        claims="everything",
        margins=(Margin(LimitKind.TORQUE, 0.25, "joint 'joint_2'", 0.1),),
        issued_at=10.0,
        expires_at=20.0,
    )


def test_it_matches_what_it_was_issued_for(certificate, trajectory):
    assert certificate.matches(trajectory, ARM, PAYLOAD) is None
    assert certificate.matches(trajectory, ARM, PAYLOAD, scene_hash="22" * 32, now=10.0) is None
    certificate.matches_control(LAW, LIFTED)
    certificate.matches_start(1.2)


def test_another_path_box_scene_or_time_is_refused(certificate, trajectory, make_bezier):
    larger = Box(np.zeros(10), np.nextafter(np.ones(10), 2.0))
    boxes = [(ARM, larger), (Box(-np.ones(98), np.ones(98)), PAYLOAD), (PAYLOAD, ARM), (ARM,)]
    refused = [
        (make_bezier(1), (ARM, PAYLOAD), {}, "it was issued for path [0-9a-f]{12}, but the path is [0-9a-f]{12}"),
        *((trajectory, other, {}, "parameter box .* certify the plan again") for other in boxes),
        (trajectory, (ARM, PAYLOAD), {"scene_hash": "11" * 32}, "for scene 22.* but the arm is in 11.* certify"),
        *((trajectory, (ARM, PAYLOAD), {"now": now}, "valid from 10.000 s to 20.000 s, but the time is")
          for now in (9.99, 20.0, 1e9, np.nan)),
    ]  # fmt: skip
    for path, given, others, message in refused:
        with pytest.raises(CertificateMismatch, match=message):
            certificate.matches(path, *given, **others)


CHANGES = {
    "path_hash": "0" * 64,
    "box_hash": "0" * 64,
    "scene_hash": "0" * 64,
    "robot_hash": "0" * 64,
    "control_law": RobustSettings(period=0.002).law,
    "nominal_payload": np.nextafter(LIFTED, 100.0),
    "predecessor": "0" * 64,
    "takeover_time": 1.5,
    "rest_before": 1.3,
    "tracking_bound": np.full(7, 0.011),
    "velocity_bound": np.full(7, 0.031),
    "torque_bound": np.full(7, 0.51),
    "torque_squares": np.ones((3, 7)),
    "torque_fraction": 0.9,
    "brake_time": 0.6,
    "is_proven_throughout": True,
}
SAID_ONLY = {"claims": "nothing", "margins": (), "issued_at": 11.0, "expires_at": 21.0}
"""What a certificate says about a plan, but what does not make it another one."""


@pytest.mark.parametrize("name", CHANGES)
def test_the_plan_id_covers_every_assumption(certificate, name):
    assert replace(certificate, **{name: CHANGES[name]}).plan_id != certificate.plan_id


def test_the_plan_id_covers_nothing_else(certificate):
    assert {*CHANGES, *SAID_ONLY} == {field.name for field in fields(Certificate)}
    assert replace(certificate, **SAID_ONLY).plan_id == certificate.plan_id
    assert len(certificate.plan_id) == 64


def test_a_stated_plan_id_must_be_that_of_the_content(certificate):
    certificate.require_id(certificate.plan_id)
    with pytest.raises(CertificateMismatch, match="its plan_id is '0000.*but its content has"):
        certificate.require_id("0" * 64)


def test_json_round_trip(certificate):
    taking_over = replace(certificate, predecessor="44" * 32, takeover_time=1.5, is_proven_throughout=True)
    for one in (certificate, taking_over):
        copy = Certificate.from_dict(json.loads(json.dumps(one.to_dict(), allow_nan=False)))
        assert copy.to_dict() == one.to_dict() and copy.plan_id == one.plan_id
        assert copy.predecessor == one.predecessor and copy.control_law == LAW and copy.margins == one.margins
        assert not copy.nominal_payload.flags.writeable and not copy.tracking_bound.flags.writeable
    older = certificate.to_dict()
    del older["is_proven_throughout"]
    assert not Certificate.from_dict(older).is_proven_throughout


def test_missing_and_unknown_entries_are_named(certificate):
    data = certificate.to_dict()
    data["colour"] = data.pop("claims")
    with pytest.raises(CertificateMismatch, match="claims, colour are missing or unknown"):
        Certificate.from_dict(data)


@pytest.mark.parametrize("entry", [{"control_law": {"name": "robust"}}, {"control_law": None}, {"margins": [{}]}])
def test_a_dictionary_with_a_broken_entry_is_refused(certificate, entry):
    with pytest.raises(CertificateMismatch, match="an entry is not of the form"):
        Certificate.from_dict({**certificate.to_dict(), **entry})


def test_a_certificate_of_the_old_format_is_refused_with_its_version(certificate):
    old = {"plan_hash": "0" * 64, "method": "interval"}
    for data, version in ((old, 1), ({**certificate.to_dict(), "format_version": 2}, 2)):
        with pytest.raises(CertificateMismatch, match=f"recorded in format {version}, this version .* reads format 3"):
            Certificate.from_dict(data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"law": PidSettings().law}, "for the controller 'robust bandwidth=200.0 .*', in use is 'gravity_pid "),
        ({"law": RobustSettings(period=0.002).law}, "in use is 'robust .* period=0.002 "),
        ({"law": ControlLaw("robust")}, "in use is 'robust'"),
        ({"nominal_payload": LIFTED + 1e-9}, "nominal payload has parameter 0 = 0, in use is 1e-09"),
    ],
)
def test_control_that_is_not_as_assumed_is_refused(certificate, changes, message):
    with pytest.raises(CertificateMismatch, match=message):
        certificate.matches_control(**{"law": LAW, "nominal_payload": LIFTED, **changes})


def test_another_beginning_is_refused(certificate):
    with pytest.raises(CertificateMismatch, match="held for 1.10 s, but it holds after 1.20 s; try again then"):
        certificate.matches_start(1.1)
    taking_over = replace(certificate, predecessor="e" * 64, takeover_time=1.5)
    with pytest.raises(CertificateMismatch, match="taking over from plan eeeeeeeeeeee at 1.500 s, not a start"):
        taking_over.matches_start(9.0)


def test_numbers_that_cannot_be_are_refused(certificate):
    with pytest.raises(CertificateMismatch, match="expires at 10.0 s"):
        replace(certificate, expires_at=10.0)
    for payload in (np.zeros(9), np.full(10, np.nan)):
        with pytest.raises(ParameterOutOfRange, match="10 finite numbers"):
            replace(certificate, nominal_payload=payload)


def test_margins_in_words(certificate):
    margins = (
        Margin(LimitKind.TORQUE, 0.0354, "joint 'joint_6'", 0.075),
        Margin(LimitKind.SELF_COLLISION, 0.0071, "a and b", 1.0),
        Margin(LimitKind.POSITION, 0.5381, "joint 'joint_1'", 2.0),
        Margin(LimitKind.VELOCITY, 0.00021, "joint 'joint_1'", 2.0),
    )
    rows = margin_rows(replace(certificate, margins=margins))
    assert [row.value for row in rows] == ["3.5 %", "7 mm", "0.538 rad", "0.02 %"]
    assert [row.kind for row in rows] == ["torque", "self-collision", "position", "velocity"]
    assert rows[0].place == "joint 'joint_6', 0.075 s" and (rows[0].time, rows[0].margin) == (0.075, 0.0354)
