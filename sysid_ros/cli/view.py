"""The option ``--view`` of commands: the arm in a browser, live or as a replay."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

import numpy as np

from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.loader import find_settings
from sysid_ros.reports.recordings.files import read_plans
from sysid_ros.reports.result import IdentificationResult
from sysid_ros.view.replay import Replay, Story
from sysid_ros.view.scene import LOOPBACK, PORT, ArmView, import_viser

_TRIED = 100


def add_view_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--view``, as text for a launch argument: the port, empty without it."""
    parser.add_argument(
        "--view",
        dest="view_port",
        nargs="?",
        const=str(PORT),
        default="0",
        metavar="PORT",
        help=f"{what} in a browser on this machine, at the first free port from PORT on (default: {PORT}); needs viser",
    )


def free_port(text: str) -> int:
    """Return the first free port on this machine from the one on that ``--view`` names.

    Raises:
        ViewerMissing: ``viser`` is not installed.
        ParameterOutOfRange: It is no port.
        SysidError: All are taken.
    """
    import_viser()
    first = int(text) if text.isdigit() else 0
    if not 1024 <= first <= 65535:
        raise ParameterOutOfRange("--view", text, "a port from 1024 to 65535")
    for port in range(first, min(first + _TRIED, 65536)):
        with socket.socket() as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                candidate.bind((LOOPBACK, port))
                return port
            except OSError:
                continue
    raise SysidError(f"--view: no port from {first} on is free")


def open_replay(result: IdentificationResult, file: Path, model: str, port: str) -> Replay:
    """Show a result over time in a browser.

    Args:
        result: Of a recording, with its samples.
        file: The recording; its plans are shown, too, where it has some.
        model: The arm as it was named, beside whose settings meshes are looked for.
        port: Of ``--view``.

    Raises:
        SysidError: It cannot be shown.
    """
    samples, history = result.samples, result.history
    if samples is None or len(samples) == 0:
        raise SysidError("--view: there are no samples to replay")
    try:
        plans = read_plans(file)
    except SysidError:  # most recordings hold none
        plans = []
    # The history may end with the same estimate twice: at the last update, and at the end
    story = Story(
        seconds=samples.seconds,
        q=samples.q,
        update_times=history.time,
        bounds=np.stack([history.lower, history.values, history.upper], axis=1),
        final=result.estimate,
        plans=[plan.trajectory for plan in plans],
        scene=plans[-1].scene if plans else Scene(),
    )
    view = ArmView(result.robot, free_port(port), find_settings(model).parent)
    return Replay(view, result.robot, story)
