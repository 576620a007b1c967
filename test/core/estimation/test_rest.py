"""Windows at rest: some count, most are left out, and motion ends the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.regressors.torque import TorqueRegressor


def hold(robot, seconds: float, speed: float = 0.0, mass: float = 2.0) -> SampleBlock:
    """Samples of an arm that holds a payload [kg] in its home posture, or moves from there at ``speed`` [rad/s]."""
    count = round(1000 * seconds)
    v = np.full((count, robot.n), speed)
    q = robot.home + v * np.arange(count)[:, None] * 1e-3
    theta = robot.theta_nominal.copy()
    nominal = robot.payload_prior.nominal
    theta[robot.inertial_slice(robot.n)] += nominal * (mass / nominal[0])
    regressor = TorqueRegressor(robot)
    tau = regressor.evaluate(q, v, 0.0 * v) @ theta[regressor.columns.indices]
    return SampleBlock(np.arange(count) * 1_000_000, np.arange(count), q, v, tau)


@pytest.mark.parametrize(("rest_interval", "windows"), [(0.0, 39), (1.0, 5 + 3), (60.0, 5)])
def test_few_windows_count_at_rest(rest_interval, windows):
    robot = load_robot("kinova_gen3_2f85")
    estimator = StreamingEstimator(robot, EstimatorSettings(rest_interval=rest_interval))
    assert estimator.add(hold(robot, 4.0)) == []
    assert estimator.estimate().number_of_windows == windows


def test_the_answer_does_not_depend_on_how_the_samples_are_cut():
    robot = load_robot("kinova_gen3_2f85")
    samples = hold(robot, 3.0)
    whole, pieces = StreamingEstimator(robot), StreamingEstimator(robot)
    whole.add(samples)
    for first in range(0, len(samples), 37):
        pieces.add(samples.slice(first, first + 37))
    np.testing.assert_array_equal(whole.estimate().lower, pieces.estimate().lower)
    assert whole.estimate().number_of_windows == pieces.estimate().number_of_windows < 12


def test_every_window_of_a_moving_arm_counts():
    robot = load_robot("kinova_gen3_2f85")
    estimator = StreamingEstimator(robot, EstimatorSettings(rest_interval=60.0))
    estimator.add(hold(robot, 2.05, speed=0.02))
    moved = estimator.estimate()
    assert moved.number_of_windows == 20


def test_a_payload_that_leaves_at_rest_is_noticed():
    robot = load_robot("kinova_gen3_2f85")
    estimator = StreamingEstimator(robot)
    before, after = hold(robot, 3.0), hold(robot, 3.0, mass=0.0)
    estimator.add(before)
    assert estimator.estimate().lower[0] > 0.9
    dropped = replace(after, stamps=after.stamps + 3_000_000_000, sequence=after.sequence + 3000)
    estimator.add(dropped.slice(0, 1300))
    assert not estimator.estimate().is_consistent
