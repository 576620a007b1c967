"""Inertial parameters of what a robot arm holds, with guaranteed bounds.

As a library: ``import sysid_ros as sr``, then ``sr.load_robot``, ``sr.identify``, ``sr.write_results``. Names are
imported when first used, so that drivers need none of the mathematics.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sysid_ros.core.common.errors import SysidError
    from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
    from sysid_ros.core.model.loader import load_robot
    from sysid_ros.core.model.robot_files import available_robots
    from sysid_ros.library.identify import identify
    from sysid_ros.reports.recordings.options import ReadOptions
    from sysid_ros.reports.writer import write_results

    __version__: str

__all__ = [
    "EstimatorSettings",
    "ReadOptions",
    "SysidError",
    "__version__",
    "available_robots",
    "identify",
    "load_robot",
    "write_results",
]

_HOMES = {
    "EstimatorSettings": "core.estimation.parameters.settings",
    "ReadOptions": "reports.recordings.options",
    "SysidError": "core.common.errors",
    "available_robots": "core.model.robot_files",
    "identify": "library.identify",
    "load_robot": "core.model.loader",
    "write_results": "reports.writer",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
