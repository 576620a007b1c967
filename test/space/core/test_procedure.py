"""The identification of a free-flying robot, against its simulation without ROS."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.certification.stop_model import PlanRejected
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import Cancelled, ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.parameters.estimate import AlarmCode, EstimateStatus, Quantity
from sysid_ros.core.model.inertia import from_com_form, transform_parameters
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.space.adapters.driver import FreeFlyerLoop
from sysid_ros.space.core.excitation import ExcitationSettings
from sysid_ros.space.core.identification import (
    ObjectSettings,
    ProcedureSettings,
    Samples,
    Task,
    estimate_free_flyer,
    estimate_held,
    known_before,
    select_motion,
)
from sysid_ros.space.core.measurements import Assumptions
from sysid_ros.space.core.minimal_parameters import unit_momenta
from sysid_ros.space.core.procedure import identify_free_flyer, identify_object
from sysid_ros.space.simulation import ConservationSimulation

FAST = ExcitationSettings(time_limit=5.0, starts=4, samples=3)


class Port:
    """Drives the loop of the simulated robot without a clock."""

    def __init__(self, robot, seed=0, momentum=(0.0,) * 6):
        self.loop = FreeFlyerLoop(ConservationSimulation(robot, robot.truth, 0.05, momentum), 0.0, seed)
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
def identified(robot):
    port, told = Port(robot), []
    task = Task(robot, ProcedureSettings(intervals=32), FAST)
    result = identify_free_flyer(task, port, on_progress=told.append)
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
    # What is left of the momentum is what white noise of the sensors leaves.
    gains = unit_momenta(robot.tree, result.data.q)[..., result.minimal.kept] @ result.estimate.values
    sizes = np.repeat(robot.noise, [3, 3, robot.n])
    expected = np.sqrt(((gains * sizes[:, None]) ** 2).sum(axis=1).reshape(-1, 2, 3).sum(axis=2).mean(axis=0))
    np.testing.assert_allclose(result.residual, expected, rtol=0.1)
    assert result.bounds.box.contains(truth)
    assert np.median(result.bounds.box.width / result.bounds.prior.width) < 0.4
    shares = [progress.progress for progress in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert any(one.trajectory == 2 for one in told) and {one.trajectories for one in told} == {2}
    assert told[-1].text.startswith("bounding") and any("moving, part 2 of 2" in one.text for one in told)
    assert any(one.text == "estimating" for one in told)
    # Offline, without knowing when it moved, the same samples say the same.
    task = replace(result.task, settings=replace(result.task.settings, is_bounded=False))
    offline = estimate_free_flyer(task, select_motion(robot, port.samples()))
    np.testing.assert_allclose(offline.estimate.values, result.estimate.values, atol=0.05 * np.abs(truth).max())


@pytest.fixture(scope="module")
def held():
    """Twelve kilograms in the hand, about the last joint."""
    return from_com_form(12.0, [0.62, 0.05, -0.03], np.diag([0.4, 0.7, 0.6]))


@pytest.fixture(scope="module")
def caught(robot, identified, held):
    """Caught by the robot that has just been identified, and identified in three parts."""
    result, port, _ = identified
    port.loop.hold(held)
    told = []
    task = Task(robot, ProcedureSettings(intervals=24, parts=3), FAST)
    found = identify_object(task, ObjectSettings(mass=60.0), result.known_robot, port, on_progress=told.append)
    return found, port, told


@pytest.mark.slow
def test_what_is_in_the_hand_is_found_in_the_frame_of_the_tool(robot, caught, held):
    found, _, told = caught
    _, placement = robot.frame("tool")
    back = placement.inverse()
    truth = transform_parameters(held, back.rotation, back.translation)
    box = found.estimate.bounds.box
    assert found.estimate.frame == "tool"
    assert box.contains(truth)
    assert found.estimate.com_box.contains([0.62 - 0.45, 0.05, -0.03])
    assert box.contains(found.estimate.values)
    assert box.width[0] < 0.15 * found.estimate.bounds.prior.width[0]
    assert found.estimate.mass == pytest.approx(12.0, abs=0.2)
    # Bounds came after each part and became narrower; so it is said.
    widths = [one.held.bounds.box.width for one in told if one.held is not None]
    assert len({width[0] for width in widths}) == 3
    assert all(np.all(after <= before) for before, after in itertools.pairwise(widths))
    assert [one.progress for one in told] == sorted(one.progress for one in told)
    assert told[-1].progress == 1.0
    estimate = found.as_estimate()
    assert (estimate.frame, estimate.is_guaranteed, estimate.alarm) == ("tool", True, None)
    assert estimate.status in (EstimateStatus.PARTIAL, EstimateStatus.IDENTIFIED)
    assert Quantity.MASS in estimate.narrower


@pytest.mark.slow
def test_a_target_width_ends_the_motion_before_its_last_part(robot, caught, held):
    found, port, _ = caught
    enough = ObjectSettings(mass=60.0, target_width=50.0)
    again = identify_object(found.task, enough, found.known_robot, port)
    assert len(again.parts) == 1
    assert again.estimate.bounds.box.width[0] <= 50.0


@pytest.mark.slow
def test_without_an_identification_the_ranges_of_the_settings_are_what_is_known(robot, caught, held):
    found, _, _ = caught
    _, placement = robot.frame("tool")
    truth = transform_parameters(held, placement.rotation.T, -placement.rotation.T @ placement.translation)
    alone = estimate_held(found.task, found.settings, known_before(robot), found.data)
    assert alone.estimate.bounds.box.contains(truth)
    assert alone.estimate.bounds.box.width[0] > found.estimate.bounds.box.width[0]
    with pytest.raises(ParameterOutOfRange, match="missing section 'prior' of servicer"):
        known_before(replace(robot, prior=None))


@pytest.mark.slow
def test_a_wrong_belief_is_an_alarm_and_keeps_what_was_known(robot, caught, identified):
    """Something twice as heavy as anything that may be there; and a robot outside its ranges."""
    found, _, _ = caught
    light = estimate_held(found.task, ObjectSettings(mass=5.0), found.known_robot, found.data, before=None)
    assert light.estimate is None
    assert "no parameters are consistent" in str(light.inconsistency)
    estimate = light.as_estimate()
    assert not estimate.is_consistent
    assert estimate.alarm.code in (AlarmCode.WINDOW_INCONSISTENT, AlarmCode.JOINTLY_INCONSISTENT)
    result, port, _ = identified
    narrow = Box.around(robot.tree.parameters, 1e-3 * np.abs(robot.tree.parameters))
    task = replace(result.task, robot=replace(robot, prior=narrow))
    wrong = estimate_free_flyer(task, result.data)
    assert wrong.bounds is None
    assert wrong.inconsistency is not None
    assert np.all(np.isfinite(wrong.estimate.values))
    with pytest.raises(ParameterOutOfRange, match="missing bounds of the robot"):
        _ = wrong.known_robot


@pytest.mark.slow
def test_momentum_that_is_known_in_a_range_only(robot):
    """A robot that drifts and turns: the same estimate, wider bounds; without the range an alarm."""
    momentum = np.array([1.0, -2.0, 0.5, 0.3, 0.4, -0.2])
    port = Port(robot, momentum=momentum)
    quiet = ProcedureSettings(intervals=16, parts=1)
    aware = Assumptions(linear_momentum=3.0, angular_momentum=1.0)
    result = identify_free_flyer(Task(robot, quiet, FAST, aware), port)
    truth = result.minimal.values(robot.truth)
    assert result.inconsistency is None
    assert result.bounds.box.contains(truth)
    errors = (result.estimate.values - truth) / result.estimate.deviations
    assert np.abs(errors).max() < 6.0
    # About the origin that the base has at the first sample of the motion.
    np.testing.assert_allclose(result.estimate.momentum[:3], momentum[:3], atol=0.2)
    unaware = estimate_free_flyer(replace(result.task, assumptions=Assumptions()), result.data)
    assert unaware.inconsistency is not None


def test_too_little_motion_is_not_enough(robot):
    with pytest.raises(ParameterOutOfRange, match=r"rank of the data \d+: expected 45"):
        one = CycloidTrajectory(np.array([[*robot.home, 0, 0, 0], [*robot.home, 1, 0, 0]]), 1.0)
        port = Port(robot)
        port.follow(one, lambda _: None)
        estimate_free_flyer(Task(robot), select_motion(robot, port.samples()))


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
        identify_free_flyer(Task(robot, ProcedureSettings(intervals=3, parts=2), FAST), port)
    with pytest.raises(Cancelled):
        identify_free_flyer(Task(robot, excitation=FAST), port, is_cancelled=lambda: True)


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
    with pytest.raises(SysidError, match=text):
        loop.admit(CycloidTrajectory(change(np.array([start, start])), 1.0))
    assert not loop.followed


def test_a_trajectory_into_the_base_is_refused_and_braking_rests(robot):
    loop = FreeFlyerLoop(ConservationSimulation(robot, robot.truth))
    start = np.concatenate([robot.home, np.zeros(3)])
    steps = np.linspace(0.0, 1.0, 40)[:, None] * (np.array([0, 1.9, 2.2, 0, 1.9, 0, 0, 0]) - start)
    with pytest.raises(PlanRejected, match="base and joint_"):
        loop.admit(CycloidTrajectory(start + steps, 1.0))
    trajectory = CycloidTrajectory(np.array([start, start + 0.1, start + 0.2, start + 0.3]), 1.0)
    loop.admit(trajectory)
    assert loop.followed == trajectory.hash()
    with pytest.raises(SysidError, match="another one is being followed"):
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
