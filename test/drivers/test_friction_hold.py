"""A reading that stands still: held by friction, or stuck; an LBR with a controller of which nothing is proven."""

import numpy as np
import pytest

from sysid_ros.core.certification.certificate import Certificate, box_hash
from sysid_ros.core.control import build_controller
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.sampling import sample_parameters
from sysid_ros.core.trajectories.bezier import BezierTrajectory
from sysid_ros.core.trajectories.fourier import FourierTrajectory
from sysid_ros.drivers.arm import InjectedFaults
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopCode, LoopMode, LoopSettings
from sysid_ros.drivers.monitors import FrictionHold
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings

ROBOT = load_robot("kuka_lbr_iiwa7")
WAY = np.array([0.5, -0.5, 0.5, 0.5, 0.5, -0.5, 0.4])


def to_and_fro(start, seed):
    """Three seconds of slow motion with reversals, in which friction holds the wrist for hundredths of a radian."""
    rng, order = np.random.default_rng(seed), np.arange(1, 4)
    sine, cosine = rng.normal(size=(2, 7, 3))
    sine -= sine.mean(axis=1, keepdims=True)
    cosine -= np.outer(cosine @ order, order) / (order @ order)
    shape = FourierTrajectory(start, sine, cosine, 1.0 / 3.0, 3.0)
    lower, upper = shape.position_extrema()
    scale = (0.1 / np.maximum(upper - start, start - lower))[:, None]
    return FourierTrajectory(start, scale * sine, scale * cosine, 1.0 / 3.0, 3.0)


def one_way(start, _):
    """Three seconds from rest to rest."""
    return BezierTrajectory(start, np.zeros(7), np.zeros(7), start + WAY, 3.0)


def moving_loop(seed, motion):
    theta = sample_parameters(ROBOT, np.random.default_rng(seed), corner=True)
    arm = MujocoArm(ROBOT, theta, None, settings=MujocoSettings(seed=seed))
    loop = ControlLoop(arm, build_controller("gravity_pid", ROBOT), ROBOT, LoopSettings())
    loop.connect()
    run(loop, 0.3)
    plan = motion(loop.status().reference, seed)
    boxes, bound = box_hash(*loop.boxes), np.full(7, 0.2)
    loop.execute(plan, Certificate(plan.hash(), boxes, plan.start, "sampled", "", {}, bound, 0.0, 1e12))
    return loop


def run(loop, seconds):
    """Runs until the time is over or the loop gives the arm up; returns how long each reading stood still at most."""
    still, most, before = np.zeros(7), np.zeros(7), np.full(7, np.nan)
    for _ in range(round(seconds / loop.arm.period)):
        loop.heartbeat()
        sample = loop.step()
        still = np.where(sample.q == before, still + np.abs(sample.v_d) * loop.arm.period, 0.0)
        most, before = np.maximum(most, still), sample.q
        if loop.mode is LoopMode.FAULT:
            break
    return most


@pytest.mark.parametrize("seed", [0, 1])
def test_a_joint_that_friction_holds_is_no_stuck_encoder(seed):
    loop = moving_loop(seed, to_and_fro)
    held = run(loop, 3.2)
    assert loop.mode is LoopMode.HOLD and loop.status().code is LoopCode.OK, loop.status().reason
    assert held.max() > 0.01  # longer than what counts as stuck where friction is not asked


@pytest.mark.parametrize("joint", range(7))
def test_a_stuck_encoder_is_found_in_every_joint(joint):
    loop = moving_loop(joint, one_way)
    run(loop, 1.0)
    assert loop.mode is LoopMode.TRACK
    loop.arm.inject(InjectedFaults(stuck_encoders=(ROBOT.joint_names[joint],)))
    run(loop, 1.5)
    status = loop.status()
    assert status.mode is LoopMode.FAULT and status.code is LoopCode.INVALID_MEASUREMENT
    assert f"the position of {ROBOT.joint_names[joint]} has not changed" in status.reason
    assert np.abs(loop.arm.truth().v[joint]) < 1.5 * ROBOT.limits.v_max[joint]


def test_what_friction_can_hold_is_a_matter_of_torque():
    hold = FrictionHold(ROBOT)
    hold.set_boxes(ROBOT.theta_box, ROBOT.payload_prior.box)
    q, zero = ROBOT.home, np.zeros(7)
    friction = ROBOT.friction(ROBOT.theta_box.upper)[:, 0]
    effort = np.zeros(7)

    def after(torque, cycles=60):
        for _ in range(cycles):
            hold.note(q, zero, zero, torque, effort)
            answers = [hold.is_possible(joint) for joint in range(7)]
        return answers

    assert after(-0.99 * friction) == [True] * 7
    assert after(0.99 * friction) == [True] * 7  # from one side to the other
    beyond = 2.1 * friction + ROBOT.sensors.effort_absolute_error + 0.2
    more = 0.99 * friction + np.where(np.arange(7) == 3, beyond, 0.0)
    assert after(more, 10) == [True] * 7  # it may just break loose
    assert after(more) == [True] * 3 + [False] + [True] * 3
    moved = q + 1e-4
    hold.note(moved, zero, zero, beyond, effort)
    assert hold.is_possible(3)  # its reading has changed
