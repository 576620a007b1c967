"""A public recording of a real Panda with an empty flange: the shipped file does not contradict it."""

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

FILE = Path(__file__).parents[4] / "shared" / "facts" / "data" / "franka_panda_real_19s.npz"
"""The authors' exciting trajectory (marcocognetti/FrankaEmikaPandaDynModel), with stamps of the controller's cycles."""
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="the recording is not part of the repository")


@pytest.fixture(scope="module")
def block():
    data = {name: values[2000:10000] for name, values in np.load(FILE).items()}
    return SampleBlock(data["t"], np.arange(len(data["t"])), data["q"], data["v"], data["tau"])


def identify(robot, block):
    rows = []
    estimator = StreamingEstimator(robot, EstimatorSettings(), on_rows=rows.append)
    estimator.add(block)
    estimator.complete()
    return estimator.estimate(), rows


def test_the_hand_may_be_empty_and_holds_little(block):
    robot = load_robot("panda")
    estimate, rows = identify(robot, block)
    assert estimate.is_consistent and estimate.is_guaranteed
    assert np.all(estimate.lower <= 0.0) and np.all(estimate.upper >= 0.0)
    assert estimate.upper[0] < 1.6
    box = Box(estimate.lower, estimate.upper)
    agreement = measure_agreement(describe_unknowns(robot, EstimatorSettings()), rows, box)
    assert 0.1 < agreement.share < 0.9 and not agreement.doubt


def test_torques_without_friction_behind_the_sensors_and_exact_inertias_contradict_it(block):
    robot = load_robot("panda")
    radius = robot.theta_box.radius.copy()
    radius[: 10 * robot.n] *= 1e-3
    box = Box(robot.theta_nominal - radius, robot.theta_nominal + radius)
    sensors = dataclasses.replace(robot.sensors, effort_friction=0.0)
    known = dataclasses.replace(robot, sensors=sensors, theta_box=box)
    assert not identify(known, block)[0].is_consistent
