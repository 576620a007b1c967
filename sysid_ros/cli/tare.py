"""Move the arm of a running suite with the empty hand: ``sysid tare``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from sysid_ros.cli.identify import CLIENT_MODULE
from sysid_ros.cli.parse_suites import tare_parser
from sysid_ros.cli.suite import client_of


def main(argv: Sequence[str] | None = None) -> int:
    """Become the client of the running nodes, whose exit status is that of the command."""
    options = tare_parser().parse_args(argv)
    words = ["--tare", "only", "--model", options.model, "--gripper", options.gripper, "--seed", str(options.seed)]
    words += ["--results", options.results]
    command = client_of(CLIENT_MODULE, words, options.robot_name)
    os.execv(command[0], command)


if __name__ == "__main__":
    sys.exit(main())
