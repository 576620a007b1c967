"""Move the arm of a running suite with the empty hand: ``sysid tare``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sysid_ros.cli.parse_suites import tare_parser
from sysid_ros.nodes import identify_client


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its :class:`~sysid_ros.cli.exit_status.ExitStatus`."""
    options = tare_parser().parse_args(argv)
    words = ["--tare", "only", "--model", options.model, "--gripper", options.gripper, "--seed", str(options.seed)]
    words += ["--results", options.results] if options.results else []
    namespace = options.robot_name.strip("/")
    return identify_client.main([*words, *(["--ros-args", "-r", f"__ns:=/{namespace}"] if namespace else [])])


if __name__ == "__main__":
    sys.exit(main())
