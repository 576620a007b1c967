"""Demonstrates the identification on a simulated arm: ``sysid demo``.

It is ``sysid identify`` with the few options that a first look needs: the arm moves with its hand empty, grasps a
payload of which the estimator knows nothing, and identifies it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sysid_ros.cli import identify
from sysid_ros.cli.exit_status import run_command
from sysid_ros.cli.parse_suites import demo_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its :class:`~sysid_ros.cli.exit_status.ExitStatus`."""
    return run_command(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    options = demo_parser().read(argv)
    words = ["--mode", options.mode, "--seed", str(options.seed), "--payload", options.payload, "--tare", options.tare]
    words += ["--model", options.model, "--results", str(options.results)]
    return identify.main(
        [*words, *([] if options.view_port == "0" else ["--view", options.view_port])], command="sysid demo"
    )


if __name__ == "__main__":
    sys.exit(main())
