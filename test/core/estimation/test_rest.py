"""Windows at rest: some count, most are left out, and motion ends the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from textbook import load_steady, load_textbook

from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.regressors.rest_torque import gravity_rows
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import SensorSimulation


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


@pytest.mark.parametrize(("rest_interval", "windows"), [(0.0, 39), (1.0, 5)])
def test_few_windows_count_at_rest(rest_interval, windows):
    robot = load_steady("kinova_gen3_2f85")
    estimator = StreamingEstimator(robot, EstimatorSettings(rest_interval=rest_interval))
    assert estimator.add(hold(robot, 4.0)) == []
    assert estimator.estimate().number_of_windows == windows


def test_the_answer_does_not_depend_on_how_the_samples_are_cut():
    robot = load_textbook()
    samples = hold(robot, 3.0)
    whole, pieces = StreamingEstimator(robot), StreamingEstimator(robot)
    whole.add(samples)
    for first in range(0, len(samples), 37):
        pieces.add(samples.slice(first, first + 37))
    np.testing.assert_array_equal(whole.estimate().lower, pieces.estimate().lower)
    assert whole.estimate().number_of_windows == pieces.estimate().number_of_windows < 12


def test_every_window_of_a_moving_arm_counts():
    robot = load_steady("kinova_gen3_2f85")
    estimator = StreamingEstimator(robot, EstimatorSettings(rest_interval=60.0))
    estimator.add(hold(robot, 2.05, speed=0.02))
    moved = estimator.estimate()
    assert moved.number_of_windows == 20


def test_a_payload_that_leaves_at_rest_is_noticed():
    robot = load_textbook()
    estimator = StreamingEstimator(robot)
    before, after = hold(robot, 3.0), hold(robot, 3.0, mass=0.0)
    estimator.add(before)
    assert estimator.estimate().lower[0] > 0.9
    dropped = replace(after, stamps=after.stamps + 3_000_000_000, sequence=after.sequence + 3000)
    estimator.add(dropped.slice(0, 1300))
    assert not estimator.estimate().is_consistent


@pytest.mark.parametrize("seed", range(12))
def test_the_true_torque_at_rest_is_inside(seed):
    """Arms and payloads in their boxes, sensors with the largest errors they may have, friction of any size."""
    robot, rng = load_textbook(["kinova_gen3_2f85", "kuka_lbr_iiwa14"][seed % 2]), np.random.default_rng(seed)
    theta = sample_parameters(robot, rng, corner=seed % 4 > 1)
    payload, posture = sample_payload(robot.payload_prior, rng), rng.uniform(-1.2, 1.2, robot.n)
    gravity = ArmDynamics(robot, theta, payload).gravity(posture)
    coulomb, _, _, offset = robot.friction(theta).T
    stuck = 0.0 if robot.sensors.effort_meaning is EffortMeaning.LINK_SIDE else offset + coulomb * rng.uniform(-1, 1, 7)
    noise = [Noise.UNIFORM, Noise.ADVERSARIAL, Noise.GAIN][seed % 3]
    sensor = SensorSimulation(robot.sensors, noise, seed)
    rows = [sensor.measure(10**6 * k, posture, np.zeros(robot.n), gravity + stuck) for k in range(1, 1200)]
    stamps = np.maximum.accumulate(np.array([row[0] for row in rows])) + np.arange(len(rows))
    estimator = StreamingEstimator(robot)
    estimator.add(SampleBlock(stamps, np.arange(len(rows)), *(np.array([row[i] for row in rows]) for i in (1, 2, 3))))
    estimate = estimator.estimate()
    assert estimate.is_consistent and estimate.rest is not None
    there = ArmDynamics(robot, theta, payload).gravity(estimate.rest.posture)
    assert estimate.rest.torque.contains(there)
    assert np.abs(estimate.rest.posture - posture).max() < 1e-3
    if robot.name != "kinova_gen3_2f85":  # behind the torque sensors of an LBR much friction may hide
        return
    # It is what was measured within what sensors and friction may do, not what the boxes allow.
    rows = gravity_rows(robot, estimate.rest.posture)
    spread = np.abs(rows) @ robot.theta_box.radius[: rows.shape[1]]
    spread += np.abs(rows[:, robot.inertial_slice(robot.n)]) @ estimate.radius
    assert estimate.rest.torque.radius.sum() < 0.8 * spread.sum()


def test_the_latest_rest_counts_and_motion_changes_nothing():
    robot = load_textbook()
    estimator = StreamingEstimator(robot)
    still, moving = hold(robot, 1.0), hold(robot, 1.0, speed=0.1)
    estimator.add(still)
    first = estimator.estimate().rest
    assert first is not None and np.allclose(first.posture, robot.home, atol=1e-12)

    def after(block: SampleBlock, before: SampleBlock, offset: float) -> SampleBlock:
        stamps = block.stamps + before.stamps[-1] + 1_000_000
        return SampleBlock(stamps, block.sequence + before.sequence[-1] + 1, block.q + offset, block.v, block.tau)

    moved = after(moving, still, 0.0)
    estimator.add(moved)
    assert estimator.estimate().rest is first
    there = replace(robot, home=robot.home + 0.1)
    estimator.add(after(hold(there, 1.0), moved, 0.0))
    second = estimator.estimate().rest
    assert second is not None and np.allclose(second.posture, robot.home + 0.1, atol=1e-12)
    estimator.reset("another payload")
    assert estimator.estimate().rest is None


def test_other_bodies_are_not_weighed():
    robot = load_textbook()
    estimator = StreamingEstimator(robot, EstimatorSettings(body="joint_7"))
    estimator.add(hold(robot, 1.0, mass=0.0))
    assert estimator.estimate().rest is None
