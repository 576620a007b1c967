"""Python packages that only a part of this package needs: a missing one is named where it is used."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from sysid_ros.core.common.errors import SysidError

_NEEDED_FOR = {
    "casadi": ("casadi", "planning safe motions"),
    "mcap": ("mcap-ros2-support", "recordings (record:=false does without)"),
    "mcap_ros2": ("mcap-ros2-support", "recordings (record:=false does without)"),
    "mujoco": ("mujoco", "simulated arms"),
    "rosbags": ("rosbags", "reading recordings"),
}
"""Package in pip that brings a module, and its use; ROS has no packages for them, see requirements-ros.txt."""
EXTRAS = {
    "casadi": "planning", "mujoco": "sim", "rclpy": "ros", "sysid_msgs": "ros", "trimesh": "meshes",
    "distributed": "cluster", "matplotlib": "papers",
}  # fmt: skip
"""Extra of the package that brings a module."""


def describe_missing(error: ModuleNotFoundError) -> str:
    """Describe which module is missing, and how to install it."""
    name = (error.name or "").partition(".")[0]
    if name in EXTRAS:
        return f"{name} is not installed, which this takes; install it with: pip install 'sysid_ros[{EXTRAS[name]}]'"
    return f"the module {error.name} is missing; install the package again: pip install sysid_ros"


class _Optional:
    """A stand-in for a module, which is imported on first use."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        module = _import(self._name)
        # Loops use such modules thousands of times a second: names found once bypass this method.
        self.__dict__.update({key: value for key, value in vars(module).items() if not key.startswith("_")})
        return getattr(module, name)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name.partition(".")[0]:
            raise  # the module is there, and something that it needs is not
        module = name.partition(".")[0]
        package, use = _NEEDED_FOR[module]
        raise SysidError(
            f"the Python package {module} is not installed, which is needed for {use}; install it with: pip install "
            f"{package}"
        ) from error


def optional_module(name: str) -> Any:
    """Return a module that may be missing, and that takes long to load: it is imported on first use.

    The name is one of the optional modules of this package, or a module of theirs. Using a missing one raises
    :class:`SysidError`.
    """
    return _Optional(name)


def require_module(name: str) -> None:
    """Raise an error if a module is not installed: for the start of a program, before anything depends on it.

    Raises:
        SysidError: It is not.
    """
    _import(name)
