"""The emulated base as a program, for any Kortex client.

``python -m sysid_ros.emulators.kortex --robot kinova_gen3_2f85``. It serves TCP port 10000 and UDP port 10001 of
this computer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from sysid_ros.core.common.command_line import require_numbers
from sysid_ros.emulators.arguments import kortex_parser
from sysid_ros.emulators.kortex.base import BaseSettings
from sysid_ros.emulators.kortex.server import EmulatorServer, build_base
from sysid_ros.emulators.program import EmulatorSetup, pick, run_program


def setup_of(options: argparse.Namespace) -> tuple[EmulatorSetup, BaseSettings]:
    """Return arm and base of the options.

    Raises:
        ParameterOutOfRange: A value is not allowed.
    """
    return EmulatorSetup.of(options), BaseSettings(**pick(BaseSettings, vars(options)))


def run(options: argparse.Namespace) -> int:
    """Run the emulator until it has to end; return the exit status."""

    def build(say: Callable[[str], None]) -> tuple[EmulatorServer, str]:
        require_numbers(options, "tcp_delay", most=10.0)
        base = build_base(*setup_of(options), say)
        server = EmulatorServer(
            base, options.bind, options.port, options.port_realtime, options.patience, options.tcp_delay
        )
        (host, port), port_realtime = server.address, server.address_realtime[1]
        return server, f"{base.arm.robot.name}, TCP {host}:{port}, UDP {port_realtime}"

    return run_program("kortex_emulator", options, build)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator as a program of its own."""
    return run(kortex_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
