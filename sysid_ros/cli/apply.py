"""Gives the payload of a result to a running system, and reads it back: ``sysid apply ur results/... --robot-ip ...``.

Nothing is sent before it was shown, and nothing is confirmed before it was read back.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
import time

import numpy as np

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.terminal import show, working
from sysid_ros.core.common.errors import MISSING, NotConfirmed, ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.parameters.estimate import Quantity
from sysid_ros.core.model.inertia import to_com_form, transform_parameters
from sysid_ros.core.model.loader import load_robot
from sysid_ros.drivers.arm import ArmError, Array, ControllerPayload
from sysid_ros.drivers.kinova_kortex.enums import ArmState, Function, KortexServerError
from sysid_ros.drivers.kinova_kortex.frame import encode
from sysid_ros.drivers.kinova_kortex.payload import exchange_load
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings
from sysid_ros.drivers.universal_robots import SETTLE, RtdeClient, send_payload
from sysid_ros.reports.exported import ExportedPayload, read_exported
from sysid_ros.reports.payload import felt_torques
from sysid_ros.reports.payload_files import (
    Load,
    describe_load,
    find_well_known,
    kuka_load_data,
    numbers,
    ur_target_payload,
)

MASS, COM, INERTIA = 1e-3, 1e-4, 1e-4
"""Largest differences of a payload that was read back [kg], [m], [kg m^2]."""
_SUNRISE_LIMIT = 10.0
"""Sunrise's validation of load data fails where the external torque of an axis is larger [Nm] (iiwa_stack #228)."""


def run(options: argparse.Namespace) -> int:
    """Show, send and read back; return the exit status, or raise :class:`SysidError`."""
    module, _, name = options.target.rpartition(".")
    kind: type[Target] = getattr(importlib.import_module(module), name)
    target = kind(options, read_exported(options.folder, options.accept_uncertain))
    with target.stack:
        return target.run()


class Target:
    """A running system that is given the payload of a result: unless it says otherwise tool and payload together.

    Attributes:
        name: Its name in messages.
        call: What it is sent, in its own words.
        load: Tool and payload at the flange, in the digits of their bounds.
        sends_inertia: Whether its inertia is sent.
        stack: Closes the connections.
    """

    name = call = advice = ""
    no_inertia = "the inertia is left out, and a controller takes zero for it"
    confirmed = f"within {1e3 * MASS:g} g and {1e3 * COM:g} mm"
    is_read = True

    def __init__(self, options: argparse.Namespace, exported: ExportedPayload):
        self.options, self.exported, self.stack = options, exported, contextlib.ExitStack()
        self.load = Load.from_summary(exported.behind_flange)
        self.sends_inertia = Quantity.INERTIA in find_well_known(exported.behind_flange)
        self.found, self.notes = list[str](), list[str]()

    def run(self) -> int:
        """Show, ask, send and read back; return the exit status."""
        show(*self._describe())
        if self.options.dry_run:
            return ExitStatus.OK
        show(*self._look())
        if not self.options.yes:
            if not sys.stdin.isatty():
                raise ParameterOutOfRange("--yes", MISSING, "it, without a terminal to ask at")
            if input("Send it? [y/N] ").strip().lower() not in ("y", "yes"):
                print("Nothing was sent.")
                raise KeyboardInterrupt
        with working(f"sending it to {self.name}"):
            self._send()
        if not self.is_read:
            show(f"{self.name} says that it was set. It was not read back.")
            return ExitStatus.OK
        end = time.monotonic() + SETTLE
        with working("reading it back"):
            try:
                while (different := self._compare()) and time.monotonic() < end:
                    pass
            except SysidError as error:
                if error.is_outcome:
                    raise
                raise NotConfirmed(f"{self.name} was given it and says nothing ({error})") from error
        show(*self.found)
        if different:
            raise NotConfirmed(f"{self.name} has not taken the payload: {'; '.join(different)}. {self.advice}".strip())
        inertia = f", inertia within {INERTIA:g} kg m^2" if self.sends_inertia and not self.notes else ""
        show(*(f"note: {note}" for note in self.notes), f"Confirmed: {self.confirmed}{inertia}.")
        return ExitStatus.OK

    def _describe(self) -> list[str]:
        return [
            f"For {self.name}: tool (nominal) and payload of {self.exported.robot}, identified {self.exported.created}",
            f"seen from the tool flange, for which the URDF link '{self.load.frame}' is taken:",
            *(f"  {line}" for line in [*describe_load(self.load), *([] if self.sends_inertia else [self.no_inertia])]),
            f"As: {self.call}",
        ]

    def _look(self) -> list[str]:
        if not self.is_read:
            return []
        now = self._read()
        if not now.is_at_rest:
            reason = f"the arm moves ({now.speed:.2g} rad/s), and a payload is set at rest; nothing was sent"
            raise ArmError(f"the controller at {self.name}", reason)
        return [f"It has now: {_words(now)}"]

    def _read(self) -> ControllerPayload:
        raise NotImplementedError

    def _send(self) -> None:
        raise NotImplementedError

    def _compare(self) -> list[str]:
        now = self._read()
        self.found = [f"Read back:  {_words(now)}"]
        if self.sends_inertia and now.inertia is None:
            self.notes = ["the software of this controller does not report the inertia; it was not compared"]
        return _differences(self.load, self.sends_inertia, now)


def _words(payload: ControllerPayload) -> str:
    inertia = "" if payload.inertia is None else f", inertia [{', '.join(f'{v:.5f}' for v in payload.inertia)}] kg m^2"
    return f"{payload.mass:.3f} kg at [{', '.join(f'{value:.4f}' for value in payload.com)}] m{inertia}"


def _differences(load: Load, has_inertia: bool, found: ControllerPayload) -> list[str]:
    off = {
        "mass [kg]": (abs(found.mass - load.mass), MASS),
        "centre of gravity [m]": (np.abs(found.com - load.com).max(), COM),
    }
    if has_inertia and found.inertia is not None:
        off["inertia [kg m^2]"] = (np.abs(found.inertia - load.entries).max(), INERTIA)
    # NaN is a difference
    return [f"{name} differs by {value:.3g}" for name, (value, largest) in off.items() if not value <= largest]


def xyz(point: Array) -> dict[str, float]:
    """Return a point as the fields of a message."""
    return dict(zip("xyz", numbers(point), strict=True))


class UniversalRobots(Target):
    """A controller of Universal Robots: a script over TCP, read back over RTDE."""

    advice = (
        "Is it under remote control, is the load within its limits, and does no program set another payload? "
        "Its log says why it refused"
    )
    _client: RtdeClient | None = None

    def __init__(self, options: argparse.Namespace, exported: ExportedPayload):
        super().__init__(options, exported)
        self.name, self.is_read = options.robot_ip or options.service, options.robot_ip is not None
        self.call = ur_target_payload(self.load, self.sends_inertia)

    def _read(self) -> ControllerPayload:
        if self._client is None:
            self._client = self.stack.enter_context(RtdeClient(self.options.robot_ip, self.options.rtde_port))
        return self._client.latest()

    def _send(self) -> None:
        send_payload(self.options.robot_ip, self.call, self.options.script_port)


class Kortex(Target):
    """The base of a Gen3: its payload is tool and payload of the result less its own tool; or all is its tool."""

    no_inertia = "Kinova takes no inertia"

    def __init__(self, options: argparse.Namespace, exported: ExportedPayload):
        super().__init__(options, exported)
        self.name, self.sends_inertia = options.robot_ip, False
        self.call = (
            "tool configuration, and no payload" if options.tool else "payload information, less the base's tool"
        )
        names = ("robot_ip", "port", "port_realtime", "username", "password")
        self._settings = KortexSettings(**{name: getattr(options, name) for name in names})

    def _look(self) -> list[str]:
        lines, base, tool = super()._look(), self._base, self.options.tool
        if base.feedback.state is not ArmState.SERVOING_READY:
            raise ArmError(f"the base at {self.name}", f"is {base.feedback.state.name}; nothing was sent")
        rotation, origin = base.tool_frame
        rest = self.load.parameters - (self.load.parameters if tool else base.of_tool)
        if not rest[0] >= 0.0:
            raise ArmError(
                f"its tool of {base.tool.tool_mass:.3f} kg is heavier than tool and payload of the result; correct it, "
                "or give all as the tool: --tool"
            )
        mass, com, _ = to_com_form(transform_parameters(rest, rotation.T, -rotation.T @ origin))
        payload = encode("PayloadInformation", payload_mass=mass, payload_mass_center=xyz(com))
        self._changes = {Function.SET_PAYLOAD_INFORMATION: payload}
        if tool:
            whole = {"tool_mass": self.load.mass, "tool_mass_center": xyz(self.load.com)}
            data = encode("ToolConfiguration", tool_transform=base.tool.tool_transform, **whole)
            self._changes[Function.SET_TOOL_CONFIGURATION] = data
        return [*lines, f"Its payload is to be {mass:.3f} kg at {com.round(4).tolist()} m, seen from its tool frame"]

    def _read(self) -> ControllerPayload:
        self._base = exchange_load(self._settings)
        speed = float(np.radians(np.abs(self._base.feedback.v).max(initial=0.0)))
        return ControllerPayload(*to_com_form(self._base.parameters)[:2], None, speed)

    def _send(self) -> None:
        try:
            exchange_load(self._settings, self._changes)
        except KortexServerError as error:
            raise NotConfirmed(str(error)) from error


class Kuka(Target):
    """A KUKA LBR: no interface takes load data, so a person enters them and checks the external torques."""

    name = "Sunrise"

    def run(self) -> int:
        """Show what to enter and how to check it; return the exit status."""
        data, robot = kuka_load_data(self.load), load_robot(self.options.model or self.exported.robot)
        torques = felt_torques(robot, self.exported.behind_flange, self.load.parameters, robot.home)
        self.sends_inertia, self.call = True, ", ".join(f"{name} {value:g}" for name, value in data.items())
        show(
            *self._describe(),
            "Nothing is sent, as no interface of Sunrise takes load data. M [kg], X Y Z [mm], A B C [deg], JX JY JZ",
            "[kg m^2] about the principal axes through the centre of mass, all seen from the flange:",
            "1. Enter them in Sunrise.Workbench, object templates, as load data of the tool at the flange.",
            "2. Synchronize the project, and attach this tool to the flange in the application.",
            f"3. At rest in the home posture {robot.home.round(3).tolist()} [rad], this load leaves external torques",
            f"   of at most {torques.round(2).tolist()} Nm because of its bounds, beside the arm's own errors.",
            f"4. Sunrise's validateForImpedanceMode fails above {_SUNRISE_LIMIT:g} Nm in an axis: this load alone "
            f"{'does not fail it' if torques.max() < _SUNRISE_LIMIT else 'MAY FAIL IT: narrow its bounds'}.",
        )
        return ExitStatus.OK
