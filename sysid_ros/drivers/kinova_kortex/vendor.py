"""Kinova's own ``kortex_api`` behind the interface of the native client, for users who have installed it.

It is not on PyPI; Kinova offers a wheel. Nothing of it is part of this package, and it is imported only when it is
chosen. It has never run here: the tests put a stand-in of the same interface in its place.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, TypeVar

from sysid_ros.drivers.arm import ArmError
from sysid_ros.drivers.kinova_kortex.enums import (
    ArmState,
    ControlMode,
    KortexConnectionLost,
    KortexDecodeError,
    KortexServerError,
    ServoingMode,
)
from sysid_ros.drivers.kinova_kortex.link import Call, CyclicCounts, KortexLink
from sysid_ros.drivers.kinova_kortex.messages import Command, Feedback, read_actuators, read_feedback
from sysid_ros.drivers.kinova_kortex.settings import REPLY_TIMEOUT, KortexSettings

T = TypeVar("T")
_STUBS, _MESSAGES = "autogen.client_stubs", "autogen.messages"
_PARTS = {
    "TCPTransport": "TCPTransport",
    "UDPTransport": "UDPTransport",
    "RouterClient": "RouterClient",
    "RouterClientSendOptions": "RouterClient",
    "SessionManager": "SessionManager",
    "BaseClient": f"{_STUBS}.BaseClientRpc",
    "BaseCyclicClient": f"{_STUBS}.BaseCyclicClientRpc",
    "ActuatorConfigClient": f"{_STUBS}.ActuatorConfigClientRpc",
    "DeviceManagerClient": f"{_STUBS}.DeviceManagerClientRpc",
}
_MODULES = ("Session_pb2", "Base_pb2", "BaseCyclic_pb2", "ActuatorConfig_pb2")


class VendorApiMissing(ArmError):
    """``kortex_api`` cannot be imported.

    Args:
        reason: What Python says.
    """

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(
            f"kortex_api cannot be imported ({reason}); install Kinova's wheel, kortex_api-*.whl, into this "
            "environment, or choose the client of this package: parameter 'kortex_api' = native of the arm_driver"
        )


def import_kortex_api() -> SimpleNamespace:
    """The classes and message modules that are used, by name.

    Raises:
        VendorApiMissing: It is not installed, or is another version.
    """
    found = {}
    try:
        for name, module in _PARTS.items():
            found[name] = getattr(importlib.import_module(f"kortex_api.{module}"), name)
        for name in _MODULES:
            found[name] = importlib.import_module(f"kortex_api.{_MESSAGES}.{name}")
    except (ImportError, AttributeError, TypeError) as error:  # TypeError: generated for an older protobuf
        raise VendorApiMissing(str(error).splitlines()[0]) from None
    return SimpleNamespace(**found)


class _ThreadCall(Call[T]):
    """A blocking call of the vendor's in a thread."""

    def __init__(self, name: str, future: Future[Any], read: Callable[[Any], T]):
        self.name, self._future, self._read = name, future, read

    def is_done(self) -> bool:
        """See :meth:`Call.is_done`."""
        return self._future.done()

    def result(self) -> T:
        """See :meth:`Call.result`."""
        try:
            return self._read(self._future.result(0.0))
        except Exception as error:
            raise _translate(self.name, error) from None


class VendorClient(KortexLink):
    """Speaks with one base through ``kortex_api``.

    Args:
        settings: Addresses, user, time-outs.
        n: Number of actuators the arm must have.

    Raises:
        VendorApiMissing: It is not installed.
    """

    def __init__(self, settings: KortexSettings, n: int):
        self._api = import_kortex_api()
        self._settings, self._n = settings, n
        self.counts = CyclicCounts()
        self.sent_at = time.monotonic()
        self._transports: list[Any] = []
        self._sessions: list[Any] = []
        self._routers: list[Any] = []
        self._worker = ThreadPoolExecutor(1, "kortex_call")
        self._pending: _ThreadCall[Any] | None = None
        self._asked_at = 0.0

    def open(self) -> None:
        """See :meth:`KortexLink.open`."""
        api, settings = self._api, self._settings
        try:
            tcp = self._connect(api.TCPTransport(), settings.port)
            udp = self._connect(api.UDPTransport(), settings.port_realtime)
            self._base, self._cyclic = api.BaseClient(tcp), api.BaseCyclicClient(udp)
            self._actuators, self._devices = api.ActuatorConfigClient(tcp), api.DeviceManagerClient(tcp)
        except Exception as error:
            raise _translate("CREATE_SESSION", error) from None

    def clear_faults(self) -> Call[None]:
        """See :meth:`KortexLink.clear_faults`."""
        return self._call("CLEAR_FAULTS", lambda: self._base.ClearFaults())

    def set_servoing_mode(self, mode: ServoingMode) -> Call[None]:
        """See :meth:`KortexLink.set_servoing_mode`."""
        information = self._api.Base_pb2.ServoingModeInformation()
        information.servoing_mode = int(mode)
        return self._call("SET_SERVOING_MODE", lambda: self._base.SetServoingMode(information))

    def set_control_mode(self, mode: ControlMode, device: int) -> Call[None]:
        """See :meth:`KortexLink.set_control_mode`."""
        information = self._api.ActuatorConfig_pb2.ControlModeInformation()
        information.control_mode = int(mode)
        return self._call(
            f"SET_CONTROL_MODE of device {device}", lambda: self._actuators.SetControlMode(information, device)
        )

    def count_actuators(self) -> Call[int]:
        """See :meth:`KortexLink.count_actuators`."""
        return self._call("GET_ACTUATOR_COUNT", lambda: self._base.GetActuatorCount(), lambda found: found.count)

    def find_actuators(self) -> Call[tuple[int, ...]]:
        """See :meth:`KortexLink.find_actuators`."""
        return self._call("READ_ALL_DEVICES", lambda: self._devices.ReadAllDevices(), read_actuators)

    def ask_arm_state(self) -> Call[ArmState]:
        """See :meth:`KortexLink.ask_arm_state`."""
        return self._call("GET_ARM_STATE", lambda: self._base.GetArmState(), lambda found: ArmState(found.active_state))

    def refresh(self, command: Command | None, timeout: float) -> Feedback | None:
        """See :meth:`KortexLink.refresh`. The vendor's client waits for whole milliseconds."""
        options = self._api.RouterClientSendOptions()
        options.timeout_ms = max(1, round(1e3 * max(timeout, REPLY_TIMEOUT)))
        counts = self.counts
        counts.sent += 1
        self.sent_at = time.monotonic()
        try:
            if command is None:
                message = self._cyclic.RefreshFeedback(0, options)
            else:
                message = self._cyclic.Refresh(self._message(command), 0, options)
            feedback = read_feedback(message, self._n)
        except KortexDecodeError as error:
            counts.malformed += 1
            counts.rejected = str(error)
        except Exception as error:  # noqa: BLE001 - the vendor's exceptions have no class that is always there
            translated = _translate("REFRESH", error)
            if isinstance(translated, KortexServerError):
                raise translated from None
            counts.rejected = str(translated)
        else:
            counts.note(time.monotonic() - self.sent_at)
            return feedback
        counts.missed += 1
        return None

    def keep_alive(self) -> None:
        """See :meth:`KortexLink.keep_alive`: a cheap question now and then."""
        now = time.monotonic()
        if self._pending is not None and self._pending.is_done():
            self._pending = None
        if self._pending is None and now - self._asked_at > 0.25 * self._settings.connection_inactivity_timeout:
            self._asked_at = now
            self._pending = self.ask_arm_state()

    @property
    def silence(self) -> float:
        """See :attr:`KortexLink.silence`."""
        return 0.0 if self._pending is None else time.monotonic() - self._asked_at

    def close(self) -> None:
        """See :meth:`KortexLink.close`: sessions, routers, transports."""
        for session in self._sessions:
            options = self._api.RouterClientSendOptions()
            options.timeout_ms = 300
            with contextlib.suppress(Exception):
                session.CloseSession(options)
        for router in self._routers:
            with contextlib.suppress(Exception):
                router.SetActivationStatus(False)
        for transport in self._transports:
            with contextlib.suppress(Exception):
                transport.disconnect()
        self._sessions, self._routers, self._transports = [], [], []
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _connect(self, transport: Any, port: int) -> Any:
        api, settings = self._api, self._settings
        router = api.RouterClient(transport, api.RouterClient.basicErrorCallback)
        transport.connect(settings.robot_ip, port)
        self._transports.append(transport)
        self._routers.append(router)
        info = api.Session_pb2.CreateSessionInfo()
        info.username, info.password = settings.username, settings.password
        info.session_inactivity_timeout = round(1e3 * settings.session_inactivity_timeout)
        info.connection_inactivity_timeout = round(1e3 * settings.connection_inactivity_timeout)
        session = api.SessionManager(router)
        session.CreateSession(info)
        self._sessions.append(session)
        return router

    def _call(self, name: str, ask: Callable[[], Any], read: Callable[[Any], T] = lambda _: None) -> Call[T]:
        return _ThreadCall(name, self._worker.submit(ask), read)

    def _message(self, command: Command) -> Any:
        message = self._api.BaseCyclic_pb2.Command()
        message.frame_id = command.frame
        for q, tau in zip(command.q.tolist(), command.tau.tolist(), strict=True):
            one = message.actuators.add()
            one.command_id, one.flags, one.position, one.torque_joint = command.frame, int(command.flags), q, tau
        return message


def _translate(call: str, error: Exception) -> ArmError:
    """What an exception of ``kortex_api`` means here."""
    if isinstance(error, ArmError):
        return error
    numbers = []
    for name in ("error_code", "error_sub_code"):
        value = getattr(error, f"get_{name}", None)
        numbers.append(value() if callable(value) else getattr(error, name, None))
    if all(isinstance(number, int) for number in numbers):
        return KortexServerError(call, *numbers, str(error))
    return KortexConnectionLost(f"{call}: {type(error).__name__}: {error}")
