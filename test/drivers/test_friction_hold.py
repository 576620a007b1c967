"""A reading that stands still: held by friction, or stuck; an LBR with a controller of which nothing is proven."""

from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.control import build_controller
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.model.sampling import sample_parameters
from sysid_ros.core.planning.bezier import BezierTrajectory
from sysid_ros.core.planning.certificate import Certificate, box_hash
from sysid_ros.core.planning.fourier import FourierTrajectory
from sysid_ros.drivers.arm_dynamics import ArmDynamics
from sysid_ros.drivers.friction_hold import FrictionHold
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopCode, LoopMode, LoopSettings
from sysid_ros.drivers.mock import MockSetup, build_mock_loop
from sysid_ros.drivers.mujoco_arm import MujocoArm, MujocoSettings
from sysid_ros.drivers.simulated_arm import InjectedFaults

ROBOT, GEN3 = load_robot("kuka_lbr_iiwa7"), load_robot("kinova_gen3_2f85")
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


def told(robot=ROBOT):
    hold = FrictionHold(robot, 0.001)
    hold.set_boxes(robot.theta_box, robot.payload_prior.box)
    return hold


@pytest.mark.parametrize("robot", [ROBOT, GEN3], ids=lambda robot: robot.name)
def test_what_friction_can_hold_is_a_matter_of_torque(robot):
    hold = told(robot)
    q, zero = robot.home, np.zeros(7)
    friction = robot.friction(robot.theta_box.upper)[:, 0]
    is_motor_side = robot.sensors.effort_meaning is EffortMeaning.MOTOR_SIDE

    def after(torque, cycles=60, effort=None):
        measured = torque if is_motor_side else zero  # behind the gear nothing of it arrives
        for _ in range(cycles):
            hold.note(q, zero, torque, measured if effort is None else effort)
        return [hold.is_possible(joint) for joint in range(7)]

    assert after(-0.99 * friction) == [True] * 7
    assert after(0.99 * friction) == [True] * 7 and not hold.find_loose_joint()  # from one side to the other
    beyond = 2.1 * friction + 2.0 * robot.sensors.effort_absolute_error + 1.0
    more = 0.99 * friction + np.where(np.arange(7) == 3, beyond, 0.0)
    assert after(more, 8) == [True] * 7  # it may just break loose
    assert after(more) == [True] * 3 + [False] + [True] * 3
    assert f"the position of {robot.joint_names[3]} has not changed although" in hold.find_loose_joint()
    q = q + 1e-4
    hold.note(q, zero, more, more)
    assert hold.is_possible(3) and not hold.find_loose_joint()  # its reading has changed
    if is_motor_side:
        assert after(0.99 * friction, effort=more) == [True] * 7  # a motor that does not obey is no stuck encoder


@pytest.mark.parametrize("seed", range(5))
def test_the_load_of_a_joint_at_rest_may_change_as_its_neighbours_move(seed):
    """Exact torques of any arm in its boxes, the fifth joint held by friction that comes from any side."""
    rng, h, period, joint = np.random.default_rng(seed), told(GEN3), 0.001, 4
    theta = sample_parameters(GEN3, rng, corner=True)
    dynamics, friction = ArmDynamics(GEN3, theta, GEN3.payload_prior.nominal), GEN3.friction(theta)
    phase, rate = rng.uniform(0.0, 6.0, 7), rng.uniform(3.0, 6.0, 7)
    moves = np.where(np.arange(7) == joint, 0.0, rng.uniform(0.05, 0.2, 7))
    reach = 0.0
    for k in range(2000):
        angle = rate * k * period + phase
        q = GEN3.home + moves * np.sin(angle)
        v, a = moves * rate * np.cos(angle), -moves * rate**2 * np.sin(angle)
        held = np.sin(7.0 * k * period) * friction[:, 0]
        tau = dynamics.torque(q, v, a) + np.where(np.arange(7) == joint, held, friction[:, 0] * np.sign(v))
        measured_v = v + rng.uniform(-1.0, 1.0, 7) * GEN3.sensors.velocity_error
        h.note(q, measured_v, tau, tau)
        assert not h.find_loose_joint(), k
        reach = max(reach, abs(tau[joint] - h._torques_before[0, joint]))
    assert reach > 2.0 * friction[joint, 0]  # so it is the change of the load that has to be known


@pytest.mark.parametrize("joint", range(7))
@pytest.mark.parametrize("when", [0.1, 0.5, 1.5, 2.5])
def test_a_frozen_encoder_lets_the_arm_of_a_robust_controller_go_no_far_way(joint, when):
    """Without asking the torque, joints went up to 1.9 rad, and one that rested again drifted on without an end."""
    loop = build_mock_loop(MockSetup(payload="dumbbell_4lb"))
    loop.connect()
    run(loop, 0.3)
    q, zero = loop.status().reference, np.zeros(7)
    plan = BezierTrajectory(q, zero, zero, q + 0.2 * np.where(q > GEN3.home, -1.0, 1.0), 3.0)
    bound = np.full(7, 0.006)
    certificate = Certificate(plan.hash(), box_hash(*loop.boxes), q, "sampled", "", {}, bound, 0.0, 1e12)
    loop.execute(plan, replace(certificate, velocity_bound=np.full(7, 0.05)))
    run(loop, when)
    before = loop.arm.truth().q
    loop.arm.inject(InjectedFaults(stuck_encoders=(GEN3.joint_names[joint],)))
    run(loop, 1.0)
    status = loop.status()
    assert status.mode is LoopMode.FAULT and status.code is LoopCode.INVALID_MEASUREMENT
    assert f"the position of {GEN3.joint_names[joint]} has not changed" in status.reason
    assert np.abs(loop.arm.truth().q - before).max() < 0.03
