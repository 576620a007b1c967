"""The emulated base as a program, for any Kortex client.

``python -m sysid_ros.emulation.kortex --robot kinova_gen3_2f85``. It serves TCP port 10000 and UDP port 10001 of
this computer.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from sysid_ros.core.common.errors import SysidError
from sysid_ros.drivers.kinova_kortex.settings import PORT, PORT_REALTIME
from sysid_ros.drivers.mujoco.simulation import Noise
from sysid_ros.drivers.pacing import request_real_time
from sysid_ros.emulation.kortex.base import BaseSettings
from sysid_ros.emulation.kortex.server import EmulatorServer, build_base
from sysid_ros.emulation.plant import PlantSettings
from sysid_ros.emulation.program import EmulatorSetup, UntilHandedBack, add_arm_options, add_program_options, pick


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="sysid_kortex_emulator", description="Emulates the base of a Kinova Gen3 with Kortex."
    )
    base, add = BaseSettings(), parser.add_argument
    add_arm_options(parser, "kinova_gen3_2f85", "kinova_gen3 or kinova_gen3_2f85", "Kinova's, -1")
    add("--bind", default="127.0.0.1", help="own address (default: %(default)s)")
    add("--port", type=int, default=PORT, help="TCP port (default: %(default)s)")
    add("--port-realtime", type=int, default=PORT_REALTIME, help="UDP port (default: %(default)s)")
    add("--username", default=base.username, help="the only user (default: %(default)s)")
    add("--password", default=base.password, help="its password (default: %(default)s)")
    add("--watchdog-time", type=float, default=base.watchdog_time, help="time without commands until it holds [s]")
    add("--tcp-delay", type=float, default=0.02, help="how long an answer over TCP takes [s] (default: 0.02)")
    add_program_options(parser)
    return parser


def setup_of(options: argparse.Namespace) -> tuple[EmulatorSetup, BaseSettings]:
    """Return what the options ask for: arm and base.

    Raises:
        ParameterOutOfRange: A value is not allowed.
    """
    values = vars(options) | {
        "noise": Noise(options.noise), "measured_sign": options.measured_sign or PlantSettings().measured_sign
    }  # fmt: skip
    plant = PlantSettings(**pick(PlantSettings, values))
    arm = EmulatorSetup(options.robot, options.truth, options.payload, plant=plant)
    return arm, BaseSettings(**pick(BaseSettings, values))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator until it is told to end; return the exit status."""
    options = build_parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    def say(text: str) -> None:
        print(f"[kortex_emulator] {text}", file=sys.stderr, flush=True)

    try:
        base = build_base(*setup_of(options), say)
        server = EmulatorServer(
            base, options.bind, options.port, options.port_realtime, options.patience, options.tcp_delay
        )
    except SysidError as error:
        say(str(error))
        return 2
    say(f"{base.arm.robot.name}, TCP {server.address[0]}:{server.address[1]}, UDP {server.address_realtime[1]}")
    say(f"scheduling: {request_real_time()}")
    try:
        is_wanted = UntilHandedBack(lambda: len(base.sessions) > 0) if options.while_stdin else lambda: True
        server.run(options.seconds, is_wanted)
    except KeyboardInterrupt:
        pass
    server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
