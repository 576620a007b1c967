"""An arm that somebody else moves: samples, faults and their end, refusals; and the bounds contain the truth."""

from dataclasses import replace

import numpy as np
import pytest
from arm_double import PlantLink, connection, run

from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import estimate_from_samples
from sysid_ros.drivers.channel import collect_samples
from sysid_ros.drivers.loop_types import LoopCode, LoopMode, LoopModel, LoopRefusal
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.drivers.ros2_control.monitor import MonitoredArm, MonitorLoop
from sysid_ros.drivers.takeover import TakeoverRefused
from sysid_ros.drivers.velocity_estimate import VelocitySource
from sysid_ros.emulators.ros2_control.controllers import BroadcastFaults, HomeMotion

QUICK = EstimatorSettings(method="left_inverse", update_windows=40, reweightings=1)
"""Guaranteed bounds, in a second or two."""


def monitor(robot, link, **changes):
    settings = connection(period=link.hardware.settings.period, **changes)
    return MonitorLoop(MonitoredArm(robot, settings, lambda: link), robot)


def link_to(robot, **changes):
    return PlantLink(robot, measured_sign=robot.sensors.effort_sign, **changes)


def moving(robot, start=0.5, **changes):
    link = link_to(robot, truth="random", noise=Noise.UNIFORM, **changes)
    link.motion = HomeMotion(robot, seed=1, start=start)
    return link


def bounds_of(robot, loop, seconds):
    samples = [sample for sample in run(loop, seconds) if sample is not None]
    block = collect_samples(samples, robot.n).block
    assert np.abs(block.v).max() > 0.1
    return estimate_from_samples(robot, [block], QUICK)[0], block


@pytest.mark.parametrize(
    ("model", "payload", "period", "velocity"),
    [
        ("kinova_gen3_2f85", "dumbbell_4lb", 0.001, VelocitySource.FEEDBACK),
        ("kinova_gen3_2f85", "dumbbell_4lb", 0.004, VelocitySource.FEEDBACK),
        ("kuka_lbr_med7", "2.0", 0.002, VelocitySource.POSITIONS),
    ],
)
def test_bounds_of_an_arm_that_somebody_else_moves_contain_the_truth(model, payload, period, velocity, request):
    robot = request.getfixturevalue("robot" if "kinova" in model else "lbr")
    link = moving(robot, payload=payload, period=period, order=("finger", *robot.joint_names[::-1]))
    if velocity is VelocitySource.POSITIONS:
        link.broadcaster.faults = BroadcastFaults(not_measured=("velocity",))
    loop = monitor(robot, link, velocity=velocity)
    loop.connect()
    estimate, block = bounds_of(robot, loop, 4.0)
    assert estimate.is_consistent, estimate.alarm
    truth, prior = load_payload(robot, payload), robot.payload_prior.box
    assert np.all((estimate.lower <= truth) & (truth <= estimate.upper))
    width, before = estimate.upper - estimate.lower, prior.upper - prior.lower
    assert width[0] < 0.8 * before[0]
    assert not link.sent and not link.switches
    assert np.all(np.diff(block.sequence) == 1)


def test_a_wrong_order_of_joints_would_be_noticed(robot):
    """The check that the test above is able to fail: two joints with each other's efforts."""
    link = moving(robot, payload="dumbbell_4lb")
    swapped = [1, 0, *range(2, 7)]
    measure = link.hardware.measure
    link.hardware.measure = lambda: (lambda m: replace(m, tau=m.tau[swapped]))(measure())
    loop = monitor(robot, link)
    try:
        loop.connect()
    except TakeoverRefused:
        return
    assert not bounds_of(robot, loop, 3.0)[0].is_consistent


def test_a_lost_state_breaks_the_numbering_where_it_is_missing(robot):
    link = moving(robot)
    link.broadcaster.faults = BroadcastFaults(drop_every=50)
    loop = monitor(robot, link)
    loop.connect()
    samples = [sample for sample in run(loop, 0.5) if sample is not None]
    stamps = np.round(1e-6 * np.diff([sample.stamp_ns for sample in samples]))
    np.testing.assert_array_equal(np.diff([sample.sequence for sample in samples]), stamps)
    assert (stamps == 2).sum() >= 9 and set(stamps) == {1, 2}


def test_status_says_that_nothing_is_commanded(robot):
    loop = monitor(robot, link_to(robot))
    loop.connect()
    samples = run(loop, 0.1)
    status = loop.status()
    assert status.mode is LoopMode.IDLE and status.code is LoopCode.OK
    assert "monitoring; nothing is commanded (static gravity check: passed)" in status.reason
    assert status.law == ControlLaw("none, the arm is only monitored")
    np.testing.assert_allclose(status.reference, robot.home, atol=1e-3)
    assert all(sample.ok and np.isnan(sample.tau_command).all() for sample in samples)
    health = loop.arm.health()
    assert health["connection"] == "monitoring only, nothing is commanded" and health["states missing"] == 0
    loop.release("done")
    assert loop.arm.health()["connection"] == "closed" and loop.status().reason == "done"


def test_all_that_would_move_the_arm_is_refused(robot):
    link = link_to(robot)
    loop = monitor(robot, link)
    loop.connect()
    for call in (
        lambda: loop.execute(None, None),
        lambda: loop.begin(None, None),
        loop.guide,
        lambda: loop.arm.command(np.zeros(7)),
    ):
        with pytest.raises(LoopRefusal, match="the arm is only monitored: this driver commands nothing"):
            call()
    with pytest.raises(LoopRefusal, match="the arm is monitored already"):
        loop.connect()
    loop.brake("please")
    loop.arm.stop("please")
    loop.heartbeat()
    loop.report_late(1.0)
    run(loop, 0.05)
    assert not link.sent and loop.is_at_rest and not loop.is_handed_back


def test_models_are_checked_as_in_a_control_loop(robot):
    loop = monitor(robot, link_to(robot))
    nominal = LoopModel.nominal(robot)
    before = loop.status().model_box_hash
    narrow = replace(nominal, payload_box=type(nominal.payload_box)(nominal.payload, nominal.payload))
    loop.set_model(narrow)
    assert loop.status().model_box_hash != before
    with pytest.raises(LoopRefusal, match="is not inside the one"):
        loop.set_model(nominal)
    loop.set_model(nominal, is_reset=True)
    assert loop.status().model_box_hash == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "words", "makes_samples"),
    [
        ({"is_silent": True}, "no joint states for 0.03 s", False),
        ({"renamed": ("joint_6",)}, "no joint states for 0.03 s", False),
        ({"nan_efforts": ("joint_6",)}, "the torque of joint_6 is nan", True),
        ({"drop_every": 5}, "of the states of the last second are missing", True),
    ],
)
def test_faults_are_told_leave_no_samples_and_end_by_themselves(robot, faults, words, makes_samples):
    link = moving(robot)
    loop = monitor(robot, link)
    loop.connect()
    link.broadcaster.faults = BroadcastFaults(**faults)
    samples = run(loop, 0.6 if makes_samples else 0.06)  # without states a step is longer than a period
    status = loop.status()
    assert status.code is LoopCode.INVALID_MEASUREMENT and status.mode is LoopMode.IDLE
    assert words in status.reason
    assert any(sample is not None for sample in samples) is makes_samples
    if "nan_efforts" in faults:
        assert not any(sample.ok for sample in samples)

    link.broadcaster.faults = BroadcastFaults()
    samples = run(loop, 1.3)
    assert loop.status().code is LoopCode.OK and loop.status().reason == "monitoring; nothing is commanded"
    assert samples[-1].ok
    codes = [transition.code for transition in loop.status().transitions]
    assert codes[0] is LoopCode.OK and codes[-2:] == [LoopCode.INVALID_MEASUREMENT, LoopCode.OK]


def test_a_moving_arm_is_accepted_and_a_resting_one_that_contradicts_its_model_is_not(robot):
    loop = monitor(robot, moving(robot, start=-5.0))
    loop.connect()
    assert loop.arm.health()["static gravity check"] == "not done, the arm moves"

    wrong = PlantLink(robot, measured_sign=-robot.sensors.effort_sign)
    with pytest.raises(TakeoverRefused, match="check sensors.effort_sign"):
        monitor(robot, wrong).connect()
    assert wrong.is_closed


def test_a_posture_that_tells_no_sign_is_no_reason_to_refuse(robot):
    link = link_to(robot)
    upright = np.zeros(7)
    link.hardware.arm.place(upright)
    link.hardware._held = upright
    link.hardware._effort = np.zeros(7)
    loop = monitor(robot, link)
    loop.connect()
    assert "not conclusive: no joint carries enough" in loop.arm.health()["static gravity check"]


def test_states_that_do_not_do_are_refused(robot):
    for faults, words in (
        (BroadcastFaults(is_silent=True), "no publisher on /joint_states"),
        (BroadcastFaults(renamed=("joint_1",)), "joints joint_1 are missing"),
        (BroadcastFaults(left_out=("effort",)), "effort has 0 entries"),
    ):
        link = link_to(robot)
        link.broadcaster.faults = faults
        with pytest.raises(TakeoverRefused, match=words):
            monitor(robot, link).connect()
        assert link.is_closed
    link = link_to(robot, period=0.002)
    with pytest.raises(TakeoverRefused, match="comes at 500 Hz, update_rate is 1000 Hz"):
        MonitorLoop(MonitoredArm(robot, connection(), lambda: link), robot).connect()
