"""A public recording of a real Gen3 with an empty 2F-85: the shipped file does not contradict it."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.bounds.agreement import measure_agreement
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import EffortMeaning

FILE = Path(__file__).parents[4] / "shared" / "facts" / "data" / "kinova_gen3_2f85_real_4s.npz"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="the recording is not part of the repository")
JERKY = EstimatorSettings(acceleration_factor=10.0, acceleration_change=10.0)
"""Its commands came with gaps of a millisecond, after which the arm accelerates by up to 35 rad/s^2."""


@pytest.fixture(scope="module")
def block():
    data = np.load(FILE)
    count = len(data["q"])
    stamps = 1_000_000 * np.arange(count)
    return SampleBlock(stamps, np.arange(count), np.unwrap(data["q"], axis=0), data["v"], data["tau"])


def identify(robot, block, settings):
    rows = []
    estimator = StreamingEstimator(robot, settings, on_rows=rows.append)
    estimator.add(block)
    estimator.complete()
    return estimator.estimate(), rows


@pytest.mark.parametrize("settings", [EstimatorSettings(), JERKY])
def test_the_hand_may_be_empty_and_holds_little(block, settings):
    robot = load_robot("kinova_gen3_2f85")
    estimate, rows = identify(robot, block, settings)
    assert estimate.is_consistent and estimate.is_guaranteed
    assert np.all(estimate.lower <= 0.0) and np.all(estimate.upper >= 0.0)
    assert estimate.upper[0] < 0.35
    agreement = measure_agreement(robot, describe_unknowns(robot, settings), rows, Box(estimate.lower, estimate.upper))
    assert 0.3 < agreement.share < 0.9 and not agreement.doubt


def test_rotors_in_the_torque_contradict_it(block):
    robot = load_robot("kinova_gen3_2f85")
    sensors = dataclasses.replace(robot.sensors, effort_meaning=EffortMeaning.MOTOR_SIDE)
    assert not identify(dataclasses.replace(robot, sensors=sensors), block, JERKY)[0].is_consistent
