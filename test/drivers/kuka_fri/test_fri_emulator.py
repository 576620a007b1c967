"""The emulated controller in lock-step: session, quality, what it refuses, and the arm behind it."""

import json
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from fri_bench import PERIOD, ROBOT, make_controller

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.drivers.kuka_fri.codec import FriCodec, message_classes
from sysid_ros.drivers.kuka_fri.link import FriSession
from sysid_ros.drivers.kuka_fri.messages import Command, CommandMode, ControlMode, OverlayType, Quality, SessionState
from sysid_ros.drivers.modes import FriVersion, Noise
from sysid_ros.drivers.network import UdpEndpoint
from sysid_ros.emulators.arguments import Compensation, fri_parser
from sysid_ros.emulators.fri.__main__ import setup_of
from sysid_ros.emulators.fri.controller import WINDOW, ControllerSettings, QualityMonitor
from sysid_ros.emulators.fri.inner_loop import InnerLoopSettings
from sysid_ros.emulators.fri.server import EmulatorServer, build_controller
from sysid_ros.emulators.plant import PlantSettings
from sysid_ros.emulators.program import EmulatorSetup

QUIET = PlantSettings(noise=Noise.NONE)
WAIT, READY = SessionState.MONITORING_WAIT, SessionState.MONITORING_READY
COMMANDING_WAIT, ACTIVE = SessionState.COMMANDING_WAIT, SessionState.COMMANDING_ACTIVE


class Client:
    """Answers as KUKA's clients do; ``change`` spoils commands, ``answers`` decides which messages are answered."""

    def __init__(self, controller):
        self.controller = controller
        self.codec = FriCodec(controller.settings.version)
        self.session = FriSession(self.codec)
        self.message = None
        self.inbox = []

    def step(self, q=None, tau=None, change=None, answers=True):
        self.message = self.session.receive(self.controller.cycle(self.inbox))
        data = self.session.answer(self.message.q if q is None else q, tau)
        if data is not None and change is not None:
            data = self.codec.encode_command(change(self.codec.decode_command(data)))
        self.inbox = [data] if data is not None and answers else []
        return self.message

    def go_to(self, state, limit=2000, **step):
        for _ in range(limit):
            if self.controller.state is state:
                return self
            self.step(**step)
        raise AssertionError(f"{state.name} is not reached; {self.controller.reports}")


def client(state=ACTIVE, **settings):
    one = Client(make_controller(**{"plant": QUIET, **settings}))
    return one.go_to(state)


@pytest.mark.parametrize("version", list(FriVersion))
def test_the_session_goes_through_all_states_in_order(version):
    one = Client(make_controller(version=version))
    seen = []
    for _ in range(400):
        state = one.step().state
        if not seen or seen[-1] is not state:
            seen.append(state)
    assert seen == list(SessionState)
    assert one.controller.malformed == one.controller.rejected == 0


def test_messages_say_what_their_state_promises():
    one = Client(make_controller(plant=QUIET))
    for _ in range(400):
        message = one.step()
        is_commanding = message.state.is_commanding
        assert (message.q_ipo is not None) == is_commanding
        assert (message.command_mode is CommandMode.TORQUE) == is_commanding == (message.overlay is OverlayType.JOINT)
        assert (message.control_mode is ControlMode.JOINT_IMPEDANCE) == is_commanding
        assert message.tracking_performance == (1.0 if message.state is ACTIVE else 0.0)
        assert message.send_period == PERIOD
    assert message.state is ACTIVE and message.reflected == one.session.counts.answered - 2  # the last is on its way


@pytest.mark.parametrize("version", list(FriVersion))
def test_messages_have_the_fields_of_recorded_ones(version):
    """Those of 2.x are 75 bytes longer than without pose and redundancy, and say where the flange is."""
    one = Client(make_controller(version=version, plant=QUIET))
    (golden,) = (
        entry
        for entry in json.loads((Path(__file__).parent / "data" / "fri_golden.json").read_text())["datagrams"]
        if (entry["version"], entry["direction"], entry["state"]) == (version.value, "monitoring", "IDLE")
        and entry["session"] in ("torque", "joint_position")
    )
    kind = message_classes(version)["FRIMonitoringMessage"]
    cut = slice(4, -4) if version is FriVersion.V2_7 else slice(None)
    ours, recorded = kind.FromString(one.controller.cycle([])[cut]), kind.FromString(bytes.fromhex(golden["hex"])[cut])
    data = ours.monitorData
    for name in ("monitorData", "robotInfo", "connectionInfo", "ipoData"):
        of_ours, of_recorded = ({field.name for field, _ in getattr(m, name).ListFields()} for m in (ours, recorded))
        assert of_ours == of_recorded
    if version is FriVersion.V1_15:
        return
    whole = data.ByteSize()
    data.ClearField("measuredCartesianPose")
    data.ClearField("measuredRedundancyInformation")
    assert whole - data.ByteSize() == 75
    data = kind.FromString(one.controller.cycle([])[cut]).monitorData
    robot, pose = one.controller.arm.robot, np.array(data.measuredCartesianPose.element)
    model, pin_data = robot.pin_model, robot.pin_model.createData()
    q = np.array(data.measuredJointPosition.value)
    pin.framesForwardKinematics(model, pin_data, q)
    placement = pin_data.oMf[model.getFrameId(robot.flange_frame)]
    np.testing.assert_allclose(pose[:3], 1e3 * placement.translation, atol=1e-9)
    np.testing.assert_allclose(pin.Quaternion(*pose[3:]).matrix(), placement.rotation, atol=1e-12)
    assert data.measuredRedundancyInformation.value == q[2]


def test_only_the_port_of_the_client_is_answered_to():
    controller = make_controller(plant=QUIET, version=FriVersion.V2_5)
    client, stranger = UdpEndpoint("127.0.0.1"), UdpEndpoint("127.0.0.1")
    server = EmulatorServer(controller, ("localhost", client.address[1]), is_paced=False)
    try:
        stranger.peer = client.peer = server.address
        for counter in range(200):
            server.cycle()
            client.receive(0.01)
            stranger.send(FriCodec(FriVersion.V2_5).encode_command(Command(counter, counter)))
        assert controller.state is WAIT and controller.malformed == 0  # nobody has answered
        assert server._endpoint.ignored >= 199
        for counter in range(200):
            server.cycle()
            client.receive(0.01)
            client.send(FriCodec(FriVersion.V2_5).encode_command(Command(counter, counter)))
        assert controller.state is not WAIT
    finally:
        for one in (server, client, stranger):
            one.close()


def test_without_answers_nothing_begins():
    one = Client(make_controller())
    for _ in range(500):
        assert one.step(answers=False).state in (SessionState.IDLE, WAIT)


def test_quality_follows_the_share_of_answers():
    watch = QualityMonitor()
    assert watch.quality is Quality.POOR
    rng = np.random.default_rng(0)
    for share, expected in ((1.0, Quality.EXCELLENT), (0.95, Quality.GOOD), (0.7, Quality.FAIR), (0.2, Quality.POOR)):
        seen = []
        for _ in range(20 * WINDOW):
            watch.note(bool(rng.random() < share))
            seen.append(watch.quality)
        assert np.median(seen[2 * WINDOW :]) == expected


def test_bad_quality_takes_ready_back_to_wait():
    one = client(READY, start_time=np.inf)
    for _ in range(WINDOW):
        one.step(answers=False)
    assert one.controller.state is WAIT


def test_torques_need_an_answer_every_five_milliseconds():
    one = client()
    for _ in range(2):
        assert one.step(answers=False).state is ACTIVE
    one.step()
    for _ in range(5):
        one.step(answers=False)
    assert one.controller.state is READY and "no answer for" in one.controller.last_error


SPOILED = {
    "no joint position in a commanding": lambda c: c._replace(q=None),
    "no joint torque in torque mode": lambda c: c._replace(tau=None),
    "the commanded position of A3 jumps by 0.5": lambda c: c._replace(q=c.q + 0.5 * np.eye(7)[2]),
    "the commanded torque of A7 is 41.0": lambda c: c._replace(tau=41.0 * np.eye(7)[6]),
    "answer to message": lambda c: c._replace(reflected=c.reflected - 50),
}


@pytest.mark.parametrize("words", SPOILED)
def test_what_is_refused_ends_the_motion_with_a_reason(words):
    one = client()
    one.step(tau=np.zeros(7), change=SPOILED[words])
    one.step(answers=False)
    assert one.controller.state is READY and words in one.controller.last_error and one.controller.rejected == 1


def test_datagrams_that_are_none_are_counted_and_change_nothing():
    one = client()
    one.inbox += [b"", b"\0" * 50, b"nonsense"]
    one.step()
    assert one.controller.malformed == 3 and one.controller.state is ACTIVE


def test_repeated_and_late_commands_are_not_obeyed():
    one = client()
    one.step(tau=np.full(7, 2.0))
    old = list(one.inbox)
    one.step(tau=np.zeros(7))
    one.inbox += old
    one.step()
    np.testing.assert_array_equal(one.controller._command.tau, np.zeros(7))


def test_an_unmirrored_position_in_wait_is_refused():
    one = client(COMMANDING_WAIT)
    for _ in range(4):
        one.step(tau=np.zeros(7))
    one.step(change=lambda c: c._replace(q=c.q + 0.1))
    one.step(answers=False)
    assert one.controller.state is READY and "not mirrored" in one.controller.last_error


@pytest.mark.parametrize("version", list(FriVersion))
def test_the_header_alone_is_an_answer_while_monitoring_and_not_while_commanding(version):
    """KUKA's clients of 1.x mirror a position there, and public ones send the header alone with every version."""
    one = Client(make_controller(version=version))
    one.go_to(READY, change=lambda c: c._replace(q=None, tau=None))
    assert one.controller.rejected == 0
    one.go_to(COMMANDING_WAIT, change=lambda c: c._replace(q=None, tau=None))
    for _ in range(3):
        one.step(change=lambda c: c._replace(q=None, tau=None))
    assert one.controller.state is READY and "no joint position in a commanding state" in one.controller.last_error
    assert any("refused an answer in COMMANDING_WAIT: no joint position" in text for text in one.controller.reports)


def test_why_datagrams_are_refused_is_said_and_not_with_every_one():
    """A client of another version would see nothing but silence otherwise."""
    one = Client(make_controller(start_time=np.inf))
    other = FriCodec(FriVersion.V2_7)
    one.step()
    for _ in range(3000):
        one.controller.cycle([other.encode_command(Command(0, 0))])
    said = [text for text in one.controller.reports if text.startswith("refused a datagram: ")]
    assert one.controller.malformed == 3000 and 2 <= len(said) <= 4
    assert "not a FRICommandMessage of FRI 1.15" in said[0] and one.controller.state is WAIT


def test_the_emergency_stop_and_its_end():
    one = client()
    one.controller.press_emergency_stop()
    message = one.step()
    assert message.state is READY and message.safety == 2 and set(message.drives) == {0}
    for _ in range(500):
        assert not one.step().state.is_commanding
    one.controller.press_emergency_stop(False)
    one.go_to(ACTIVE)


def test_after_an_error_the_motion_is_started_again():
    one = client(restart_time=0.1)
    for _ in range(5):
        one.step(answers=False)
    assert one.controller.state is READY
    one.go_to(ACTIVE)
    assert client(restart_time=np.inf).controller.state is ACTIVE


def test_a_receive_multiplier_expects_every_nth_answer():
    one = client(send_period=0.001, receive_multiplier=3)
    answered = [bool(one.step() and one.inbox) for _ in range(30)]
    assert sum(answered) == 10 and one.controller.state is ACTIVE and one.controller.quality is Quality.EXCELLENT


# The arm


def test_zero_torque_leaves_the_modelled_arm_floating_and_a_payload_sinks():
    for payload, sinks in (("none", False), ("2.0", True)):
        one = client(truth="nominal", payload=payload)
        start = one.controller.arm.q
        for _ in range(150):
            one.step(tau=np.zeros(7))
        moved = np.abs(one.controller.arm.q - start).max()
        assert one.controller.state is ACTIVE and (moved > 0.02 if sinks else moved < 1e-4)


def test_without_compensation_zero_torque_falls():
    one = client(plant=QUIET, inner=InnerLoopSettings(compensation=Compensation.NONE))
    for _ in range(50):
        one.step(tau=np.zeros(7))
    assert np.abs(one.controller.arm.v).max() > 0.2


def test_a_torque_moves_its_joint_its_way_and_is_measured_with_the_reversed_sign():
    one = client(truth="nominal")
    tau = np.zeros(7)
    tau[6] = 1.0
    for _ in range(50):
        message = one.step(tau=tau)
    assert one.controller.arm.v[6] > 0.05
    true = ArmDynamics(ROBOT, one.controller.arm.theta, None)
    np.testing.assert_allclose(-message.tau[[1, 3]], true.gravity(one.controller.arm.q)[[1, 3]], atol=0.3)


def test_external_torque_is_what_the_controllers_model_cannot_explain():
    one = client(READY, truth="nominal", payload="2.0", start_time=np.inf)
    for _ in range(50):
        message = one.step()
    arm = one.controller.arm
    own, true = (ArmDynamics(ROBOT, ROBOT.theta_nominal, p).gravity(arm.q) for p in (None, arm.payload))
    np.testing.assert_allclose(message.tau_external, own - true, atol=0.05)  # the payload pushes down
    np.testing.assert_allclose(message.tau_external - message.tau, own, atol=0.05)
    assert np.abs(own - true).max() > 5.0


def test_the_reported_torque_is_the_mean_since_the_last_message():
    """The integral of the momentum balance over a motion, from what is reported alone."""
    one = client(truth="nominal", plant=QUIET, inner=InnerLoopSettings(stiffness=0.0))
    arm = one.controller.arm
    dynamics = ArmDynamics(ROBOT, arm.theta, None)
    states, reported = [], []
    for k in range(100):
        states.append((arm.q, arm.v))
        reported.append(-one.step(tau=2.0 * np.sin(0.1 * k + np.arange(7))).tau)
    mean = [dynamics.mean_torque(*states[k : k + 2], PERIOD) for k in range(99)]
    assert np.abs(arm.q - states[0][0]).max() > 0.02
    np.testing.assert_allclose(reported[1:], mean, atol=1e-9)


def test_positions_are_followed_in_position_mode():
    one = client(command_mode=CommandMode.POSITION)
    start = one.controller.arm.q
    for k in range(500):
        one.step(q=start + 0.05 * np.sin(2 * np.pi * k * PERIOD) * np.eye(7)[3])
    assert one.controller.state is ACTIVE
    sent = start[3] + 0.05 * np.sin(2 * np.pi * 499 * PERIOD)
    assert abs(one.controller.arm.q[3] - sent) < 0.02


def test_a_wrench_pushes_the_flange_its_way():
    soft = InnerLoopSettings(stiffness=100.0, damping_ratio=0.7)
    one = client(command_mode=CommandMode.WRENCH, truth="nominal", plant=QUIET, inner=soft)
    start = one.controller.arm.q
    for _ in range(300):
        one.step(q=start, change=lambda c: c._replace(wrench=np.array([0.0, 20.0, 0.0, 0.0, 0.0, 0.0])))
    jacobian = one.controller.inner._jacobian(start)
    assert (jacobian @ (one.controller.arm.q - start))[1] > 0.01


# Settings


@pytest.mark.parametrize(
    "changes",
    [
        {"send_period": 0.0015},
        {"send_period": 0.004, "receive_multiplier": 3},
        {"command_mode": CommandMode.CARTESIAN_POSE},
    ],
)
def test_applications_that_cannot_be_are_refused(changes):
    with pytest.raises(ParameterOutOfRange):
        ControllerSettings(**changes)


def test_every_option_of_the_command_line_reaches_the_emulator():
    options = fri_parser().parse_args(
        "--robot lbr_iiwa14 --version 2.7 --send-period 0.004 --receive-multiplier 2 --command-mode position --seed 5 "
        "--start-time 3 --restart-time 4 --truth corner --payload 2.0 --load 1.0 --noise none --compensation none "
        "--friction-compensation 0.5 --stiffness 200 --damping-ratio 0.7 --measured-sign 1 --command-sign -1".split()
    )
    assert setup_of(options) == (
        EmulatorSetup("lbr_iiwa14", "corner", "2.0", "1.0", PlantSettings(Noise.NONE, 5, 1.0, -1.0)),
        ControllerSettings(FriVersion.V2_7, 0.004, 2, CommandMode.POSITION, 3.0, 4.0),
        InnerLoopSettings(Compensation.NONE, 0.5, 200.0, 0.7),
    )


def test_only_arms_of_kuka_are_emulated():
    assert build_controller(EmulatorSetup("lbr_iiwa7")).arm.robot.name == "kuka_lbr_iiwa7"
    with pytest.raises(ParameterOutOfRange, match="'protocol: fri'"):
        build_controller(EmulatorSetup("kinova_gen3"))


@pytest.mark.parametrize("missed", [0, 1, 2])
def test_a_client_may_begin_to_count_at_any_message(missed):
    one = Client(make_controller(send_period=0.001, receive_multiplier=3))
    for _ in range(missed + 1):
        one.controller.cycle([])
    one.go_to(ACTIVE)
    assert one.controller.quality >= Quality.GOOD
