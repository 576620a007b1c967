"""Finds the files that come with the package, in a checkout or in an installed ``share/sysid_ros``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sysid_ros.core.common.errors import SysidError

PACKAGE = "sysid_ros"


class ResourceNotFound(SysidError):
    """A file of the package is missing.

    Args:
        name: Path inside the package, as in ``config/nodes/mock.yaml``.
        directories: Where it was looked for.
    """

    def __init__(self, name: str, directories: tuple[Path, ...]):
        self.name = name
        self.directories = directories
        listed = ", ".join(str(directory) for directory in directories)
        super().__init__(f"{name} is not in {listed}: install the package, or run from its checkout")


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
        ResourceNotFound: There is no such file.
    """
    directories = share_directories()
    for directory in directories:
        if (directory / name).exists():
            return directory / name
    raise ResourceNotFound(name, directories)
