"""The emulated controller as a program, for any FRI client.

``python -m sysid_ros.emulators.fri --robot lbr_med7 --version 2.5``. It sends to UDP port 30200 of this
computer and goes through the whole session: MONITORING_WAIT, MONITORING_READY, and after ``--start-time`` the motion.
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Callable, Sequence

from sysid_ros.core.common.command_line import require_numbers
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.drivers.kuka_fri.messages import CommandMode
from sysid_ros.drivers.modes import FriVersion
from sysid_ros.emulators.arguments import Compensation, fri_parser
from sysid_ros.emulators.fri.controller import ControllerSettings
from sysid_ros.emulators.fri.inner_loop import InnerLoopSettings
from sysid_ros.emulators.fri.ios import read_io
from sysid_ros.emulators.fri.server import EmulatorServer, build_controller
from sysid_ros.emulators.program import EmulatorSetup, pick, run_program


def setup_of(options: argparse.Namespace) -> tuple[EmulatorSetup, ControllerSettings, InnerLoopSettings]:
    """Return arm, application and joint impedance of the options.

    Raises:
        ParameterOutOfRange: A value is not allowed.
    """
    values = vars(options) | {
        "version": FriVersion(options.version),
        "command_mode": CommandMode[options.command_mode.upper()],
        "compensation": Compensation(options.compensation),
        "ios": tuple(map(read_io, options.ios)),
    }
    return (
        EmulatorSetup.of(options),
        ControllerSettings(**pick(ControllerSettings, values)),
        InnerLoopSettings(**pick(InnerLoopSettings, values)),
    )


def run(options: argparse.Namespace) -> int:
    """Run the emulator until it has to end; return the exit status."""

    def build(say: Callable[[str], None]) -> tuple[EmulatorServer, str]:
        require_numbers(options, "port", least=1)
        try:
            client = socket.gethostbyname(options.client or "an empty address")
        except OSError as error:
            allowed = f"the address of a computer, or a name that is known here ({error.strerror or error})"
            raise ParameterOutOfRange("--client", options.client, allowed) from error
        controller = build_controller(*setup_of(options), say)
        server = EmulatorServer(
            controller, (client, options.port), (options.bind, options.bind_port), options.patience,
            options.real_time_factor,
        )  # fmt: skip
        host, port = server.address
        name = controller.arm.robot.name
        return server, f"{name}, FRI {options.version}, from {host}:{port} to {options.client}:{options.port}"

    return run_program("fri_emulator", options, build)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator as a program of its own."""
    return run(fri_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
