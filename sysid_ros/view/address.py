"""Where the arm is shown in a browser, and whether it can be."""

from __future__ import annotations

import socket
from importlib.util import find_spec

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError

LOOPBACK, PORT = "127.0.0.1", 8080
"""Who may look: this machine alone. The port is the first free one from here on."""


_TRIED = 100


def require_viewer() -> None:
    """Refuse to show anything where nothing can.

    Raises:
        SysidError: ``viser`` is not installed.
    """
    if find_spec("viser") is None:
        raise SysidError("the view in a browser needs the package viser: pip install 'sysid_ros[view]', or viser alone")


def free_port(text: str) -> int:
    """Return the first free port on this machine from the one on that ``--view`` names.

    Raises:
        SysidError: ``viser`` is not installed.
        ParameterOutOfRange: It is no port.
        SysidError: All are taken.
    """
    require_viewer()
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
