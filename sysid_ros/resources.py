"""Finds the files that come with the package, in a checkout or in an installed ``share/sysid_ros``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sysid_ros.core.common.errors import SysidError

PACKAGE = "sysid_ros"


def share_directories() -> tuple[Path, ...]:
    """Where files of the package may be: the checkout, then the install prefixes of Python and of ROS."""
    checkout = Path(__file__).resolve().parents[1]
    prefixes = [Path(sys.prefix), *(Path(item) for item in os.environ.get("AMENT_PREFIX_PATH", "").split(":") if item)]
    installed = [prefix / "share" / PACKAGE for prefix in prefixes]
    candidates = [checkout, *installed] if (checkout / "package.xml").is_file() else installed
    return tuple(dict.fromkeys(path for path in candidates if path.is_dir()))


def resource(name: str) -> Path:
    """The path of a file or folder that comes with the package.

    Args:
        name: Path inside the package, as in ``config/nodes/mock.yaml``.

    Raises:
        SysidError: There is no such file.
    """
    directories = share_directories()
    for directory in directories:
        if (directory / name).exists():
            return directory / name
    raise SysidError(
        f"{name} is not in {', '.join(map(str, directories))}: install the package, or run from its checkout"
    )
