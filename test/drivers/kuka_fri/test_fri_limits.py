"""The emulated controller stops an arm that leaves its limits of position or speed, whatever its client commands."""

import numpy as np
import pytest
from fri_bench import PERIOD, ROBOT, make_controller, run
from fri_memory import Memory, connected, use_clock_of
from test_fri_emulator import client

from sysid_ros.drivers.kuka_fri.messages import SafetyState, SessionState
from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.emulators.fri.controller import LimitMonitor

LIMITS = ROBOT.limits


def torque_on(joint, value):
    tau = np.zeros(7)
    tau[joint] = value
    return tau


def push(one, joint, torque, cycles=3000):
    """A client that pushes one joint until the controller stops the arm; returns where and how fast it was then."""
    arm = one.controller.arm
    for _ in range(cycles):
        before = arm.q[joint], arm.v[joint]
        one.step(tau=torque_on(joint, torque(arm) if callable(torque) else torque))
        if one.controller.state is not SessionState.COMMANDING_ACTIVE:
            return before
    raise AssertionError(f"not stopped at {arm.q}, {arm.v}")


def settle(one, cycles=150):
    for _ in range(cycles):
        one.step()
    return one.controller


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_joint_that_reaches_its_limit_slowly_is_stopped_there(sign):
    one = client(SessionState.IDLE, truth="nominal", restart_time=0.1)  # not while it is beyond
    q = one.controller.arm.q
    q[6] = 0.85 * sign * LIMITS.q_upper[6]
    one.controller.arm.place(q)
    one.controller.restart()
    one.go_to(SessionState.COMMANDING_ACTIVE)
    q, v = push(one, 6, lambda arm: sign * 0.8 - 0.5 * arm.v[6])
    limit = LIMITS.q_upper[6] if sign > 0 else LIMITS.q_lower[6]
    assert abs(q - limit) < 0.02 and 0.1 < abs(v) < LIMITS.v_max[6]
    controller = settle(one)
    assert abs(controller.arm.q[6] - limit) < 0.03 and np.abs(controller.arm.v).max() < 0.01
    assert controller.safety is SafetyState.SAFETY_STOP_LEVEL_0 is one.message.safety
    assert one.message.stops[0] == "safety stop SAFETY_STOP_LEVEL_0" and "A7 OFF" in one.message.stops[1]
    assert f"lbr_A7 at {175 * sign:.0f}." in controller.last_error, controller.last_error


def test_a_joint_that_becomes_too_fast_is_stopped_and_may_move_again_later():
    one = client(truth="nominal", restart_time=0.2)
    q, v = push(one, 6, 3.0)
    assert abs(q) < 2.5 and v > 0.95 * LIMITS.v_max[6]
    assert "deg/s, its limit is 180.0 deg/s" in one.controller.last_error
    controller = settle(one, 40)
    assert controller.safety is SafetyState.SAFETY_STOP_LEVEL_0 and not controller.state.is_commanding
    one.go_to(SessionState.COMMANDING_ACTIVE)
    assert controller.safety is SafetyState.NORMAL_OPERATION and np.abs(controller.arm.v).max() < 0.05


def test_motions_within_the_limits_are_not_stopped():
    watch = LimitMonitor(ROBOT)
    rng = np.random.default_rng(0)
    for _ in range(200):
        q, v = rng.uniform(LIMITS.q_lower, LIMITS.q_upper), rng.uniform(-1.0, 1.0, 7) * LIMITS.v_max
        assert watch.find_broken(q, v) is None
        joint = rng.integers(7)
        name = ROBOT.joint_names[joint]
        for limit in (LIMITS.q_lower, LIMITS.q_upper):
            broken = q.copy()
            broken[joint] = limit[joint] * 1.001
            assert watch.find_broken(broken, v).startswith(f"{name} at {np.degrees(broken[joint]):.1f} deg, ")
        fast = v.copy()
        fast[joint] = -1.001 * LIMITS.v_max[joint]
        assert watch.find_broken(q, fast).startswith(f"{name} at {np.degrees(fast[joint]):.1f} deg/s, ")


def test_the_driver_is_told_of_the_stop_and_has_the_arm_again(monkeypatch):
    memory = Memory(make_controller(payload="0.6"))
    use_clock_of(memory, monkeypatch)
    loop = connected(memory)
    run(loop, 0.2)
    arm, pushed = memory.controller.arm, memory.controller.arm.q
    beyond = pushed.copy()
    beyond[5] = LIMITS.q_upper[5] + 1e-3
    arm.place(beyond)
    run(loop, 10 * PERIOD)
    status = loop.status()
    assert loop.mode is LoopMode.FAULT and "safety stop SAFETY_STOP_LEVEL_0" in status.reason, status.reason
    arm.place(pushed)  # somebody brings it back
    memory.controller.restart()
    loop.connect()
    run(loop, 0.2)
    assert loop.mode is LoopMode.HOLD
    loop.release("test")
