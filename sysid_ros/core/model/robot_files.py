"""Names of robots and their settings files, without loading them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange

_PREFIXES = ("", "kuka_", "kuka_lbr_", "kinova_", "franka_")
"""Prefixes that a name may omit: users know their arm as ``iiwa14`` or ``gen3_lite``."""
_OTHER_NAMES = {"fer": "franka_panda", "franka_fer": "franka_panda"}
ELASTIC = ":elastic"
"""Put after the name or the path of a robot: its joints are elastic, in place of its settings."""
_AFTER_NAME = re.compile(r"(.+):(\w+)")
"""A robot with one thing more said about it."""


def config_directories() -> tuple[Path, ...]:
    """List the folders of robot settings: the checkout, then ``share/sysid_ros/config`` of every install prefix."""
    parents = Path(__file__).resolve().parents
    prefixes = [*parents, *(Path(p) for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p)]
    shared = [prefix / "share" / "sysid_ros" / "config" for prefix in prefixes]
    return tuple(path for path in (parents[3] / "config", *shared) if path.is_dir())


def available_robots() -> tuple[str, ...]:
    """List the names :func:`load_robot` accepts: settings files with ``urdf/<name>.urdf`` beside their folder."""
    files = [file for folder in config_directories() for file in sorted(folder.glob("*.yaml"))]
    return tuple(dict.fromkeys(f.stem for f in files if (f.parent.parent / "urdf" / f"{f.stem}.urdf").is_file()))


@dataclass(frozen=True)
class RobotName:
    """The name of a robot, or a path, with its suffixes after colons.

    Attributes:
        robot: The name or path alone.
        is_elastic: Whether its joints are elastic; None for its settings.
        prior: Its payload prior; None for its settings'.
    """

    robot: str
    is_elastic: bool | None = None
    prior: str | None = None

    @classmethod
    def of(cls, robot: str | Path) -> RobotName:
        """Take a name apart."""
        text, is_elastic, prior = str(robot), None, None
        while match := _AFTER_NAME.fullmatch(text):
            text, said = match.groups()
            if f":{said}" == ELASTIC:
                is_elastic = True
            elif prior is None:
                prior = said
            else:
                raise ModelError(f"robot '{robot}' names two payload priors, {said} and {prior}; expected one")
        return cls(text, is_elastic, prior)

    def overridden(self, is_elastic: bool | None, prior: str | None) -> RobotName:
        """Replace suffixes by given values."""
        return RobotName(
            self.robot,
            self.is_elastic if is_elastic is None else is_elastic,
            self.prior if prior is None else prior,
        )


def find_settings(robot: str | Path) -> Path:
    """Return the settings file of a robot, named as for :func:`load_robot`.

    Raises:
        ModelError: There is no such robot.
    """
    named = RobotName.of(robot).robot
    path = Path(named)
    if path.suffix in (".yaml", ".yml"):
        return path
    known, named = available_robots(), _OTHER_NAMES.get(named, named)
    for name in (prefix + named for prefix in _PREFIXES if prefix + named in known):
        files = (folder / f"{name}.yaml" for folder in config_directories())
        return next(file for file in files if file.is_file())
    raise ModelError(f"robot '{robot}' is unknown; known are {', '.join(known)}, or give a .yaml or .urdf file")


def read_settings(robot: str | Path, is_elastic: bool | None = None, prior: str | None = None) -> tuple[Path, Any]:
    """Return the settings file of a robot and its content.

    Args:
        robot: As for :func:`load_robot`, but not a URDF.
        is_elastic: Whether joints are elastic, in place of file and name.
        prior: Name of a payload prior, likewise.

    Raises:
        ModelError: There is no such robot, or its file cannot be read.
        ParameterOutOfRange: The file has no elasticity of the joints, or no such prior.
    """
    asked = RobotName.of(robot).overridden(is_elastic, prior)
    path = find_settings(robot)
    from sysid_ros.core.common.yaml_files import read_yaml  # names need no files read

    values = read_yaml(path)
    if asked.is_elastic is not None:
        values = _with_elasticity(values, asked.is_elastic, path.name)
    return path, values if asked.prior is None else _with_prior(values, asked.prior, path.name)


def _with_elasticity(values: Any, is_elastic: bool, name: str) -> Any:
    if not isinstance(values, Mapping) or not isinstance(values.get("elasticity"), Mapping):
        raise ParameterOutOfRange(f"{name}.elasticity", None, "a mapping that says how elastic the joints are")
    return {**values, "elasticity": {**values["elasticity"], "is_elastic": is_elastic}}


def _with_prior(values: Any, prior: str, name: str) -> Any:
    priors = values.get("payload_priors") if isinstance(values, Mapping) else None
    if not isinstance(priors, Mapping) or prior not in priors:
        known = ", ".join(map(str, priors)) if isinstance(priors, Mapping) else "none"
        raise ParameterOutOfRange("payload prior", prior, f"one of {name}: {known} (or 'elastic' for elastic joints)")
    return {**values, "payload_prior": prior}


def require_robot(robot: str | Path, prior: str | None = None) -> None:
    """Reject a robot without a file, or without the named prior, before anything that takes long to load.

    Args:
        robot: As for :func:`~sysid_ros.core.model.loader.load_robot`.
        prior: Name of a payload prior; None for its own.

    Raises:
        SysidError: There is no such robot, file or prior.
    """
    asked = RobotName.of(robot).overridden(None, prior)
    path, what = Path(asked.robot), "URDF"
    if path.suffix != ".urdf":
        path, what = find_settings(robot), "robot settings"
    if not path.is_file():
        raise ModelError(f"cannot read the {what} {path}: there is no such file")
    if path.suffix != ".urdf" and (asked.is_elastic or asked.prior):
        read_settings(robot, prior=prior)
