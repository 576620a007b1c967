"""The emulated controller as a program, for any FRI client.

``python -m sysid_ros.emulation.fri --robot lbr_med7 --version 2.5``. It sends to UDP port 30200 of this
computer and goes through the whole session: MONITORING_WAIT, MONITORING_READY, and after ``--start-time`` the motion.
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Callable, Sequence

from sysid_ros.core.common.command_line import ENDINGS, CommandParser, port_number, require_numbers
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.drivers.kuka_fri.messages import CommandMode, FriVersion
from sysid_ros.drivers.kuka_fri.settings import PORTS
from sysid_ros.emulation.fri.controller import ControllerSettings
from sysid_ros.emulation.fri.inner_loop import Compensation, InnerLoopSettings
from sysid_ros.emulation.fri.ios import read_io
from sysid_ros.emulation.fri.server import EmulatorServer, build_controller
from sysid_ros.emulation.program import (
    EmulatorSetup,
    RunningEmulator,
    add_arm_options,
    add_program_options,
    add_real_time_factor,
    build_plant_settings,
    pick,
    run_program,
)

_MODES = {"position": CommandMode.POSITION, "wrench": CommandMode.WRENCH, "torque": CommandMode.TORQUE}


def build_parser() -> CommandParser:
    """Build the parser of the command line."""
    parser = CommandParser(
        prog="sysid emulate fri",
        description="Emulates a KUKA LBR controller with FRI.",
        examples=(
            "sysid emulate fri --robot kuka_lbr_med7 --payload 1.5",
            "sysid emulate fri --version 2.5 --seconds 60",
        ),
        endings=ENDINGS,
    )
    controller, add = ControllerSettings(), parser.add_argument
    add_arm_options(parser, "kuka_lbr_med7", "lbr_iiwa7, lbr_iiwa14, lbr_med7 or lbr_med14", "KUKA's, -1")
    add("--version", default="1.15", choices=[v.value for v in FriVersion], help="version of FRI (default: 1.15)")
    add("--client", default="127.0.0.1", help="address of the client (default: %(default)s)")
    add("--port", type=port_number, default=PORTS[0], help="UDP port of the client (default: %(default)s)")
    add("--bind", default="127.0.0.1", help="own address (default: %(default)s)")
    add("--bind-port", type=port_number, default=0, help="own UDP port; 0 takes any (default: 0)")
    add("--send-period", type=float, default=controller.send_period, help="time between messages [s] (default: 0.002)")
    add("--receive-multiplier", type=int, default=1, help="the client answers every how many messages (default: 1)")
    add("--command-mode", default="torque", choices=_MODES, help="what the client commands (default: torque)")
    add("--start-time", type=float, default=controller.start_time, help="time until the motion starts [s]")
    add("--restart-time", type=float, default=controller.restart_time, help="the same after an error [s]")
    add("--load", default="none", help="the load configured on the controller, in the same words")
    add("--compensation", default="model", choices=[c.value for c in Compensation], help="what is added to torques")
    add("--friction-compensation", type=float, default=0.0, help="share of friction that is compensated, 0 to 1")
    add("--stiffness", type=float, default=0.0, help="stiffness of the joint impedance [Nm/rad] (default: 0)")
    add("--damping-ratio", type=float, default=0.0, help="its damping ratio, 0 to 1 (default: 0)")
    add(
        "--io", dest="ios", action="append", default=[], metavar="NAME:TYPE:DIRECTION[=VALUE]",
        help="an input or output shared with the client, such as gripper_closed:boolean:input=1; may be given 10 times",
    )  # fmt: skip
    add_real_time_factor(parser)
    add_program_options(parser)
    return parser


def setup_of(options: argparse.Namespace) -> tuple[EmulatorSetup, ControllerSettings, InnerLoopSettings]:
    """Return what the options ask for: arm, application, joint impedance.

    Raises:
        ParameterOutOfRange: A value is not allowed.
    """
    values = vars(options) | {
        "version": FriVersion(options.version),
        "command_mode": _MODES[options.command_mode],
        "compensation": Compensation(options.compensation),
        "ios": tuple(map(read_io, options.ios)),
    }
    plant = build_plant_settings(options)
    return (
        EmulatorSetup(options.robot, options.truth, options.payload, options.load, plant, options.gripper),
        ControllerSettings(**pick(ControllerSettings, values)),
        InnerLoopSettings(**pick(InnerLoopSettings, values)),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator until it is told to end; return the exit status."""
    options = build_parser().parse_args(argv)

    def build(say: Callable[[str], None]) -> RunningEmulator:
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
        title = f"{name}, FRI {options.version}, from {host}:{port} to {options.client}:{options.port}"
        return RunningEmulator(server, title, lambda: controller.state.is_commanding, controller.arm)

    return run_program("fri_emulator", options, build)


if __name__ == "__main__":
    sys.exit(main())
