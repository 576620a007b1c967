"""Move the arm of a running suite with the empty hand: ``sysid tare``."""

from __future__ import annotations

import argparse
import os
from typing import NoReturn

from sysid_ros.cli.identify import CLIENT_MODULE
from sysid_ros.cli.suite import client_of


def run(options: argparse.Namespace) -> NoReturn:
    """Become the client of the running nodes, whose exit status is that of the command."""
    values = {"tare": "only", **{name: getattr(options, name) for name in ("model", "gripper", "seed", "results")}}
    command = client_of(CLIENT_MODULE, values, options.robot_name)
    os.execv(command[0], command)
