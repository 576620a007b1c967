import numpy as np
import pytest
from textbook import load_steady, with_sensors

from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import SensorSimulation

N = 3000


@pytest.fixture(scope="module")
def robot():
    return load_steady()


def measure(robot, noise, seed=0, tau=None):
    sensors = SensorSimulation(robot.sensors, noise, seed)
    rng = np.random.default_rng(5)
    truth, measured = [], []
    for k in range(N):
        q, v = rng.uniform(-3, 3, 7), rng.uniform(-1, 1, 7)
        effort = rng.uniform(-30, 30, 7) if tau is None else tau
        stamp = (k + 1) * 1_000_000
        truth.append((stamp, q, v, effort))
        measured.append(sensors.measure(stamp, q, v, effort))
    return [[np.array(column) for column in zip(*rows, strict=True)] for rows in (truth, measured)]


@pytest.mark.parametrize("noise", [Noise.UNIFORM, Noise.ADVERSARIAL, Noise.GAIN])
def test_errors_stay_in_their_bounds_and_use_them(robot, noise):
    s = robot.sensors
    (stamp, q, v, tau), (stamp_m, q_m, v_m, tau_m) = measure(robot, noise)
    errors = {
        "stamp": (np.abs(stamp_m - stamp) * 1e-9, np.full(N, s.stamp_jitter)),
        "q": (np.abs(q_m - q), np.broadcast_to(0.5 * s.position_resolution, q.shape)),
        "v": (np.abs(v_m - v), np.broadcast_to(s.velocity_error, v.shape)),
        "tau": (np.abs(tau_m - tau), s.effort_relative_error * np.abs(tau) + s.effort_absolute_error),
    }
    for name, (error, bound) in errors.items():
        assert np.all(error <= bound * (1 + 1e-9) + 1e-12), name
        assert np.all(error.max(axis=0) > 0.9 * bound.max(axis=0) - 1e-12), name


@pytest.mark.parametrize("noise", [Noise.ADVERSARIAL, Noise.GAIN])
def test_adversarial_errors_have_constant_signs_and_full_size(robot, noise):
    s = robot.sensors
    (_, _, v, tau), (_, _, v_m, tau_m) = measure(robot, noise)
    assert np.all(np.sign(v_m - v) == np.sign(v_m - v)[0])
    if noise is Noise.ADVERSARIAL:
        np.testing.assert_allclose(
            np.abs(tau_m - tau), s.effort_relative_error * np.abs(tau) + s.effort_absolute_error, rtol=1e-9
        )
        assert np.all(np.sign(tau_m - tau) == np.sign(tau_m - tau)[0])
    else:
        slope = [np.polyfit(tau[:, j], (tau_m - tau)[:, j], 1) for j in range(7)]
        np.testing.assert_allclose(np.abs(slope)[:, 0], s.effort_relative_error, rtol=1e-9)
        np.testing.assert_allclose(np.abs(slope)[:, 1], s.effort_absolute_error, rtol=1e-6)


@pytest.mark.parametrize("noise", [Noise.UNIFORM, Noise.ADVERSARIAL, Noise.GAIN])
def test_vibration_keeps_the_bounds_of_a_sample_and_of_the_integral(robot, noise):
    bounded = with_sensors(robot, effort_absolute_error=2.0, effort_mean_error=0.1, effort_integral_error=0.15)
    (stamps, _, _, tau), (_, _, _, tau_m) = measure(bounded, noise, tau=np.zeros(7))
    error, period = tau_m - tau, 1e-9 * float(np.median(np.diff(stamps)))
    total = np.concatenate([np.zeros((1, 7)), np.cumsum(error, axis=0)]) * period
    apart = period * np.abs(np.subtract.outer(np.arange(len(total)), np.arange(len(total))))[..., None]
    beyond = np.max(np.abs(total[:, None] - total) - 0.1 * apart, axis=(0, 1))
    assert np.all(np.abs(error) <= 2.0) and np.all(beyond <= 0.15)
    if noise is not Noise.UNIFORM:
        assert np.all(beyond > 0.1) and np.all(np.abs(error).max(axis=0) > 0.5)


def test_positions_are_whole_encoder_steps(robot):
    _, (_, q_m, _, _) = measure(robot, Noise.UNIFORM)
    steps = q_m / robot.sensors.position_resolution
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-6)


def test_ideal_sensors_are_exact_copies(robot):
    truth, measured = measure(robot, Noise.NONE)
    for a, b in zip(truth, measured, strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_stamp_lies_before_the_epoch(robot):
    sensors = SensorSimulation(robot.sensors, Noise.UNIFORM, 0)
    stamps = [sensors.measure(0, np.zeros(7), np.zeros(7), np.zeros(7))[0] for _ in range(50)]
    assert min(stamps) == 0 < max(stamps)
