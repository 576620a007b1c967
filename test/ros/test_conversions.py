"""Every conversion there and back, and what a message that does not fit gets."""

import dataclasses

import numpy as np
import pytest
from rclpy.serialization import deserialize_message, serialize_message

from sysid_msgs import msg as messages
from sysid_ros.core.certification.assumptions import box_hash
from sysid_ros.core.certification.certificate import Certificate, CertificateMismatch, Margin
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.stop_model import LimitKind
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control import RobustSettings
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.estimation.parameters.estimate import Alarm, AlarmCode, EstimateStatus, ParameterEstimate, Quantity
from sysid_ros.core.model.inertia import PARAMETER_NAMES, from_com_form
from sysid_ros.core.regressors.rest_torque import RestTorque, WeighedBox
from sysid_ros.core.trajectories.braking import BrakedTrajectory
from sysid_ros.core.trajectories.families import BezierTrajectory, FourierTrajectory
from sysid_ros.ros.conversions.common import InvalidMessage, stamp_from_message, stamp_to_message
from sysid_ros.ros.conversions.estimate import (
    estimate_from_message,
    estimate_to_message,
    inertia_from_message,
    inertia_message,
    information_from_message,
    truth_from_message,
    truth_to_message,
)
from sysid_ros.ros.conversions.plans import (
    certificate_from_message,
    certificate_to_message,
    certified_from_message,
    certified_plan_from_message,
    certified_plan_to_message,
    certified_to_message,
    control_law_from_message,
    control_law_to_message,
    trajectory_from_message,
    trajectory_to_message,
)
from sysid_ros.ros.conversions.samples import Samples, samples_from_message, samples_to_message

JOINTS = ("shoulder", "elbow", "wrist")
STAMP = 1_700_000_000_123_456_789


def over_the_wire(message):
    """What a receiver gets."""
    return deserialize_message(serialize_message(message), type(message))


def make_samples(count=20, n=3):
    rng = np.random.default_rng(1)
    arrays = {name: rng.normal(size=(count, n)) for name in ("q", "v", "tau", "q_d", "v_d", "a_d", "tau_command")}
    valid = np.ones(count, dtype=bool)
    valid[5] = False
    stamps = STAMP + 1_000_000 * np.arange(count, dtype=np.int64)
    modes = np.arange(count, dtype=np.uint8) % 5
    return Samples(stamps, 7 + np.arange(count), **arrays, valid=valid, mode=modes, payload_epoch=3, dropped=11)


def make_estimate(**changes):
    values = from_com_form(1.81, [0.01, -0.02, 0.1], np.diag([0.01, 0.02, 0.015]))
    fields = dict(
        values=values, lower=values - 0.1, upper=values + 0.2, method="left_inverse", guarantee="contains the truth",
        is_guaranteed=True, is_consistent=True, alarm=None, target="payload", frame="joint_7", number_of_windows=17,
        data_seconds=6.5, condition_number=12.5,
        error_budget={"torque": np.arange(10.0), "friction": np.arange(10.0) ** 2},
    )  # fmt: skip
    return ParameterEstimate(**{**fields, **changes})


def make_fourier():
    rng = np.random.default_rng(2)
    sine, cosine = rng.normal(size=(2, 3, 4))
    order = np.arange(1, 5)
    sine -= sine.mean(axis=1, keepdims=True)
    cosine -= (cosine @ order)[:, None] * order / (order @ order)
    return FourierTrajectory([0.1, 0.2, 0.3], sine, cosine, 0.2, 5.0)


def make_bezier():
    return BezierTrajectory([0.0, 0.1, 0.2], [0.1, 0.0, 0.0], [0.0, 0.2, 0.0], [1.0, -0.5, 0.4], 2.5)


def make_certificate(trajectory):
    n = trajectory.n
    return Certificate(
        path_hash=trajectory.hash(), box_hash="ab" * 32, scene_hash="cd" * 32, robot_hash="ef" * 32,
        control_law=ControlLaw("robust", (("bandwidth", 200.0), ("period", 0.001))), nominal_payload=np.arange(10.0),
        predecessor="12" * 32, takeover_time=1.5, rest_before=0.0, tracking_bound=0.01 * np.arange(1.0, n + 1.0),
        velocity_bound=np.full(n, 0.03), torque_bound=np.full(n, 2.0),
        torque_squares=np.arange(3.0 * n).reshape(3, n), torque_fraction=0.9, brake_time=0.4,
        claims="everything", issued_at=10.0, expires_at=70.0,
        margins=(Margin(LimitKind.VELOCITY, 0.2, "joint 'elbow'", 0.5), Margin(LimitKind.GROUND, 0.01, "hand", 1.0)),
    )  # fmt: skip


def test_samples_there_and_back_keep_every_bit():
    samples = make_samples()
    batch = over_the_wire(samples_to_message(samples, JOINTS, "base"))
    received = samples_from_message(batch, JOINTS)
    for field in dataclasses.fields(samples):
        np.testing.assert_array_equal(getattr(received, field.name), getattr(samples, field.name), err_msg=field.name)
    # The stamp of a batch is the stamp of its last sample.
    assert stamp_from_message(batch.header.stamp) == STAMP + 19_000_000 and batch.header.frame_id == "base"


def test_joints_are_matched_by_name():
    samples = make_samples()
    batch = samples_to_message(samples, JOINTS, "base")
    received = samples_from_message(batch, ("wrist", "shoulder", "elbow"))
    np.testing.assert_array_equal(received.tau, samples.tau[:, [2, 0, 1]])


def test_invalid_samples_split_the_blocks_the_estimator_gets():
    blocks, notices = make_samples().blocks()
    assert notices == []
    sequences = np.concatenate([block.sequence for block in blocks])
    assert sequences.tolist() == [number for number in range(7, 27) if number != 12]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("shoulder", "elbow", "hand"), "unknown joint 'hand'; the robot has shoulder, elbow, wrist"),
        (("shoulder", "elbow"), "lacks 'wrist'"),
        (("shoulder", "elbow", "elbow"), "'elbow' more than once"),
    ],
)
def test_wrong_joint_names_are_refused(names, message):
    batch = samples_to_message(make_samples(), names, "base")
    with pytest.raises(InvalidMessage, match=message):
        samples_from_message(batch, JOINTS)


def test_samples_with_a_gap_are_not_one_batch():
    samples = make_samples()
    gap = dataclasses.replace(samples, sequence=np.where(samples.sequence > 10, samples.sequence + 1, samples.sequence))
    with pytest.raises(InvalidMessage, match="gap"):
        samples_to_message(gap, JOINTS, "base")


def test_estimate_there_and_back():
    estimate = dataclasses.replace(make_estimate(), origin=("a session", 2))
    gram = np.arange(100.0).reshape(10, 10)
    message = over_the_wire(estimate_to_message(estimate, STAMP, gram))
    received = estimate_from_message(message)
    for field in dataclasses.fields(estimate):
        if field.name != "error_budget":
            np.testing.assert_array_equal(getattr(received, field.name), getattr(estimate, field.name))
    assert list(received.error_budget) == ["torque", "friction"]
    np.testing.assert_array_equal(received.error_budget["friction"], estimate.error_budget["friction"])
    np.testing.assert_array_equal(information_from_message(message), gram)
    assert (stamp_from_message(message.header.stamp), message.payload_epoch) == (STAMP, 2)


def test_what_an_estimate_proves_is_data_and_cannot_be_claimed():
    flags = np.arange(10) % 3 == 0
    proven = make_estimate(is_narrower=flags, narrower=frozenset(Quantity))
    partly = make_estimate(
        is_narrower=flags,
        narrower=frozenset({Quantity.COM}),
        shortfall="record for longer",
        payload_change="it slipped",
        doubt="another arm",
    )
    cases = {
        EstimateStatus.IDENTIFIED: proven,
        EstimateStatus.PARTIAL: partly,
        EstimateStatus.PRIOR_ONLY: make_estimate(),
        EstimateStatus.NO_DATA: make_estimate(number_of_windows=0),
        EstimateStatus.INCONSISTENT: make_estimate(is_consistent=False),
    }
    for status, estimate in cases.items():
        message = over_the_wire(estimate_to_message(estimate, STAMP))
        received = estimate_from_message(message)
        assert message.status == received.status == estimate.status == status
        assert received.narrower == estimate.narrower and received.shortfall == estimate.shortfall
        assert (received.payload_change, received.doubt) == (estimate.payload_change, estimate.doubt)
        if status is not EstimateStatus.IDENTIFIED:
            message.status = message.IDENTIFIED
            with pytest.raises(InvalidMessage, match=f"is IDENTIFIED, but its other fields say {status.name}"):
                estimate_from_message(message)
    assert [int(status) for status in EstimateStatus] == [
        getattr(messages.ParameterEstimate, status.name) for status in EstimateStatus
    ]


def test_estimate_in_another_order_is_sorted():
    estimate, gram = make_estimate(), np.arange(100.0).reshape(10, 10)
    message = estimate_to_message(estimate, STAMP, gram)
    for name in ("values", "lower", "upper"):
        setattr(message, name, np.array(getattr(message, name))[::-1].copy())
    for name in ("names", "units"):
        setattr(message, name, list(getattr(message, name))[::-1])
    message.information = gram[::-1, ::-1].ravel().copy()
    message.error_shares = [share for term in estimate.error_budget.values() for share in term[::-1]]
    received = estimate_from_message(message)
    np.testing.assert_array_equal(received.values, estimate.values)
    np.testing.assert_array_equal(received.error_budget["torque"], estimate.error_budget["torque"])
    np.testing.assert_array_equal(information_from_message(message), gram)


def test_alarm_without_estimate_survives():
    nothing = np.full(10, np.nan)
    for alarm in (
        Alarm(AlarmCode.SENSOR_MISMATCH, "joint_2 disagrees", "joint_2", 0, 0.05),
        Alarm(AlarmCode.JOINTLY_INCONSISTENT, "windows are infeasible"),
    ):
        sent = make_estimate(values=nothing, lower=nothing, upper=nothing, is_consistent=False, alarm=alarm)
        received = estimate_from_message(over_the_wire(estimate_to_message(sent, STAMP)))
        assert np.isnan(received.values).all() and not received.is_consistent
        assert repr(received.alarm) == repr(alarm)  # NaN included


@pytest.mark.parametrize("is_guaranteed", [True, False])
def test_whether_bounds_are_guaranteed_survives_whatever_the_sentence_says(is_guaranteed):
    estimate = make_estimate(guarantee="NOT guaranteed" if is_guaranteed else "yes", is_guaranteed=is_guaranteed)
    assert estimate_from_message(over_the_wire(estimate_to_message(estimate, STAMP))).is_guaranteed is is_guaranteed


def test_codes_of_alarms_are_those_of_the_message():
    assert all(getattr(messages.ParameterEstimate, code.name) == code for code in AlarmCode)
    assert estimate_to_message(make_estimate(), STAMP).alarm_code == messages.ParameterEstimate.NO_ALARM == 0


def test_empty_messages_mean_none():
    assert estimate_from_message(messages.ParameterEstimate()) is None
    assert not information_from_message(messages.ParameterEstimate()).any()
    assert certificate_from_message(messages.Certificate(), JOINTS) is None


@pytest.mark.parametrize(
    "trajectory", [make_fourier(), make_bezier(), BrakedTrajectory(make_fourier(), 1.0, 0.5)], ids=lambda t: t.kind
)
def test_certified_trajectory_there_and_back(trajectory):
    certificate = make_certificate(trajectory)
    message = over_the_wire(certified_to_message(trajectory, certificate, JOINTS, STAMP, "base"))
    received, slip = certified_from_message(message, JOINTS)
    assert received.hash() == trajectory.hash()
    times = np.linspace(-0.1, trajectory.duration + 0.1, 50)
    for mine, theirs in zip(trajectory.sample(times), received.sample(times), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert slip.to_dict() == certificate.to_dict()


def test_certificate_follows_the_joint_names():
    certificate = make_certificate(make_bezier())
    message = certificate_to_message(certificate, JOINTS)
    turned = {"tracking_bound": [0.03, 0.02, 0.01], "torque_squares": certificate.torque_squares[:, ::-1]}
    message.plan_id = dataclasses.replace(certificate, **turned).plan_id
    received = certificate_from_message(message, ("wrist", "elbow", "shoulder"))
    np.testing.assert_array_equal(received.tracking_bound, [0.03, 0.02, 0.01])
    np.testing.assert_array_equal(received.torque_squares, turned["torque_squares"])
    message.torque_squares.append(1.0)
    with pytest.raises(InvalidMessage, match="torque_squares has 10 entries for 3 joints"):
        certificate_from_message(message, JOINTS)


def batch_message():
    return samples_to_message(make_samples(), JOINTS, "base")


def estimate_message():
    return estimate_to_message(make_estimate(), STAMP)


def path_message(trajectory):
    return trajectory_to_message(trajectory, JOINTS)


def certificate_message():
    return certificate_to_message(make_certificate(make_bezier()), JOINTS)


def changed(message, path, value):
    """The message with an entry replaced: names of fields and indices lead to it."""
    *parents, last = path
    place = message
    for key in parents:
        place = place[key] if isinstance(key, int) else getattr(place, key)
    if isinstance(last, int):
        place[last] = value
    else:
        setattr(place, last, value)
    return message


@pytest.mark.parametrize(
    ("message", "path", "value", "said"),
    [
        (batch_message(), ["efforts"], [0.0] * 59, "efforts has 59 entries; 20 samples of 3 joints need 60"),
        (estimate_message(), ["alarm_code"], 99, "alarm_code is 99; known are 1 SENSOR_MISMATCH"),
        (estimate_message(), ["units", 0], "g", "units is g, kg m"),
        (estimate_message(), ["names", 0], "weight", "needed: m, mcx"),
        (path_message(make_fourier()), ["coefficients", 0, "data", 1], 0.2 + 1e-15, "hash is"),
        (
            path_message(make_bezier()),
            ["joint_names"],
            ["elbow", "shoulder", "wrist"],
            "another order than the robot's",
        ),
        (path_message(make_fourier()), ["coefficients", 1, "shape"], [3, 5], r"has 12 numbers for shape \(3, 5\)"),
        (certificate_message(), ["brake_time"], 0.3, "its plan_id is .* but its content has"),
        (certificate_message(), ["tracking_bound", 2], np.nan, "tracking_bound is nan for wrist"),
        (certificate_message(), ["margin_limits", 0], "patience", "margin_limits .*patience"),
        (certificate_message(), ["margin_limits"], ["velocity"], "margins has 2 entries for 1 limits"),
    ],
)
def test_messages_that_do_not_fit_are_refused(message, path, value, said):
    read = {
        messages.SampleBatch: lambda given: samples_from_message(given, JOINTS),
        messages.ParameterEstimate: estimate_from_message,
        messages.Trajectory: lambda given: trajectory_from_message(given, JOINTS),
        messages.Certificate: lambda given: certificate_from_message(given, JOINTS),
    }[type(message)]
    read(message)
    with pytest.raises((InvalidMessage, CertificateMismatch), match=said):
        read(changed(message, path, value))


def test_a_control_law_with_a_missing_value_is_refused():
    message = control_law_to_message(RobustSettings().law)
    assert control_law_from_message(message) == RobustSettings().law
    message.settings = message.settings[:-1]
    with pytest.raises(InvalidMessage, match="settings has 6 entries for 7 names"):
        control_law_from_message(message)


def test_a_certified_plan_there_and_back():
    path, box = make_bezier(), Box(np.zeros(10), np.ones(10))
    scene = Scene((Obstacle("box", [1.0, 0.0, 0.0], [0.1, 0.2, 0.3]),), ground_height=-0.1)
    plan = CertifiedPlan(path, make_certificate(path), (Box(-np.ones(42), np.ones(42)), box), scene, "an arm")
    received = certified_plan_from_message(over_the_wire(certified_plan_to_message(plan, JOINTS)), JOINTS)
    assert received.to_dict() == plan.to_dict() and received == plan
    bare = certified_to_message(path, plan.certificate, JOINTS)
    with pytest.raises(InvalidMessage, match="robot_name is empty"):
        certified_plan_from_message(bare, JOINTS)


def make_rest() -> RestTorque:
    return RestTorque(
        tuple(JOINTS), np.array([0.1, -0.2, 0.3]), Box(np.array([-1.0, 2.0, 0.1]), np.array([1.0, 2.5, 0.1]))
    )


def test_a_torque_at_rest_there_and_back():
    path, box, rest = make_bezier(), Box(np.zeros(10), np.ones(10)), make_rest()
    boxes = Box(-np.ones(42), np.ones(42)), WeighedBox.of(box, rest)
    plan = CertifiedPlan(path, make_certificate(path), boxes, Scene(), "an arm")
    received = certified_plan_from_message(over_the_wire(certified_plan_to_message(plan, JOINTS)), JOINTS)
    assert received.to_dict() == plan.to_dict() and CertifiedPlan.from_dict(plan.to_dict()).to_dict() == plan.to_dict()
    assert box_hash(*received.boxes) == box_hash(*boxes) != box_hash(boxes[0], box)
    estimate = dataclasses.replace(make_estimate(), rest=rest)
    weighed = estimate_from_message(over_the_wire(estimate_to_message(estimate, STAMP)))
    assert box_hash(weighed.box) == box_hash(estimate.box) != box_hash(make_estimate().box)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("rest_posture", [0.1], "posture of a torque at rest.*each of 3 joints"),
        ("rest_torque_lower", [0.0], "rest_torque_lower has 1 entries, the upper bounds 3"),
        ("rest_torque_upper", [-9.0, 9.0, 9.0], "lower must be <= upper"),
        ("rest_torque_upper", [np.inf, 9.0, 9.0], "torque of a torque at rest"),
        ("rest_torque_upper", [np.nan, 9.0, 9.0], "lower must be <= upper"),
        ("rest_joint_names", [], "posture of a torque at rest"),
    ],
)
def test_a_torque_at_rest_that_does_not_fit_is_refused(field, value, message):
    sent = estimate_to_message(dataclasses.replace(make_estimate(), rest=make_rest()), STAMP)
    setattr(sent, field, value)
    with pytest.raises(SysidError, match=message):
        estimate_from_message(sent)


def test_truth_there_and_back():
    payload = make_estimate().values
    message = over_the_wire(truth_to_message(payload, STAMP, "joint_7", 4))
    np.testing.assert_array_equal(truth_from_message(message), payload)
    assert truth_from_message(truth_to_message(None, STAMP, "joint_7")) is None
    assert tuple(message.names) == PARAMETER_NAMES


def test_inertia_message_is_about_the_center_of_mass():
    inertia = np.array([[0.02, 0.001, 0.002], [0.001, 0.03, 0.003], [0.002, 0.003, 0.04]])
    message = inertia_message(from_com_form(2.0, [0.1, 0.2, 0.3], inertia))
    assert (message.m, message.com.y) == pytest.approx((2.0, 0.2))
    listed = [message.ixx, message.ixy, message.ixz, message.iyy, message.iyz, message.izz]
    assert listed == pytest.approx([0.02, 0.001, 0.002, 0.03, 0.003, 0.04])
    np.testing.assert_allclose(inertia_from_message(message), from_com_form(2.0, [0.1, 0.2, 0.3], inertia), atol=1e-15)


def test_stamps_before_the_epoch_and_large_ones_survive():
    for stamp in (0, 1, STAMP, -1):
        assert stamp_from_message(stamp_to_message(stamp)) == stamp
