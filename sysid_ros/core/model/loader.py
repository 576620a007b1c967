"""Loads a robot: a URDF plus the settings of ``config/<name>.yaml`` (docs/reference/robots.md describes them)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.model.builder import build_robot
from sysid_ros.core.model.calibrated import apply_calibration
from sysid_ros.core.model.calibration import load_calibration
from sysid_ros.core.model.defaults import default_settings
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.robot_files import RobotName, find_settings, read_settings
from sysid_ros.core.model.settings import Section
from sysid_ros.core.model.urdf import read_urdf


def load_robot(
    robot: str | Path = "kinova_gen3_2f85",
    urdf_text: str | None = None,
    *,
    snap_angles: bool = True,
    calibration: str | Path | None = None,
    is_elastic: bool | None = None,
    prior: str | None = None,
    known_within: float | None = None,
) -> RobotModel:
    """Load a robot by name or from its settings file.

    Args:
        robot: A name of :func:`available_robots`, also without its maker (``iiwa14``, ``panda``), the path of
            a YAML file of that form, or of a URDF: then everything else is assumed, with wide boxes, as by
            :func:`load_robot_from_urdf`. With :data:`ELASTIC` at its end the joints are elastic; ``:NAME`` selects one
            of its payload priors, such as ``iiwa7:elastic:compact_tool``.
        urdf_text: URDF to use instead of the one the settings name, such as the content of ``robot_description``.
        snap_angles: See :func:`sysid_ros.core.model.urdf.read_urdf`.
        calibration: File of ``sysid calibrate`` for this arm, in place of the setting ``calibration``.
        is_elastic: Whether joints are elastic, in place of the setting ``elasticity.is_elastic``.
        prior: Name of a payload prior, in place of the setting ``payload_prior``.
        known_within: Share within which this very arm is known, in place of the settings [-]: the pseudo-inertias of
            its bodies (``inertial_uncertainty.pseudo_inertia``), Coulomb and viscous friction and armatures. Torque
            offsets stay as the settings have them.

    Returns:
        The robot.

    Raises:
        ModelError: The calibration is unreadable, of another arm, or expired.
        ModelError: Unknown name, unreadable file, or a URDF that cannot be used (the message names what is wrong).
        ParameterOutOfRange: A setting is unknown, missing or out of range.
        NotPhysicallyConsistent: An inertia no body can have.
    """
    asked = RobotName.of(robot).overridden(is_elastic, prior)
    if Path(asked.robot).suffix == ".urdf":
        if known_within is not None:
            raise ParameterOutOfRange("known_within", known_within, "a settings file: `sysid new-robot` writes one")
        model = _load_bare(asked, urdf_text, snap_angles)
    else:
        path, values = read_settings(robot, is_elastic, prior)
        if known_within is not None:
            values = _known(values, known_within, path.name)
        settings = Section(values, path.name)
        urdf_path = path.parent / settings.text("urdf")
        if urdf_text is None:
            try:
                urdf_text = urdf_path.read_text(encoding="utf-8")
            except (OSError, UnicodeError) as error:
                raise ModelError(f"cannot read the URDF that {path} names: {error}") from error
        stated = path.parent / settings.text("calibration") if "calibration" in settings else None
        calibration = stated if calibration is None else calibration
        model = build_robot(path.stem, read_urdf(urdf_text, snap_angles), settings)
    if calibration is None:
        return model
    return apply_calibration(load_calibration(calibration), model, Path(calibration).name)


def _load_bare(asked: RobotName, urdf_text: str | None, snap_angles: bool) -> RobotModel:
    path = Path(asked.robot)
    if asked.is_elastic:
        raise ParameterOutOfRange("is_elastic", True, f"false: {path.name} does not say how elastic the joints are")
    if asked.prior is not None:
        raise ParameterOutOfRange("payload prior", asked.prior, f"none: {path.name} states no payload priors")
    text = read_urdf_file(path) if urdf_text is None else urdf_text
    return load_robot_from_urdf(text, name=path.stem, snap_angles=snap_angles)


def read_urdf_file(path: Path) -> str:
    """Return the text of a URDF file.

    Raises:
        ModelError: It cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"it is no text in UTF-8 ({error})"
        raise ModelError(f"cannot read the URDF {path}: {reason}") from error


def _known(values: Any, share: float, name: str) -> Any:
    """Replace the settings of bodies, friction and armatures by a share of their nominal values."""
    if not isinstance(values, Mapping) or not isinstance(values.get("friction"), Mapping):
        raise ParameterOutOfRange(f"{name}.friction", None, "a mapping of joints to friction")
    section = Section({"known_within": share}, name)
    share = section.number("known_within", "-", 0.0, 1.0)
    friction = {}
    for joint, entry in values["friction"].items():
        section = Section(entry, f"{name}: friction.{joint}")
        nominal, radius = section.vector("nominal", 4, "SI"), section.vector("radius", 4, "SI", 0.0)
        known = [*(share * nominal[:3]).tolist(), float(radius[3])]
        friction[joint] = {**entry, "radius": known}
    return {**values, "friction": friction, "inertial_uncertainty": {"pseudo_inertia": share}}


def calibrated_settings(robot: str | Path, urdf: str, calibration: str) -> str:
    """Return the settings of a robot with a calibration, for a file beside the URDF and the calibration.

    ``urdf`` and ``calibration`` are the names of these files.

    Raises:
        ModelError: There are no such settings, or they cannot be read.
    """
    asked, path = RobotName.of(robot), find_settings(robot)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise ModelError(f"cannot read the robot settings {path}: {error}") from error
    new = {"urdf": urdf, "calibration": calibration}
    if asked.prior is not None:
        new["payload_prior"] = asked.prior
    kept = [line for line in lines if line.split(":")[0] not in new]
    if asked.is_elastic:
        kept = [line.replace("is_elastic: false", "is_elastic: true") for line in kept]
    return "\n".join([*kept, "", *(f"{name}: {value}" for name, value in new.items())]) + "\n"


def load_robot_from_urdf(
    urdf_text: str,
    *,
    name: str | None = None,
    joint_names: Sequence[str] | None = None,
    tool_frame: str | None = None,
    settings: Mapping[str, Any] | None = None,
    snap_angles: bool = True,
) -> RobotModel:
    """Load any arm from its URDF alone, with assumptions for everything else (``assumptions`` of the result).

    Args:
        urdf_text: The URDF, with xacro macros expanded. Meshes may be missing.
        name: Name of the robot; by default the URDF's.
        joint_names: Joints of the arm from the base on; by default all on the path to the tool. Other joints are fixed
            at zero.
        tool_frame: Link the payload is held in; by default the last link of the only path with movable joints.
        settings: Sections of a settings file that replace the derived ones.
        snap_angles: See :func:`sysid_ros.core.model.urdf.read_urdf`.

    Returns:
        The robot.

    Raises:
        ModelError: As :func:`load_robot`; also where the URDF branches and neither joints nor tool are given.
    """
    description = read_urdf(urdf_text, snap_angles)
    derived = default_settings(description, joint_names, tool_frame)
    merged = {**derived, **(settings or {})}
    label = name or description.robot.name
    return build_robot(label, description, Section(merged, label))
