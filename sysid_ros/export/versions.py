"""Versions of the software a result was made with."""

from __future__ import annotations

import platform
from importlib import metadata

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
