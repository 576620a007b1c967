"""A real recording: 10 s of an LBR Med7 with an unknown tool on a tilted base, torque 20 ms late, no velocities."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.calibration import LoadedRecording, empty_hand
from sysid_ros.core.estimation.openings import calibrate_openly, fit_halves
from sysid_ros.core.estimation.parameters.estimate import AlarmCode
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator, estimate_from_samples
from sysid_ros.core.estimation.whole_arm import Motion, fit_whole_arm
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.calibration import CalibrationRecord
from sysid_ros.core.model.loader import load_robot

FILE = Path(__file__).parents[4] / "shared" / "facts" / "data" / "lbr_med7_real_10s.npz"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="the recording is not part of the repository")

AWARE = EstimatorSettings(
    torque_lag=0.02,
    torque_lag_tolerance=0.005,
    gravity_cone=0.04,
    torque_offset=0.3,
    acceleration_factor=1.0,
    acceleration_change=0.2,
    reweightings=2,
)
"""What is known of the set-up: tilt, lag, zero of the sensors, and how quiet the motion is."""


@pytest.fixture(scope="module")
def recording():
    data = np.load(FILE)
    seconds, q, tau = data["fast_t"], data["fast_q"], data["fast_tau"].astype(float)
    stamps, step = np.round(seconds[1:-1] * 1e9).astype(np.int64), float(seconds[1] - seconds[0])
    # Central differences, of positions within 5 urad and of a motion with a jerk of at most 9 rad/s^3.
    velocities, error = (q[2:] - q[:-2]) / (2.0 * step), np.full(7, 5e-6 / step + 9.0 * step**2 / 6.0)
    robot = load_robot("kuka_lbr_med7")
    # Stamps were made where the data arrived, and the motion is faster than what the robot file plans.
    sensors = dataclasses.replace(
        robot.sensors,
        velocity_error=error,
        effort_is_held=False,
        stamp_jitter=2e-5,
        position_resolution=np.full(7, 1e-5),
    )
    limits = dataclasses.replace(robot.limits, a_max=np.array([5.0, 5.0, 5.0, 5.0, 7.0, 10.0, 10.0]))
    return dataclasses.replace(robot, sensors=sensors, limits=limits), SampleBlock(
        stamps, np.arange(stamps.size), q[1:-1], velocities, tau[1:-1]
    )


def uncertain(robot, share, torque=0.1):
    theta = robot.theta_nominal
    split = robot.inertial_slice(robot.n).stop
    radius = robot.theta_box.radius.copy()
    radius[:split] = share * np.abs(theta[:split])
    sensors = dataclasses.replace(robot.sensors, effort_absolute_error=np.full(robot.n, torque), effort_friction=0.0)
    return dataclasses.replace(robot, theta_box=Box.around(theta, radius), sensors=sensors)


def averaging(recording):
    """With sensors as the shipped file has them: what vibrates is bounded in the mean."""
    robot, block = recording
    return dataclasses.replace(robot, sensors=dataclasses.replace(robot.sensors, effort_is_held=True)), block


def test_without_tilt_and_lag_the_alarm_names_the_heavy_joints(recording):
    robot, block = averaging(recording)
    estimate, _, _ = estimate_from_samples(robot, [block], EstimatorSettings(reweightings=2))
    assert not estimate.is_consistent
    assert any(name in estimate.alarm.text for name in ("lbr_A1", "lbr_A2", "lbr_A4"))
    assert "direction of gravity" in estimate.alarm.text


def test_with_tilt_and_lag_the_shipped_file_does_not_contradict_it(recording):
    """Nor does it without friction behind the sensors contradict by chance: then the last joint does."""
    robot, block = averaging(recording)
    settings = dataclasses.replace(AWARE, torque_offset=0.0)
    estimate, _, _ = estimate_from_samples(robot, [block], settings)
    assert estimate.is_consistent and estimate.upper[0] - estimate.lower[0] < 0.8
    smooth = dataclasses.replace(robot, sensors=dataclasses.replace(robot.sensors, effort_friction=0.0))
    assert not estimate_from_samples(smooth, [block], settings)[0].is_consistent


@pytest.mark.slow
def test_with_tilt_and_lag_the_payload_has_bounds(recording):
    robot, block = recording
    widths = []
    for method in ("left_inverse", "set_membership"):
        settings = dataclasses.replace(AWARE, method=method, update_windows=30)
        estimate, history, residuals = estimate_from_samples(uncertain(robot, 0.2, torque=0.35), [block], settings)
        assert estimate.is_consistent and estimate.number_of_windows > 90
        assert len(history) == (5 if method == "set_membership" else 3)
        assert estimate.radius[0] < 0.7 * robot.payload_prior.box.radius[0]
        assert np.all(np.abs(residuals.measured - residuals.explained) < 1.5 * residuals.allowed)
        widths.append(estimate.radius)
    assert np.all(widths[1] <= widths[0]) and np.sum(widths[1] < 0.9 * widths[0]) >= 5


def test_a_sensor_is_off_by_more_than_a_quarter_of_a_newton_metre(recording):
    """At 100 Hz, too, what happens between samples is little beside that: the quadrature term hides it no longer."""
    robot, block = recording
    rows = []
    estimator = StreamingEstimator(uncertain(robot, 0.2, torque=0.25), AWARE, on_rows=rows.append)
    estimator.add(block)
    assert estimator.estimate().alarm.code is AlarmCode.JOINTLY_INCONSISTENT
    quadrature = [part.errors[6, ERROR_TERMS.index("quadrature")] / part.duration[6] for part in rows]
    assert np.median(quadrature) < 0.04 and np.max(quadrature) < 0.12


def test_all_windows_together_show_what_none_shows_alone(recording):
    """The torque sensor of the last joint is off by more than 0.1 Nm; only the combination of windows tells."""
    robot, block = recording
    estimate, _, _ = estimate_from_samples(uncertain(robot, 0.2, torque=0.1), [block], AWARE)
    assert not estimate.is_consistent
    assert estimate.alarm.code is AlarmCode.JOINTLY_INCONSISTENT and estimate.alarm.joint == "lbr_A7"


@pytest.mark.slow
def test_a_calibration_ends_with_a_result_and_names_what_is_not_as_assumed(recording):
    """Nobody said that there is a tool, that the base is tilted, and that torques come late."""
    robot, block = averaging(recording)
    known = [LoadedRecording("med7", [block], empty_hand())]
    fit = fit_halves(robot, known)
    assert fit.lag is not None and abs(fit.lag.center - 0.02) < 0.008
    assert np.all(fit.residual < [0.23, 0.4, 0.12, 0.21, 0.11, 0.06, 0.1]), "as good as with a lag of each joint"
    record = CalibrationRecord("M7", "2026-11-28", openings=(fit.lag,))
    calibration = calibrate_openly(robot, known, record, EstimatorSettings())
    opened = {one.assumption: one for one in calibration.record.openings}
    assert {"load", "gravity_direction"} <= set(opened) and calibration.record.share < 1.0
    assert opened["gravity_direction"].radius > fit.fit.tilt
    assert 0.02 < fit.fit.tilt < 0.05


def test_each_half_is_predicted_from_the_other_better_than_by_the_controller(recording):
    """The controller's own external torque, of an arm that nothing touches, is the residual of the vendor's model."""
    robot, block = recording
    data = np.load(FILE)
    vendor = np.sqrt(np.mean(data["fast_tau_ext_kuka"].astype(float) ** 2, axis=0))
    middle = len(block) // 2
    halves = [Motion.of(part, robot) for part in (block.slice(0, middle), block.slice(middle))]
    for fitted, tested in (halves, halves[::-1]):
        fit = fit_whole_arm(robot, [fitted])
        rms = np.sqrt(np.mean((tested.tau - fit.predict(robot, tested)) ** 2, axis=0))
        assert np.all(rms < 0.9 * vendor)
        tilt = np.arccos(fit.gravity @ robot.gravity / (fit.gravity @ fit.gravity))
        assert 0.02 < tilt < 0.06
