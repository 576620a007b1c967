"""The identification of a free-flying robot, against its simulation without ROS."""

import numpy as np
import pytest

from sysid_ros.adapters.free_flyer.driver import FreeFlyerLoop, TrajectoryRefused
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.free_floating.excitation import ExcitationSettings
from sysid_ros.core.free_floating.procedure import (
    ProcedureSettings,
    Samples,
    estimate_free_flyer,
    identify_free_flyer,
    select_motion,
)
from sysid_ros.core.free_floating.regression import NotIdentifiable
from sysid_ros.core.free_floating.robot import load_free_flyer
from sysid_ros.core.free_floating.self_collision import SelfCollision
from sysid_ros.core.trajectories.base import PlanningCancelled
from sysid_ros.core.trajectories.cycloid import CycloidTrajectory
from sysid_ros.drivers.free_flyer import ConservationSimulation

FAST = ExcitationSettings(time_limit=5.0, starts=4, samples=3)


class Port:
    """Drives the loop of the simulated robot without a clock."""

    def __init__(self, robot, seed=0):
        self.loop = FreeFlyerLoop(ConservationSimulation(robot, robot.truth, 0.05), 0.0, seed)
        self.measured = []
        self._take()

    def _take(self):
        self.measured.append(self.loop.measure())

    def reference(self):
        return self.loop.reference

    def follow(self, trajectory, on_progress):
        self.loop.admit(trajectory)
        while self.loop.followed:
            self.loop.advance(0.05)
            self._take()
            if self.loop.followed:
                on_progress(self.loop.progress)

    def samples(self):
        columns = zip(*((m.time, m.twist, m.q, m.v) for m in self.measured), strict=True)
        return Samples(*(np.array(column) for column in columns))


@pytest.fixture(scope="module")
def robot():
    return load_free_flyer("servicer")


@pytest.fixture(scope="module")
def identified(robot):
    port, told = Port(robot), []
    settings = ProcedureSettings(intervals=32)
    result = identify_free_flyer(robot, port, settings, FAST, on_progress=told.append)
    return result, port, told


@pytest.mark.slow
def test_all_minimal_parameters_are_found(robot, identified):
    result, port, told = identified
    truth = result.minimal.values(robot.truth)
    errors = (result.estimate.values - truth) / result.estimate.deviations
    assert np.abs(errors).max() < 5.0  # 45 parameters with white noise
    error, before = np.abs(result.estimate.values - truth), np.abs(result.believed - truth)
    assert np.median(error) < 0.05 * np.median(before)
    assert len(result.parts) == 2
    assert result.parts[1].reached < result.parts[0].reached
    assert result.parts[1].reached == pytest.approx(result.parts[1].planned, rel=0.35)
    assert result.residual.max() < 0.05
    shares = [progress.share for progress in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert [(one.stage, one.part) for one in told if one.part == 2] and {one.parts for one in told} == {2}
    assert told[-1].text == "estimating" and any("moving, part 2 of 2" in one.text for one in told)
    # Offline, without knowing when it moved, the same samples say the same.
    offline = estimate_free_flyer(robot, select_motion(robot, port.samples()), result.settings)
    np.testing.assert_allclose(offline.estimate.values, result.estimate.values, atol=0.05 * np.abs(truth).max())


def test_too_little_motion_is_not_enough(robot):
    with pytest.raises(NotIdentifiable, match=r"determine \d+ of 45"):
        one = CycloidTrajectory(np.array([[*robot.home, 0, 0, 0], [*robot.home, 1, 0, 0]]), 1.0)
        port = Port(robot)
        port.follow(one, lambda _: None)
        estimate_free_flyer(robot, select_motion(robot, port.samples()), ProcedureSettings())


def test_nothing_moves_and_bad_settings(robot):
    port = Port(robot)
    with pytest.raises(ParameterOutOfRange, match="is the driver running"):
        select_motion(robot, port.samples())
    for _ in range(10):
        port.loop.advance(0.05)
        port._take()
    with pytest.raises(ParameterOutOfRange, match="samples in motion"):
        select_motion(robot, port.samples())
    with pytest.raises(ParameterOutOfRange, match="two for each part"):
        identify_free_flyer(robot, port, ProcedureSettings(intervals=3, parts=2), FAST)
    with pytest.raises(PlanningCancelled):
        identify_free_flyer(robot, port, ProcedureSettings(), FAST, is_cancelled=lambda: True)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda k: k[:, :-1], "moves 7 axes; the robot has 8"),
        (lambda k: k + [0.01, *[0.0] * 7], "joint_1 would jump"),
        (lambda k: k + np.outer([0, 1], [0.2, *[0.0] * 7]), r"joint_1 reaches .* rad/s; its limit is 0.25 rad/s"),
        (lambda k: k + np.outer([0, 1], [*[0.0] * 7, 300.0]), r"wheel_z reaches .* its limit is 200 rad/s"),
        (lambda k: k + np.outer([0, 40], [0.1, *[0.0] * 7]), "joint_1 goes from .* its limits are"),
    ],
)
def test_refused_trajectories(robot, change, text):
    loop = FreeFlyerLoop(ConservationSimulation(robot, robot.truth))
    start = np.concatenate([robot.home, np.zeros(3)])
    with pytest.raises(TrajectoryRefused, match=text):
        loop.admit(CycloidTrajectory(change(np.array([start, start])), 1.0))
    assert not loop.followed


def test_a_trajectory_into_the_base_is_refused_and_braking_rests(robot):
    loop = FreeFlyerLoop(ConservationSimulation(robot, robot.truth))
    start = np.concatenate([robot.home, np.zeros(3)])
    steps = np.linspace(0.0, 1.0, 40)[:, None] * (np.array([0, 1.9, 2.2, 0, 1.9, 0, 0, 0]) - start)
    with pytest.raises(SelfCollision, match="base and joint_"):
        loop.admit(CycloidTrajectory(start + steps, 1.0))
    trajectory = CycloidTrajectory(np.array([start, start + 0.1, start + 0.2, start + 0.3]), 1.0)
    loop.admit(trajectory)
    assert loop.followed == trajectory.hash()
    with pytest.raises(TrajectoryRefused, match="another one is being followed"):
        loop.admit(trajectory)
    loop.advance(0.5)
    assert loop.brake()
    assert loop.is_braking
    assert not loop.brake()
    loop.advance(1.2)
    assert not loop.followed
    state = loop.simulation.state
    assert np.abs(state.v).max() == 0.0
    assert np.abs(state.twist).max() < 1e-12
    assert np.all(state.q < start + 0.2)
    assert loop.drift.max() < 1e-10
