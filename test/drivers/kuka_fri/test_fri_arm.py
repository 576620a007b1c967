"""The LBR as an arm of the loop: taking over, torques and signs, falling back, restarts; over real sockets."""

import time
from dataclasses import replace

import numpy as np
import pytest
from driver_doubles import start_move, started
from emulated_campaign import require_forgives_itself
from fri_bench import PERIOD, ROBOT, RunningEmulator, make_arm, make_controller, make_loop, run, with_sensors
from fri_memory import Memory, MemoryArm, use_clock_of
from textbook import load_textbook

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.drivers.arm import REFUSALS, ArmError, ArmLost
from sysid_ros.drivers.kuka_fri import link as link_module
from sysid_ros.drivers.kuka_fri.arm import FriArm
from sysid_ros.drivers.kuka_fri.codec import FriCodec
from sysid_ros.drivers.kuka_fri.link import FriLink
from sysid_ros.drivers.kuka_fri.messages import CommandMode, SessionState
from sysid_ros.drivers.kuka_fri.settings import FriSettings, TorqueSetup
from sysid_ros.drivers.loop_types import LoopCode, LoopMode
from sysid_ros.drivers.modes import FriVersion, Noise
from sysid_ros.drivers.network import UdpEndpoint
from sysid_ros.drivers.takeover import TakeoverRefused
from sysid_ros.emulators.arguments import Compensation
from sysid_ros.emulators.fri.inner_loop import InnerLoopSettings
from sysid_ros.emulators.plant import PlantSettings

QUIET = PlantSettings(noise=Noise.NONE)


def travelled(controller):
    return np.abs(controller.arm.q - ROBOT.home).max()


@pytest.mark.parametrize("version", list(FriVersion))
def test_takes_over_and_holds(port, version):
    controller = make_controller(payload="1.0", version=version)
    with RunningEmulator(controller, port):
        loop = make_loop(make_arm(port, version=version))
        loop.connect()
        samples = run(loop, 1.0)
        assert loop.mode is LoopMode.HOLD and len(samples) == round(1.0 / PERIOD) and all(s.ok for s in samples)
        health = loop.arm.health()
        loop.release("test")
    assert travelled(controller) < 0.01
    assert health["session state"] == "COMMANDING_ACTIVE" and health["connection quality"] == "EXCELLENT"
    assert health["messages lost"] == health["messages malformed"] == health["session fall-backs"] == 0
    assert (health["safety state"], health["drives"]) == ("NORMAL_OPERATION", "all active")
    modes = [health[f"{whose} mode"] for whose in ("control", "client command", "operation")]
    assert modes == ["JOINT_IMPEDANCE", "TORQUE", "TEST_MODE_1"]
    assert np.abs(np.diff([s.stamp_ns for s in samples]) - PERIOD * 1e9).max() < 1e5


def test_torque_limits_that_do_not_hold_the_arm_are_refused_before_torque(port):
    controller = make_controller(payload="1.0")
    weak = replace(ROBOT, limits=replace(ROBOT.limits, tau_max=ROBOT.limits.tau_max / 10.0))
    with RunningEmulator(controller, port), pytest.raises(TakeoverRefused, match="lbr_A. needs .* Nm at rest.*Raise"):
        make_arm(port, weak).connect()
    assert not any("COMMANDING_ACTIVE" in report for report in controller.reports)


@pytest.mark.parametrize("setup", list(TorqueSetup))
def test_the_estimator_gets_the_joint_torque(port, setup):
    """At rest, gravity of the true arm with its payload, in joint direction: whatever the controller compensates."""
    compensation = Compensation.MODEL if setup is TorqueSetup.OVERLAY else Compensation.NONE
    controller = make_controller(payload="1.0", plant=QUIET, inner=InnerLoopSettings(compensation=compensation))
    with RunningEmulator(controller, port):
        loop = make_loop(make_arm(port, setup=setup))
        loop.connect()
        samples = run(loop, 1.2)[-100:]
        loop.release("test")
    truth = ArmDynamics(ROBOT, controller.arm.theta, controller.arm.payload)
    tau = np.mean([s.tau for s in samples], axis=0)
    np.testing.assert_allclose(tau, truth.gravity(controller.arm.q), atol=0.1)
    assert np.abs(tau).max() > 20.0


@pytest.mark.parametrize("setup", list(TorqueSetup))
def test_the_torque_commanded_is_the_torque_that_acts(port, setup):
    """What the loop calls the whole torque reaches the joints as just that, after the controller has added its own."""
    compensation = Compensation.MODEL if setup is TorqueSetup.OVERLAY else Compensation.NONE
    controller = make_controller(plant=QUIET, inner=InnerLoopSettings(compensation=compensation), load="1.0")
    load = controller.inner.load
    acted = []
    inner = controller.inner._torque
    with RunningEmulator(controller, port):
        arm = make_arm(port, setup=setup, controller_load=load)
        arm.connect()
        state = arm.read()
        controller.inner._torque = lambda *a: (acted.append(inner(*a)), acted[-1])[1]
        sent = []
        for k in range(50):
            sent.append(state.tau + 0.2 * np.sin(0.3 * k))
            arm.command(sent[-1])
            state = arm.read()
        arm.close()
    difference = np.array(sent[5:40])[:, None] - np.array(acted)[None]
    assert np.abs(difference).max(axis=2).min(axis=1).max() < 0.05


SOON = {"connect_timeout": 0.5}
REFUSED = {
    "measured torques of the wrong sign": (
        {"plant": PlantSettings(measured_sign=1.0)},
        {},
        "opposite sign.*effort_sign",
    ),
    "a payload beyond the prior": ({"payload": "14.0"}, {}, "its model allows"),
    "another load on the controller": ({"load": "3.0"}, {}, "the controller compensates"),
    "commands of positions": ({"command_mode": CommandMode.POSITION}, {}, "mode is POSITION.*TORQUE"),
    "commands of wrenches": ({"command_mode": CommandMode.WRENCH}, {}, "mode is WRENCH.*TORQUE"),
    "another period": ({"send_period": 0.001}, {}, "every 1 ms .* set up for 2 ms"),
    "six joints": ({"joint_count": 6}, SOON, "unusable datagrams.*an arm with 6 joints; FRI arms have 7"),
    "eight joints": ({"joint_count": 8}, SOON, "unusable datagrams.*an arm with 8 joints; FRI arms have 7"),
    "another version": ({"version": FriVersion.V2_7}, SOON, "unusable datagrams"),
    "another host": ({}, {"robot_ip": "127.0.0.9", **SOON}, "datagrams of other hosts or ports were ignored"),
}
"""By name: what is changed of the controller, and of the settings, and what is said."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_before_torque(port, name):
    changes, settings, words = REFUSED[name]
    controller = make_controller(**changes)
    start = controller.arm.q
    with RunningEmulator(controller, port), pytest.raises(TakeoverRefused, match=words):
        make_arm(port, **settings).connect()
    assert np.abs(controller.arm.q - start).max() < 1e-4 and "COMMANDING_ACTIVE" not in " ".join(controller.reports)


def test_commands_of_the_wrong_sign_are_refused_within_a_milliradian_or_two(port):
    controller = make_controller(plant=replace(QUIET, command_sign=-1.0))
    with RunningEmulator(controller, port):
        with pytest.raises(TakeoverRefused, match="lbr_A7 moves backwards.*sign of the commands"):
            make_arm(port).connect()
        assert travelled(controller) < 0.01


@pytest.mark.parametrize(("compensation", "setup"), [(Compensation.NONE, "overlay"), (Compensation.MODEL, "full")])
def test_a_controller_that_compensates_otherwise_than_set_up_is_noticed_at_once(port, compensation, setup):
    controller = make_controller(inner=InnerLoopSettings(compensation=compensation))
    with RunningEmulator(controller, port) as emulator:
        with pytest.raises(TakeoverRefused, match=f"moved by .* '{setup}' says"):
            make_arm(port, setup=TorqueSetup(setup)).connect()
        emulator.lose_patience()
        time.sleep(0.3)
        assert travelled(controller) < 0.1


def test_the_receive_multiplier_makes_a_longer_period(port):
    controller = make_controller(send_period=0.001, receive_multiplier=2)
    with RunningEmulator(controller, port):
        loop = make_loop(make_arm(port))
        loop.connect()
        samples = run(loop, 0.3)
        assert loop.mode is LoopMode.HOLD and not controller.rejected
        loop.release("test")
    assert np.abs(np.diff([s.stamp_ns for s in samples]) - 2e6).max() < 1e5


def test_no_controller_says_what_to_check(port):
    with pytest.raises(TakeoverRefused, match=f"no message at UDP port {port}.*application running"):
        make_arm(port, connect_timeout=0.2).connect()


def test_garbage_of_the_robots_address_draws_no_answer_and_does_not_disturb(port):
    """Any program on the controller's computer can send to our port; only who sends what a controller sends counts."""
    stranger = UdpEndpoint("127.0.0.1", peer=("127.0.0.1", port))
    controller = make_controller()
    genuine = FriCodec(FriVersion.V1_15).encode_monitoring(controller._message(controller._state)._replace(sequence=0))
    with RunningEmulator(controller, port) as emulator:
        arm = make_arm(port, robot_ip="127.0.0.1")
        loop = make_loop(arm)
        stranger.send(b"garbage")
        loop.connect()
        for _ in range(20):
            stranger.send(b"\x0a\x02garbage")
            stranger.send(genuine)
            samples = run(loop, 0.02)
            assert loop.mode is LoopMode.HOLD and all(sample.ok for sample in samples)
        health = arm.health()
        assert arm._link._endpoint.peer == emulator.server.address
        loop.release("test")
    assert stranger.receive(0.05) is None
    assert health["datagrams of others"] == 40 and health["messages malformed"] <= 1
    stranger.close()


def test_garbage_during_a_motion_is_refused_and_told_once(port):
    """From another port, and from the controller's own: no message, one that is cut, and one that was sent before."""
    stranger = UdpEndpoint("127.0.0.1", peer=("127.0.0.1", port))
    controller = make_controller()
    genuine = FriCodec(FriVersion.V1_15).encode_monitoring(controller._message(controller._state)._replace(sequence=1))
    with RunningEmulator(controller, port) as emulator:
        arm = make_arm(port, robot_ip="127.0.0.1")
        loop = started(make_loop(arm), 0.5)
        start_move(loop, 1.0)
        answered = arm.health()["commands sent"]
        own = emulator.server._endpoint
        for kind in range(36):
            stranger.send((b"garbage", genuine, genuine[:40], b"")[kind % 4])
            emulator.now(lambda _, kind=kind: own.send((b"garbage", genuine, genuine[:40])[kind % 3]))
            assert all(sample.ok for sample in run(loop, 0.02)) and loop.mode is LoopMode.TRACK
        run(loop, 0.5)
        health = arm.health()
        assert loop.mode is LoopMode.HOLD and loop.status().code is LoopCode.OK
        loop.release("test")
    assert travelled(controller) > 0.09
    assert stranger.receive(0.05) is None
    name = "{}:{}".format(*stranger.address)
    stranger.close()
    # An answer for each message of the controller, and none for what was refused.
    assert health["commands sent"] - answered == 36 * 10 + 250
    assert (health["datagrams of others"], health["messages malformed"]) == (36, 24)
    assert health["messages duplicated"] + health["messages out of order"] == 12
    sentences = health[REFUSALS]
    assert len(sentences) == 3 and sentences[0].startswith(f"datagrams of {name}: who sends them")
    assert sentences[1].startswith("a datagram that is no message of an FRI controller: ")
    assert sentences[2].startswith("a message that was repeated, or is older than the last")


def test_a_controller_that_comes_back_on_another_port_is_heard_after_a_silence(port, monkeypatch):
    codec = FriCodec(FriVersion.V1_15)
    one, other = (UdpEndpoint("127.0.0.1", peer=("127.0.0.1", port)) for _ in range(2))
    message = make_controller()
    link = FriLink(FriSettings(period=PERIOD), make_arm(port)._open())
    try:
        one.send(codec.encode_monitoring(message._message(message._state)._replace(sequence=0)))
        assert link.next(60.0) is not None
        other.send(codec.encode_monitoring(message._message(message._state)._replace(sequence=1)))
        assert link.next(0.05) is None
        monkeypatch.setattr(link_module, "PEER_SILENCE", 0.0)
        assert link.next(0.0) is None  # silent for long enough now
        other.send(codec.encode_monitoring(message._message(message._state)._replace(sequence=1)))
        assert link.next(60.0).sequence == 1
    finally:
        for endpoint in (one, other, link):
            endpoint.close()


def test_a_motion_that_never_starts_is_reported(monkeypatch):
    memory = Memory(make_controller(start_time=np.inf))
    use_clock_of(memory, monkeypatch)
    with pytest.raises(TakeoverRefused, match="MONITORING_READY with quality EXCELLENT; start the motion"):
        MemoryArm(memory, FriVersion.V1_15, connect_timeout=0.6).connect()


def test_a_port_in_use_is_reported(port):
    other = UdpEndpoint(None, port)
    with pytest.raises(ArmError, match="does another driver run"):
        make_arm(port).connect()
    other.close()


def test_robots_that_are_none_of_kukas_are_refused():
    with pytest.raises(ParameterOutOfRange, match="link_side"):
        FriArm(load_textbook("kinova_gen3"))


def test_velocities_better_than_possible_are_refused():
    with pytest.raises(ParameterOutOfRange, match="velocity_error.*at least .* set \\["):
        FriArm(with_sensors(ROBOT, velocity_error=np.full(7, 0.002)))


# While it runs


@pytest.fixture
def running(port):
    controller = make_controller(payload="1.0")
    with RunningEmulator(controller, port) as emulator:
        loop = started(make_loop(make_arm(port)), 0.3)
        yield emulator, loop
        loop.release("test")


def test_a_session_that_falls_back_ends_torque_at_once(running):
    emulator, loop = running
    emulator.now(lambda c: c.end_motion("somebody stopped the application"))
    before = loop.arm.health()["commands sent"]
    run(loop, 10 * PERIOD)
    status = loop.status()
    assert status.mode is LoopMode.FAULT and status.code is LoopCode.HARDWARE and loop.is_handed_back
    assert "the session fell back to MONITORING_READY (quality" in status.reason
    assert loop.arm.health()["commands sent"] > before + 3  # monitoring goes on, without torque
    assert emulator.controller.arm.v == pytest.approx(np.zeros(7), abs=0.02)
    with pytest.raises(ArmError, match="needs a connected arm"):
        loop.arm.command(np.zeros(7))


def test_every_state_but_active_loses_the_arm(running):
    _, loop = running
    arm = loop.arm
    message = arm._link.session.last
    for state in SessionState:
        arm._is_commanding = True
        if state is SessionState.COMMANDING_ACTIVE:
            arm._require_torque_mode(arm._link, message)
            continue
        with pytest.raises(ArmLost, match=state.name):
            arm._require_torque_mode(arm._link, message._replace(state=state))
        assert not arm._is_commanding
    for changes in ({"command_mode": CommandMode.POSITION}, {"control_mode": 0}):
        arm._is_commanding = True
        with pytest.raises(ArmLost, match="torque mode"):
            arm._require_torque_mode(arm._link, message._replace(**changes))


def test_the_emergency_stop_ends_torque_and_the_arm_can_be_taken_over_again(running):
    emulator, loop = running
    emulator.now(lambda c: c.press_emergency_stop())
    run(loop, 20 * PERIOD)
    status, health = loop.status(), loop.arm.health()
    assert status.mode is LoopMode.FAULT and status.code is LoopCode.HARDWARE
    assert "safety stop SAFETY_STOP_LEVEL_1" in status.reason and "A1 OFF, A2 OFF" in status.reason
    assert health["safety state"] == "SAFETY_STOP_LEVEL_1" and health["drives"].endswith("A7 OFF")
    with pytest.raises(TakeoverRefused, match="safety stop"):
        loop.connect()
    emulator.lose_patience()
    emulator.now(lambda c: c.press_emergency_stop(False))
    loop.connect()
    run(loop, 0.3)
    assert loop.mode is LoopMode.HOLD


def test_after_a_stop_the_controller_holds_and_the_arm_can_be_taken_over_again(running):
    emulator, loop = running
    q = emulator.controller.arm.q
    emulator.now(lambda c: setattr(c, "settings", replace(c.settings, restart_time=np.inf)))
    loop.arm.stop("test")
    emulator.lose_patience()
    for _ in range(50):  # the motion ends after 6 ms
        loop.arm.read()
    assert not emulator.controller.state.is_commanding
    assert "no answer" in emulator.controller.last_error
    np.testing.assert_allclose(emulator.controller.arm.q, q, atol=5e-3)
    emulator.now(lambda c: setattr(c, "_wait", 0.2))
    loop.arm.connect()
    assert loop.arm.read().ok


def test_an_emulator_that_stands_still_itself_does_not_blame_its_client(running):
    require_forgives_itself(*running)


def test_torques_that_are_no_numbers_never_leave(running):
    _, loop = running
    with pytest.raises(ArmError, match="lbr_A3"):
        loop.arm.command(np.array([0, 0, np.nan, 0, 0, 0, 0.0]))


@pytest.mark.parametrize("changes", [{"period": 0.006}, {"controller_load": [1.0]}])
def test_settings_that_cannot_be_are_refused(changes):
    with pytest.raises(ParameterOutOfRange):
        FriSettings(**changes)


def test_a_motion_that_starts_before_the_arm_was_measured_is_not_answered(monkeypatch):
    """Answered with zero torque, the arm would float and sink under its payload."""
    controller = make_controller(payload="2.0", start_time=0.05, restart_time=0.05)
    memory = Memory(controller)
    use_clock_of(memory, monkeypatch)
    with pytest.raises(TakeoverRefused):
        MemoryArm(memory, FriVersion.V1_15, rest_time=5.0, connect_timeout=1.0).connect()
    assert any("COMMANDING_WAIT -> MONITORING_READY: the motion is ended" in report for report in controller.reports)
    assert "commands act" not in " ".join(controller.reports)
    assert travelled(controller) < 1e-3
