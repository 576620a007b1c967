"""A reading that stands still in a moving joint, in every joint of an LBR."""

import numpy as np
import pytest
from driver_doubles import make_certificate, started
from textbook import load_textbook

from sysid_ros.core.control import build_controller
from sysid_ros.core.model.sampling import sample_parameters
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.arm import InjectedFaults
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopCode, LoopMode, LoopSettings
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings

ROBOT = load_textbook("kuka_lbr_iiwa7")
WAY = np.array([0.5, -0.5, 0.5, 0.5, 0.5, -0.5, 0.4])


def one_way(start):
    """Three seconds from rest to rest."""
    return BezierTrajectory(start, np.zeros(7), np.zeros(7), start + WAY, 3.0)


def moving_loop(seed):
    theta = sample_parameters(ROBOT, np.random.default_rng(seed), corner=True)
    arm = MujocoArm(ROBOT, theta, None, settings=MujocoSettings(seed=seed))
    loop = started(ControlLoop(arm, build_controller("robust", ROBOT), ROBOT, LoopSettings()), 0.3)
    plan = one_way(loop.status().reference)
    loop.execute(plan, make_certificate(loop, plan, bound=0.2, velocity_bound=np.full(7, 0.1)))
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


@pytest.mark.parametrize("joint", range(7))
def test_a_stuck_encoder_is_found_in_every_joint(joint):
    loop = moving_loop(joint)
    run(loop, 1.0)
    assert loop.mode is LoopMode.TRACK
    loop.arm.inject(InjectedFaults(stuck_encoders=(ROBOT.joint_names[joint],)))
    run(loop, 1.5)
    status = loop.status()
    assert status.mode is LoopMode.FAULT and status.code is LoopCode.INVALID_MEASUREMENT
    assert f"the position of {ROBOT.joint_names[joint]} has not changed" in status.reason
    assert np.abs(loop.arm.truth().v[joint]) < 1.5 * ROBOT.limits.v_max[joint]
