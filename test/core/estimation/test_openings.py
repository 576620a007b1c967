"""Recordings that contradict an assumption: it is opened, the truth is within what is opened, and there is a result.

The arm is another program's: motions, gravity and friction of :mod:`conftest`, evaluated by Pinocchio's recursion.
"""

import dataclasses
import datetime
from types import SimpleNamespace

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.cli.calibrate import describe_fit
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.estimation.calibration import (
    CalibrationInconsistent,
    LoadedRecording,
    calibrate_arm,
    describe_arm,
    describe_doubts,
    empty_hand,
    reference_weight,
)
from sysid_ros.core.estimation.openings import LAG, LOAD, TILT, HeldOutFit, calibrate_openly, find_openings, fit_halves
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.calibrated import apply_calibration, hash_kinematics, open_arm
from sysid_ros.core.model.calibration import (
    ArmCalibration,
    CalibrationRecord,
    Opening,
    load_calibration,
    opened_settings,
    save_calibration,
)

SECONDS = 2.0
SETTINGS = EstimatorSettings()
RECORD = CalibrationRecord(serial="A1", date="2026-11-22")
LATE, TILTED = 18, np.radians(6.0)


@pytest.fixture(scope="module")
def record(tools, robot):
    """A recording with the empty hand as it is stated; what is broken is changed in the truth, or in the torques."""
    motion = tools.FourierMotion(robot, 5, amplitude=0.8)

    def of(theta=None, payload=None, gravity=None, break_torque=lambda tau: tau):
        theta, payload = robot.theta_nominal if theta is None else theta, np.zeros(10) if payload is None else payload
        exact = tools.record(robot, theta, payload, motion, SECONDS, gravity=gravity)
        block = tools.measure(robot, exact.q, exact.v, break_torque(exact.tau), np.random.default_rng(1))
        return LoadedRecording("empty", [block], empty_hand())

    return of


def late(tau):
    return np.concatenate([np.repeat(tau[:1], LATE, axis=0), tau[:-LATE]])


def changed(robot, joint, entry, value):
    theta = robot.theta_nominal.copy()
    theta[10 * robot.n + 4 * joint + entry] += value
    return theta


def tilted(robot):
    return pin.exp3(TILTED * np.array([0.6, 0.8, 0.0])) @ robot.gravity


def first(robot, recording):
    with pytest.raises(CalibrationInconsistent):
        calibrate_arm(robot, [recording], RECORD, SETTINGS, seeks_remedies=False)
    return find_openings(robot, [recording], SETTINGS)


def test_nothing_is_opened_where_nothing_is_contradicted(robot, record):
    opened = []
    calibration = calibrate_openly(robot, [record()], RECORD, SETTINGS, on_opening=opened.append)
    assert not opened and not calibration.record.openings
    assert not any("not as assumed" in text for text in describe_doubts(calibration.record))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "subject", "truth", "broken"),
    [
        ("friction", "joint_4", 2.0, lambda robot: {"theta": changed(robot, 3, 0, 2.0)}),
        ("torque_offset", "joint_5", 0.5, lambda robot: {"theta": changed(robot, 4, 3, -0.5)}),
        (TILT, "", TILTED, lambda robot: {"gravity": tilted(robot)}),
        (LAG, "", 1e-3 * LATE, lambda robot: {"break_torque": late}),
        (LOAD, "empty", 0.0, lambda robot: {"payload": robot.payload_prior.nominal}),
    ],
)
def test_what_is_broken_is_opened_and_holds_the_truth(robot, record, name, subject, truth, broken):
    (one,) = first(robot, record(**broken(robot)))
    assert (one.assumption, one.subject) == (name, subject)
    if name == LAG:
        assert abs(one.center - truth) <= one.radius <= 0.02
    elif name != LOAD:
        assert one.least <= truth <= one.radius <= 4.0 * truth, "the box around holds up to a few of them, too"
    opened = []
    calibration = calibrate_openly(robot, [record(**broken(robot))], RECORD, SETTINGS, on_opening=opened.append)
    assert opened[0] == one and calibration.record.openings
    assert [text for text in describe_doubts(calibration.record) if str(one) in text]
    assert apply_calibration(calibration, robot).uncalibrated is robot


@pytest.mark.slow
def test_the_bounds_hold_the_arm_as_it_is(robot, record):
    """A tilted base, and an arm whose base parameters are those of the truth."""
    calibration = calibrate_openly(robot, [record(gravity=tilted(robot))], RECORD, SETTINGS)
    found = describe_arm(robot, calibration, SETTINGS)
    assert found.base.contains(robot.theta_nominal)
    across = [k for k, name in enumerate(found.constants.names) if name.startswith("gravity across")]
    assert len(across) == 2
    size = np.hypot(*np.maximum(np.abs(found.constants.lower[across]), np.abs(found.constants.upper[across])))
    assert size >= 9.81 * np.sin(TILTED)
    shared = np.concatenate([robot.theta_nominal, np.zeros(2 * robot.n)])
    known = calibration.matrix[:, :-3] @ shared
    tilt = np.abs(calibration.matrix[:, -3:]).sum(axis=1) * 9.81 * np.sin(TILTED)
    assert np.all(known - tilt <= calibration.upper) and np.all(known + tilt >= calibration.lower)


@pytest.mark.slow
def test_where_several_are_broken_the_calibration_goes_on(robot, record):
    """A load that nobody stated, on a tilted base, with torques that come late."""
    recording = record(payload=robot.payload_prior.nominal, gravity=tilted(robot), break_torque=late)
    opened = []
    calibration = calibrate_openly(robot, [recording], RECORD, SETTINGS, on_opening=opened.append)
    assert len(opened) > 1 and calibration.record.share < 1.01
    assert len({(one.assumption, one.subject) for one in calibration.record.openings}) == len(
        calibration.record.openings
    )


@pytest.mark.slow
def test_two_recordings_are_opened_together(robot, record):
    two = [dataclasses.replace(record(gravity=tilted(robot)), name=name) for name in ("a", "b")]
    (one,) = find_openings(robot, two, SETTINGS)
    assert one.assumption == TILT and one.least <= TILTED <= one.radius


@pytest.mark.slow
def test_a_weight_that_was_not_attached_is_opened_and_only_its_recording(robot, tools):
    motions = [tools.FourierMotion(robot, seed, amplitude=0.8) for seed in (5, 6)]
    exact = [tools.record(robot, robot.theta_nominal, np.zeros(10), motion, SECONDS) for motion in motions]
    blocks = [tools.measure(robot, one.q, one.v, one.tau, np.random.default_rng(2)) for one in exact]
    loads = (empty_hand(), reference_weight(robot, 2.0, 0.002))
    two = [LoadedRecording(*parts) for parts in zip(("empty", "weight"), [[one] for one in blocks], loads, strict=True)]
    calibration = calibrate_openly(robot, two, RECORD, SETTINGS)
    assert [(one.assumption, one.subject) for one in calibration.record.openings] == [(LOAD, "weight")]
    assert calibration.record.weights == () and "something within the prior" in calibration.record.recordings[1]


def test_where_the_prior_is_of_the_whole_end_effector_no_load_is_opened(robot, record):
    whole = dataclasses.replace(robot, payload_prior=robot.prior("safe_id_table_1"))
    found = find_openings(whole, [record(theta=changed(robot, 3, 0, 2.0))], SETTINGS)
    assert [(one.assumption, one.subject) for one in found] == [("friction", "joint_4")]


@pytest.mark.slow
def test_efforts_of_the_wrong_sign_and_another_arm_are_no_result(robot, record):
    for broken in (lambda tau: -tau, lambda tau: 3.0 * tau + 20.0 * np.sin(np.arange(len(tau)))[:, None]):
        with pytest.raises(CalibrationInconsistent):
            calibrate_openly(robot, [record(break_torque=broken)], RECORD, SETTINGS)


def test_positions_that_do_not_belong_to_velocities_are_no_hypothesis(robot, record):
    good = record().blocks[0]
    block = SampleBlock(good.stamps, good.sequence, good.q, good.v + 0.5, good.tau)
    with pytest.raises(CalibrationInconsistent, match="elocit"):
        calibrate_openly(robot, [LoadedRecording("bad", [block], empty_hand())], RECORD, SETTINGS)


def test_an_opened_arm_is_wider_where_it_is_opened_and_nowhere_else(robot):
    openings = [
        Opening("torque_offset", "joint_2", 0.0, 0.3),
        Opening("friction", "joint_3", 0.0, 0.2),
        Opening("torque_gain", "joint_4", 0.0, 0.04),
        Opening("torque_error", "joint_5", 0.0, 0.1),
        Opening(TILT, "", 0.0, 0.05, 0.01),
        Opening(LAG, "", 0.02, 0.005),
    ]
    wide = open_arm(robot, openings)
    grown = wide.theta_box.upper - robot.theta_box.upper
    offset, coulomb = 10 * robot.n + 4 * 1 + 3, 10 * robot.n + 4 * 2
    assert np.flatnonzero(grown).tolist() == [offset, coulomb, coulomb + 1]
    assert grown[offset] == pytest.approx(0.3) and grown[coulomb] == pytest.approx(0.2)
    assert robot.theta_box.lower[offset] - wide.theta_box.lower[offset] == pytest.approx(0.3)
    gain = wide.sensors.gain_radius - robot.sensors.gain_radius
    assert gain[3] > 0.039 and np.count_nonzero(gain) == 1
    assert np.flatnonzero(wide.sensors.effort_absolute_error - robot.sensors.effort_absolute_error).tolist() == [4]
    assert opened_settings(openings) == {"torque_lag": 0.02, "torque_lag_tolerance": 0.005, "gravity_cone": 0.05}
    assert "15 to 25 ms late" in str(openings[5]) and "2.9 deg (the data need 0.57 at least)" in str(openings[4])
    assert open_arm(robot, openings[4:]) is robot


def test_openings_are_part_of_the_file_and_settings_without_them_are_refused(robot, tmp_path):
    openings = (Opening(TILT, "", 0.0, 0.05, 0.01), Opening("torque_offset", "joint_2", 0.0, 0.3, 0.2))
    calibration = ArmCalibration(
        robot=robot.name,
        kinematics=hash_kinematics(robot),
        record=dataclasses.replace(RECORD, openings=openings),
        matrix=np.eye(16 * robot.n + 3)[:1],
        lower=robot.theta_box.lower[:1],
        upper=robot.theta_box.upper[:1],
        box=robot.theta_box,
        nominal=robot.theta_nominal,
    )
    save_calibration(calibration, tmp_path / "arm.yaml")
    again = load_calibration(tmp_path / "arm.yaml")
    assert again.record.openings == openings
    known = apply_calibration(again, robot)
    with pytest.raises(ParameterOutOfRange, match="--set gravity_cone=0.05"):
        StreamingEstimator(known, SETTINGS)
    StreamingEstimator(known, EstimatorSettings(gravity_cone=0.05))
    record = dataclasses.replace(RECORD, openings=(Opening(LAG, "", 0.02, 0.005),))
    late = apply_calibration(dataclasses.replace(calibration, record=record), robot)
    StreamingEstimator(late, EstimatorSettings(torque_lag=0.02, torque_lag_tolerance=0.005))
    for lag in (0.01, 0.04):
        with pytest.raises(ParameterOutOfRange, match="--set torque_lag=0.02 --set torque_lag_tolerance=0.005"):
            StreamingEstimator(late, EstimatorSettings(torque_lag=lag, torque_lag_tolerance=0.005))
    text = (tmp_path / "arm.yaml").read_text().replace("torque_offset", "colour")
    (tmp_path / "arm.yaml").write_text(text)
    with pytest.raises(ModelError, match="its openings"):
        load_calibration(tmp_path / "arm.yaml")


def test_a_calibration_is_believed_less_from_day_to_day(robot):
    """Rows hold for friction, offsets and gains that have moved by what the record allows, and for no body."""
    n, rng = robot.n, np.random.default_rng(4)
    matrix, then = rng.normal(size=(20, 16 * n + 3)), np.concatenate([robot.theta_nominal, np.zeros(2 * n + 3)])
    value, half = matrix @ then, Box.around(robot.theta_nominal, 0.1 * robot.theta_box.radius)
    record = dataclasses.replace(RECORD, drift=0.005)
    calibration = ArmCalibration(
        robot.name, hash_kinematics(robot), record, matrix, value, value, half, robot.theta_nominal
    )
    day = datetime.date.fromisoformat(RECORD.date)
    friction = np.arange(10 * n, 14 * n).reshape(n, 4)[:, [0, 1, 3]].ravel()
    for days, share in ((0, 0.0), (40, 0.2), (1000, 1.0)):
        known = apply_calibration(calibration, robot, today=day + datetime.timedelta(days=days))
        width = known.theta_box.width / np.maximum(robot.theta_box.width, 1e-300)
        bodies = robot.theta_box.width[: 10 * (n - 1)] > 0.0  # the last one has a gripper, which may be in any state
        assert width[: 10 * (n - 1)][bodies] == pytest.approx(0.1), "bodies do not drift"
        assert width[friction] == pytest.approx(min(0.1 + 2.0 * share, 1.0))
        assert np.allclose(known.calibration.upper, value) == (share == 0.0)
        for _ in range(50):
            now = then.copy()
            now[friction] += share * robot.theta_box.width[friction] * rng.choice([-1.0, 1.0], friction.size)
            now[15 * n : 16 * n] += share * 2.0 * robot.sensors.gain_radius * rng.choice([-1.0, 1.0], n)
            assert np.all(matrix @ now <= known.calibration.upper + 1e-9)
            assert np.all(matrix @ now >= known.calibration.lower - 1e-9)
    with pytest.raises(ModelError, match="its drift is -1"):
        apply_calibration(dataclasses.replace(calibration, record=dataclasses.replace(record, drift=-1.0)), robot)


@pytest.mark.slow
def test_halves_predict_each_other_and_tell_a_lag(robot, tools):
    """At 250 Hz for 12 s; without a lag none is claimed."""
    motion = tools.FourierMotion(robot, 3, amplitude=0.5)
    radius = robot.theta_box.radius.copy()
    wide = dataclasses.replace(robot, theta_box=Box.around(robot.theta_nominal, radius))
    theta = wide.theta_box.lower + np.random.default_rng(2).uniform(0.2, 0.8, radius.size) * wide.theta_box.width
    exact = tools.record(robot, theta, np.zeros(10), motion, 12.0, rate=250.0)
    for shift in (0, 5):
        tau = np.concatenate([np.repeat(exact.tau[:1], shift, axis=0), exact.tau[: len(exact) - shift]])
        block = SampleBlock(exact.stamps, exact.sequence, exact.q, exact.v, tau)
        fit = fit_halves(robot, [LoadedRecording("empty", [block], empty_hand())])
        assert np.all(fit.residual < 0.5 * fit.nominal)
        if shift:
            assert fit.lag is not None and abs(fit.lag.center - 0.02) <= fit.lag.radius
        else:
            assert fit.lag is None


def test_a_fit_that_predicts_worse_says_so(robot):
    one = SimpleNamespace(torque_lag=0.0, tilt=0.0)
    nominal = np.full(robot.n, 0.2)
    for worse, is_said in ((0.3, True), (0.1, False)):
        residual = np.where(np.arange(robot.n) == 2, worse, 0.1)
        text = [
            line
            for line in describe_fit(robot, HeldOutFit(one, (), (one, one), residual, nominal))
            if "worse" in str(line)
        ]
        assert bool(text) == is_said and (not is_said or "joint_3 worse than the nominal model" in text[0])


def test_halves_that_disagree_tell_no_lag():
    def lag(*lags):
        halves = tuple(SimpleNamespace(torque_lag=one) for one in lags)
        return HeldOutFit(None, (), halves, np.zeros(7), np.zeros(7)).lag

    assert lag(0.02, 0.024).center == pytest.approx(0.022) and lag(0.02, 0.024).radius == 0.005
    assert lag(0.02, 0.09) is None and lag(0.004, 0.02) is None
