"""Taking a Gen3 over and handing it back without sockets: torque limits that are too low."""

import re
from dataclasses import replace

import numpy as np
import pytest
from kortex_bench import ROBOT, make_base, make_loop, run
from test_kortex_faults import Memory, MemoryArm

from sysid_ros.drivers.arm_dynamics import ArmDynamics
from sysid_ros.drivers.kortex.enums import ControlMode
from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.drivers.takeover import TakeoverRefused


def with_torque_limits(tau_max):
    return replace(ROBOT, limits=replace(ROBOT.limits, tau_max=np.array(tau_max)))


def test_torque_limits_that_do_not_hold_the_arm_are_refused_before_torque():
    """A third of the published limits leaves 13 Nm to joint 2; under torque control the arm would sink."""
    base = make_base(payload="dumbbell_4lb")
    memory = Memory(base)
    with pytest.raises(TakeoverRefused) as caught:
        MemoryArm(memory, with_torque_limits(ROBOT.limits.tau_max / 3.0)).connect()
    words = str(caught.value)
    (torque, limit), *_ = re.findall(r"joint_2 needs (\S+) Nm at rest, its torque limit is (\S+) Nm", words)
    enough = dict(re.findall(r"(joint_\d) to (\S+) Nm", words))
    assert enough.keys() == {"joint_2", "joint_4"} and float(limit) == 13.0, words
    assert "or choose a posture that needs less, or a lighter payload" in words
    gravity = ArmDynamics(ROBOT, base.arm.theta, base.arm.payload).gravity(ROBOT.home)[1]
    assert float(torque) == pytest.approx(gravity, abs=1.5) and abs(gravity) > 13.0  # friction lies between
    assert not base.reports and set(base.actuators.modes) == {ControlMode.POSITION} and memory.farthest < 1e-3

    # With the limits that are asked for, the arm is held.
    limits = [float(enough.get(name, tau)) for name, tau in zip(ROBOT.joint_names, ROBOT.limits.tau_max, strict=True)]
    loop = make_loop(MemoryArm(memory, with_torque_limits(limits)))
    loop.connect()
    run(loop, 0.2)
    assert loop.mode is LoopMode.HOLD and memory.farthest < 5e-3
    loop.release("test")
