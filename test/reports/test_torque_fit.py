"""The torque prediction of the report against Pinocchio, its derivative against known motions."""

import dataclasses

import numpy as np
import pinocchio as pin
import pytest
from true_arm import true_model

from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.reports.recordings.readers import estimate_velocity
from sysid_ros.reports.torque_fit import differentiate, predict_torque


@pytest.mark.parametrize("meaning", list(EffortMeaning))
def test_prediction_equals_inverse_dynamics_and_friction(result, meaning):
    robot = dataclasses.replace(result.robot, sensors=dataclasses.replace(result.robot.sensors, effort_meaning=meaning))
    rng = np.random.default_rng(1)
    q, v, a = rng.uniform(-1, 1, (3, 30, robot.n))
    v += 0.02 * np.sign(v)  # moving: at rest the Coulomb torque is not defined
    model = true_model(robot, payload=result.truth)
    expected = np.array([pin.rnea(model, model.createData(), *state) for state in zip(q, v, a, strict=True)])
    if meaning.has_friction:
        coulomb, viscous, armature, offset = robot.friction(robot.theta_nominal).T
        expected += coulomb * np.sign(v) + viscous * v + meaning.has_armature * armature * a + offset
    assert np.allclose(predict_torque(robot, result.truth, q, v, a), expected, atol=1e-9)


def test_derivative_splits_at_gaps():
    t = np.concatenate([np.arange(0, 1, 0.001), np.arange(3, 4, 0.001)])
    stamps = np.rint(1e9 * t).astype(np.int64)
    values = np.stack([np.sin(2 * t), 3 * t], axis=1)
    expected = np.stack([2 * np.cos(2 * t), np.full_like(t, 3)], axis=1)
    assert np.allclose(differentiate(stamps, values), expected, atol=1e-4)
    assert np.all(differentiate(stamps[:2], values[:2]) == 0.0)


def test_samples_around_lost_ones_that_stamps_do_not_show_are_outliers():
    stamps = np.arange(0, int(20e9), 10_000_000)
    t = 1e-9 * stamps
    lost = [300, 301, 700, 1100, 1500]
    true_t = t + 0.01 * np.searchsorted(lost, np.arange(t.size), side="right")
    q = np.stack([np.sin(1.5 * true_t), 0.5 * np.cos(true_t)], axis=1)
    v, error, is_outlier = estimate_velocity(stamps, q, np.array([1e-5, 1e-5]))
    truth = np.stack([1.5 * np.cos(1.5 * true_t), -0.5 * np.sin(true_t)], axis=1)
    worst = np.abs(v - truth)
    assert all(is_outlier[max(0, k - 3) : k + 3].all() for k in lost), "around every lost sample"
    assert np.count_nonzero(is_outlier) < 0.05 * t.size
    assert np.all(worst[~is_outlier] <= error) and np.all(error < 0.05)
    assert np.any(worst[is_outlier] > 3.0 * error), "what was cut out would have spoilt the error"


def test_velocity_from_positions_is_as_good_as_it_says():
    stamps = np.arange(0, int(4e9), 2_000_000)
    t = 1e-9 * stamps
    resolution = np.array([1e-4, 2e-5])
    q = np.stack([np.sin(3 * t), 0.5 * np.cos(2 * t)], axis=1)
    measured = np.rint(q / resolution) * resolution
    v, error, is_outlier = estimate_velocity(stamps, measured, resolution)
    assert not is_outlier.any()
    truth = np.stack([3 * np.cos(3 * t), -np.sin(2 * t)], axis=1)
    worst = np.abs(v - truth).max(axis=0)
    assert np.all(worst <= error) and np.all(error < 0.1)
