"""Kinova's kortex_api behind the same interface; not installed here, so a stand-in with its names takes its place."""

import sys
import types

import numpy as np
import pytest
from kortex_bench import RunningEmulator, make_arm, make_base, make_loop, run

from sysid_ros.drivers.kinova_kortex.client import KortexClient
from sysid_ros.drivers.kinova_kortex.enums import Function, KortexConnectionLost, KortexServerError
from sysid_ros.drivers.kinova_kortex.frame import message_class, parse
from sysid_ros.drivers.kinova_kortex.messages import decode_command, encode_feedback
from sysid_ros.drivers.kinova_kortex.settings import Api, KortexSettings
from sysid_ros.drivers.kinova_kortex.vendor import VendorApiMissing, import_kortex_api
from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.drivers.network import UdpEndpoint


class KServerException(Exception):
    """Has the two getters of Kinova's exception."""

    def __init__(self, error):
        super().__init__(str(error))
        self.error = error

    def get_error_code(self):
        return self.error.code

    def get_error_sub_code(self):
        return self.error.sub_code


class Transport:
    def connect(self, ip, port):
        self.address = ip, port

    def disconnect(self):
        self.is_closed = True


class TCPTransport(Transport):
    pass


class UDPTransport(Transport):
    pass


class RouterClient:
    made = []

    def __init__(self, transport, callback):
        self.transport, self.is_active = transport, True
        RouterClient.made.append(self)

    @staticmethod
    def basicErrorCallback(error):
        raise AssertionError(error)

    def SetActivationStatus(self, is_active):
        self.is_active = is_active


class RouterClientSendOptions:
    andForget, delay_ms, timeout_ms = False, 0, 10000


class SessionManager:
    """Opens the session with the native client underneath."""

    def __init__(self, router):
        self.router = router

    def CreateSession(self, info):
        ip, port = self.router.transport.address
        native = KortexClient(KortexSettings(ip, port, port, connect_timeout=1.0), 7)
        native._settings = native._tcp._settings = KortexSettings(
            ip, port, port, info.username, info.password, info.session_inactivity_timeout / 1e3,
            info.connection_inactivity_timeout / 1e3, connect_timeout=1.0,
        )  # fmt: skip
        self.router.native = native
        if isinstance(self.router.transport, TCPTransport):
            attempt(native._tcp.open)
        else:
            native._udp = UdpEndpoint("", 0, ip)
            from sysid_ros.drivers.kinova_kortex.tcp import session_request

            attempt(lambda: native._exchange(Function.CREATE_SESSION, session_request(native._settings), 1.0))

    def CloseSession(self, options):
        self.router.native.close()


def attempt(action):
    try:
        return action()
    except KortexServerError as error:
        raise KServerException(error) from None


class Stub:
    def __init__(self, router):
        self.native = router.native

    def tcp(self, function, message=None, device=0, answer=None):
        tcp = self.native._tcp
        payload = b"" if message is None else message.SerializeToString()
        read = (lambda data: parse(answer, data)) if answer else (lambda _: None)
        return attempt(lambda: tcp.wait(tcp.start(function, payload, device, read), 1.0))


class BaseClient(Stub):
    def ClearFaults(self):
        self.tcp(Function.CLEAR_FAULTS)

    def SetServoingMode(self, information):
        self.tcp(Function.SET_SERVOING_MODE, information)

    def GetActuatorCount(self):
        return self.tcp(Function.GET_ACTUATOR_COUNT, answer="ActuatorInformation")

    def GetArmState(self):
        return self.tcp(Function.GET_ARM_STATE, answer="ArmStateInformation")


class BaseCyclicClient(Stub):
    def Refresh(self, command, device, options):
        assert options.timeout_ms >= 3 and device == 0
        data = decode_command(command.SerializeToString(), 7)
        return self.answer(attempt(lambda: self.native.refresh(data, options.timeout_ms / 1e3)))

    def RefreshFeedback(self, device, options):
        return self.answer(attempt(lambda: self.native.refresh(None, options.timeout_ms / 1e3)))

    def answer(self, feedback):
        if feedback is None:
            raise TimeoutError("no answer")
        return parse("Feedback", encode_feedback(feedback))


class ActuatorConfigClient(Stub):
    def SetControlMode(self, information, device):
        self.tcp(Function.SET_CONTROL_MODE, information, device)


class DeviceManagerClient(Stub):
    def ReadAllDevices(self):
        return self.tcp(Function.READ_ALL_DEVICES, answer="DeviceHandles")


class CreateSessionInfo:
    username = password = ""
    session_inactivity_timeout = connection_inactivity_timeout = 0


@pytest.fixture
def kortex_api(monkeypatch):
    """The names of Kinova's package, as far as the driver uses them."""

    def module(name, **contents):
        made = types.ModuleType(f"kortex_api{name}")
        vars(made).update(contents)
        monkeypatch.setitem(sys.modules, made.__name__, made)

    module("")
    module(".TCPTransport", TCPTransport=TCPTransport)
    module(".UDPTransport", UDPTransport=UDPTransport)
    module(".RouterClient", RouterClient=RouterClient, RouterClientSendOptions=RouterClientSendOptions)
    module(".SessionManager", SessionManager=SessionManager)
    module(".autogen")
    module(".autogen.client_stubs")
    module(".autogen.messages")
    for kind in (BaseClient, BaseCyclicClient, ActuatorConfigClient, DeviceManagerClient):
        module(f".autogen.client_stubs.{kind.__name__}Rpc", **{kind.__name__: kind})
    module(".autogen.messages.Session_pb2", CreateSessionInfo=CreateSessionInfo)
    module(".autogen.messages.Base_pb2", ServoingModeInformation=message_class("ServoingModeInformation"))
    module(".autogen.messages.BaseCyclic_pb2", Command=message_class("Command"))
    module(".autogen.messages.ActuatorConfig_pb2", ControlModeInformation=message_class("ControlModeInformation"))


def test_without_kinovas_package_it_says_what_to_do():
    words = r"No module named 'kortex_api'.*install Kinova's wheel.*'kortex_api' = native"
    with pytest.raises(VendorApiMissing, match=words):
        import_kortex_api()
    with RunningEmulator(make_base()) as emulator, pytest.raises(VendorApiMissing):
        make_arm(emulator, api=Api.VENDOR).connect()


def test_a_package_without_what_is_needed_is_as_none(kortex_api, monkeypatch):
    monkeypatch.delattr(sys.modules["kortex_api.RouterClient"], "RouterClient")
    with pytest.raises(VendorApiMissing, match="RouterClient"):
        import_kortex_api()


def test_takes_over_holds_and_hands_back(kortex_api):
    base = make_base(payload="1.0")
    RouterClient.made.clear()
    with RunningEmulator(base) as emulator:
        loop = make_loop(make_arm(emulator, api=Api.VENDOR))
        loop.connect()
        samples = run(loop, 0.2)
        assert loop.mode is LoopMode.HOLD and all(s.ok for s in samples)
        health = loop.arm.health()
        loop.release("test")
        assert base.reports == ["low-level servoing", "the base holds the arm: asked for"]
    assert len(RouterClient.made) == 2 and not any(one.is_active for one in RouterClient.made)
    assert all(one.transport.is_closed for one in RouterClient.made)
    assert health["replies missing"] == 0 and health["replies"] > 200
    assert np.abs(base.arm.v).max() < 0.05


def test_errors_of_the_base_are_the_same(kortex_api):
    with RunningEmulator(make_base()) as emulator:
        with pytest.raises(KortexServerError, match="CREATE_SESSION.*INVALID_PASSWORD"):
            make_arm(emulator, api=Api.VENDOR, password="x").connect()
        loop = make_loop(make_arm(emulator, api=Api.VENDOR))
        loop.connect()
        run(loop, 0.05)
        emulator.now(lambda base: base.leave_low_level("joystick"))
        run(loop, 0.02)
        assert loop.mode is LoopMode.FAULT and "WRONG_SERVOING_MODE" in loop.status().reason
        loop.release("test")


def test_a_base_that_is_not_there_is_no_server_error(kortex_api):
    with RunningEmulator(make_base()) as emulator:
        pass
    with pytest.raises(KortexConnectionLost, match="refused"):
        make_arm(emulator, api=Api.VENDOR, connect_timeout=0.3).connect()
