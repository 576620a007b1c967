"""Folders for the files of an identification, named after the time."""

from __future__ import annotations

import platform
from datetime import datetime
from importlib import metadata
from pathlib import Path

from sysid_ros.core.common.errors import SysidError


def make_results_directory(root: Path | str = "results", now: datetime | None = None) -> Path:
    """Make ``<root>/<YYYY-mm-dd_HH-MM-SS>`` and return it; a second one of the same second ends in ``_2``, and so on.

    Raises:
        SysidError: The folder cannot be made.
    """
    name = (now or datetime.now()).strftime("%Y-%m-%d_%H-%M-%S")
    for suffix in ["", *(f"_{i}" for i in range(2, 100))]:
        directory = (Path(root) / (name + suffix)).absolute()
        try:
            directory.mkdir(parents=True)
            return directory
        except FileExistsError:
            continue
        except OSError as error:
            raise SysidError(f"cannot make the results folder {directory}: {error.strerror or error}") from error
    raise SysidError(f"there are 99 results folders of the same second in {root}")


_PACKAGES = {"sysid_ros": "sysid_ros", "numpy": "numpy", "scipy": "scipy", "pinocchio": "pin"}


def software_versions() -> dict[str, str]:
    """Versions by name; "source tree" for a package that is not installed but used from its folder."""
    found = {}
    for name, distribution in _PACKAGES.items():
        try:
            found[name] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            found[name] = "source tree"
    return {**found, "python": platform.python_version()}
