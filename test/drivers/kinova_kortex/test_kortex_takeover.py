"""Taking a Gen3 over and handing it back without sockets: limits too low, slow replies, the end of the sessions."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from driver_doubles import started
from kortex_bench import ROBOT, make_base, make_loop
from kortex_memory import Clock, Memory, MemoryArm

from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.drivers.kinova_kortex.enums import ControlMode, Function, KortexConnectionLost, ServoingMode
from sysid_ros.drivers.kinova_kortex.frame import decode_frame, message_class
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings
from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.drivers.takeover import TakeoverRefused
from sysid_ros.emulators.kortex.base import TCP, UDP
from sysid_ros.emulators.relays.faults import NetworkFaults


def with_torque_limits(torque):
    one = np.array(torque)
    return replace(ROBOT, limits=replace(ROBOT.limits, tau_max=one, tau_continuous=one))


def test_torque_limits_that_do_not_hold_the_arm_are_refused_before_torque():
    """A third of the published limits leaves 13 Nm to joint 2; under torque control the arm would sink."""
    base = make_base(payload="dumbbell_4lb")
    memory = Memory(base)
    with pytest.raises(TakeoverRefused) as caught:
        MemoryArm(memory, with_torque_limits(ROBOT.limits.tau_continuous / 3.0)).connect()
    words = str(caught.value)
    (torque, limit), *_ = re.findall(r"joint_2 needs (\S+) Nm at rest, its torque limit is (\S+) Nm", words)
    enough = dict(re.findall(r"(joint_\d) to (\S+) Nm", words))
    assert enough.keys() == {"joint_2", "joint_4"} and float(limit) == 13.0, words
    assert "or choose a posture that needs less, or a lighter payload" in words
    gravity = ArmDynamics(ROBOT, base.arm.theta, base.arm.payload).gravity(ROBOT.home)[1]
    assert float(torque) == pytest.approx(gravity, abs=1.5) and abs(gravity) > 13.0  # friction lies between
    assert not base.reports and set(base.actuators.modes) == {ControlMode.POSITION} and memory.farthest < 1e-3

    # With the limits that are asked for, the arm is held.
    limits = [
        float(enough.get(name, tau)) for name, tau in zip(ROBOT.joint_names, ROBOT.limits.tau_continuous, strict=True)
    ]
    loop = started(make_loop(MemoryArm(memory, with_torque_limits(limits))), 0.2)
    assert loop.mode is LoopMode.HOLD and memory.farthest < 5e-3
    loop.release("test")


def test_devices_that_cannot_be_addressed_are_refused():
    base = make_base(device_ids=(1, 2, 3, 4, 5, 6, 263))
    with pytest.raises(KortexConnectionLost, match=r"answer to READ_ALL_DEVICES cannot be read: .*from 1 to 255"):
        MemoryArm(Memory(base)).connect()
    assert not base.reports


# How long a cycle waits


@pytest.mark.parametrize(
    ("wait_time", "delay", "is_in_time"),
    [(0.0, 0.0007, True), (0.0, 0.0008, False), (0.0, 0.002, False), (0.003, 0.002, True), (0.003, 0.0032, False)],
)
def test_a_cycle_waits_three_quarters_of_a_period_or_as_long_as_it_is_told(monkeypatch, wait_time, delay, is_in_time):
    """0 is the default; with ``cycle_timeout`` 0.003 s a cycle waits as long as Kinova's examples do."""
    memory = Memory(make_base(), waits=None)
    # Replies land at the time of the emulated base; the clock of the client must not add the computing time of both.
    monkeypatch.setattr("sysid_ros.drivers.kinova_kortex.client.time", SimpleNamespace(monotonic=lambda: 0.0))
    arm = MemoryArm(memory, wait_time=wait_time, session_timeout=10.0)
    arm.connect()
    arm.read()  # what taking over ended with
    memory.change(NetworkFaults(delay=0.5 * delay))
    assert [arm.read().ok for _ in range(10)] == [is_in_time] * 10
    assert arm.health()["replies missing"] == (0 if is_in_time else 10)
    memory.change(NetworkFaults())
    arm.close()


# The end of the sessions


@pytest.mark.parametrize("rest", [0.0, 0.2, 0.7])
def test_half_a_second_lies_between_the_end_of_low_level_servoing_and_that_of_the_sessions(monkeypatch, rest):
    """Kinova's order; whether the arm is read for a while after it was handed back, or closed at once."""
    base = make_base()
    memory = Memory(base)
    for user in ("arm", "exchange"):
        monkeypatch.setattr(f"sysid_ros.drivers.kinova_kortex.{user}.time", Clock(memory))
    heard, answer = [], base.answer

    def listen(transport, client, data):
        frame = decode_frame(data)
        heard.append((memory.time, transport, Function(frame.function), frame.payload))
        return answer(transport, client, data)

    base.answer = listen
    arm = MemoryArm(memory, close_time=KortexSettings().close_time)
    arm.connect()
    arm.stop("test")
    start = memory.time
    while memory.time < start + rest:
        assert arm.read().ok
    arm.close()
    arm.close()
    single = message_class("ServoingModeInformation")(servoing_mode=ServoingMode.SINGLE_LEVEL).SerializeToString()
    held = [time for time, _, function, sent in heard if (function, sent) == (Function.SET_SERVOING_MODE, single)]
    ends = [(time, transport) for time, transport, function, _ in heard if function is Function.CLOSE_SESSION]
    assert {transport for _, transport in ends} == {TCP, UDP} and len(ends) == 2
    assert all(max(rest, 0.5) - 1e-9 <= time - held[-1] < max(rest, 0.5) + 0.01 for time, _ in ends)
    assert base.reports[-1] == "the base holds the arm: asked for" and not len(base.sessions)
