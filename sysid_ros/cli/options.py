"""Options of several commands, and their checks, before anything that takes long is loaded."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sysid_ros.core.common.command_line import require_numbers
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.model.robot_files import available_robots, require_robot
from sysid_ros.processes import Argument
from sysid_ros.reports.recordings.options import ReadOptions
from sysid_ros.ros.environment import DOMAIN_IDS
from sysid_ros.view.address import PORT, free_port

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sysid_ros.core.model.robot import RobotModel

_ONLY_LAUNCHED = (
    "launch_rviz", "rviz_config_file", "view_port", "publish_tf", "tf_prefix", "use_sim_time", "results_root", "payload"
)  # fmt: skip
"""Launch arguments that the runner has no use for."""


def add_launch_options(parser: argparse.ArgumentParser, arguments: Sequence[Argument]) -> None:
    """Add launch arguments to a command line, and what every runner has: ``--results`` and ``--domain-id``."""
    for argument in arguments:
        if argument.name not in _ONLY_LAUNCHED:
            names = (argument.name, argument.alias) if argument.alias else (argument.name,)
            parser.add_argument(
                *("--" + name.replace("_", "-") for name in names),
                dest=argument.name,
                default=argument.default,
                choices=argument.choices or None,
                help=f"{argument.description} (default: {argument.default or 'empty'})",
            )
    parser.add_argument(
        "--results", "--output", type=Path, default=Path("results"), help="folder for the folder of this run"
    )
    parser.add_argument("--domain-id", type=_domain_id, help="ROS domain, 0 to 101 (default: a free one)")


def _domain_id(text: str) -> int:
    """Read a ROS domain before a folder of results is made for it."""
    if not (text.isdecimal() and int(text) in DOMAIN_IDS):
        raise argparse.ArgumentTypeError(f"invalid ROS domain '{text}': expected 0 to {DOMAIN_IDS[-1]}")
    return int(text)


def launch_values(options: argparse.Namespace, arguments: Sequence[Argument]) -> dict[str, str]:
    """Return the launch arguments given on a command line."""
    return {one.name: getattr(options, one.name) for one in arguments if hasattr(options, one.name)}


def add_view_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--view``, as text for a launch argument: the port, empty without it."""
    text = f"{what} in a browser on this machine, at the first free port from PORT on (default: {PORT}); needs viser"
    parser.add_argument("--view", dest="view_port", nargs="?", const=str(PORT), default="0", metavar="PORT", help=text)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add who carries out the runs; :func:`~sysid_ros.executor.open_executor` takes both."""
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes of this machine (default: 1)")
    text = "scheduler of a dask cluster, as tcp://host:8786, whose workers have this package (extra [cluster])"
    parser.add_argument("--scheduler", default="", metavar="ADDRESS", help=text)


def add_model_option(parser: argparse.ArgumentParser) -> None:
    """Add the arm, which must be given."""
    known = ", ".join(available_robots())
    parser.add_argument("--model", required=True, help=f"the arm: one of {known}, or a settings file")


def add_set_option(parser: argparse.ArgumentParser) -> None:
    """Add settings of the estimator; :func:`parse_settings` reads them."""
    text = "any other setting of the estimator, such as torque_lag=0.02 or gravity_cone=0.035; repeatable"
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=text)


def add_known_within(parser: argparse.ArgumentParser) -> None:
    """Add how well this very arm is known; :func:`load_known` reads it."""
    text = (
        "share within which bodies, friction and armatures of this very arm are known, 0 to 1, in place of what "
        "its settings say; bounds hold only if that is true"
    )
    parser.add_argument("--known-within", type=float, metavar="SHARE", help=text)


def add_recording_options(parser: argparse.ArgumentParser) -> None:
    """Add facts that a file of samples may leave open; :func:`recording_options` reads it."""
    text = (
        "topic of the samples or joint states, where a recording has several, or how the columns of a table "
        "begin; repeatable where joints are split"
    )
    parser.add_argument("--topic", action="append", default=[], help=text)
    text = "joint of the arm for another name in the file; repeatable"
    parser.add_argument("--map", action="append", default=[], metavar="NAME=JOINT", help=text)
    parser.add_argument("--units", default="", help="units that are not SI, for instance 'q=deg, tau=mNm'")
    text = "1: efforts are in joint direction, -1: against it (default: what the file says, or gravity shows)"
    parser.add_argument("--effort-sign", type=float, choices=(1.0, -1.0), help=text)
    text = (
        "what one unit of the efforts is, of currents gear times torque constant; of all joints, or of one, "
        "repeatable; stated, efforts that fit no payload are no longer refused"
    )
    parser.add_argument("--effort-scale", action="append", default=[], metavar="[JOINT=]NM_PER_UNIT", help=text)


def recording_options(options: argparse.Namespace) -> ReadOptions:
    """Return the facts that the command line states of a file of samples.

    Raises:
        ParameterOutOfRange: A pair lacks its sign of equality, or a unit is unknown.
    """

    def pairs(option: str, words: Sequence[str], example: str) -> dict[str, str]:
        split = [word.partition("=") for word in words]
        for name, separator, value in split:
            if not (name and separator and value):
                raise ParameterOutOfRange(option, name + separator + value, example)
        return {name: value for name, _, value in split}

    units = options.units.replace(",", " ").split()
    return ReadOptions(
        tuple(options.topic),
        pairs("--map", options.map, "NAME=JOINT, for instance ur5_elbow_joint=elbow_joint"),
        pairs("--units", units, "for instance 'q=deg, tau=mNm'"),
        options.effort_sign,
        dict(_scale(word) for word in options.effort_scale),
    )


def _scale(word: str) -> tuple[str, float]:
    name, _, number = word.rpartition("=")
    try:
        return name, float(number)
    except ValueError:
        raise ParameterOutOfRange("--effort-scale", word, "a number, or JOINT=NUMBER, in Nm per unit") from None


def read_settings(options: argparse.Namespace) -> EstimatorSettings:
    """Return the settings of the estimator from the command line of ``sysid offline``.

    Raises:
        ParameterOutOfRange: A setting is unknown, has the wrong type or is out of range.
    """
    values = {name: getattr(options, name) for name in ("method", "body", "target")}
    return parse_settings(options.set, {**values, "window_duration": options.window})


def parse_settings(words: Sequence[str], values: Mapping[str, object] | None = None) -> EstimatorSettings:
    """Read settings of the estimator from words ``NAME=VALUE`` on top of given values.

    Raises:
        ParameterOutOfRange: A setting is unknown, has the wrong type or is out of range.
    """
    defaults = EstimatorSettings()
    known = {entry.name: getattr(defaults, entry.name) for entry in dataclasses.fields(EstimatorSettings)}
    chosen: dict[str, object] = dict(values or {})
    for word in words:
        name, separator, text = word.partition("=")
        if not separator or name not in known:
            raise ParameterOutOfRange("--set", word, "NAME=VALUE with a name of " + ", ".join(known))
        chosen[name] = _parse(name, text, known[name])
    return EstimatorSettings(**chosen)  # type: ignore[arg-type]


def _parse(name: str, text: str, default: object) -> object:
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(default, tuple):
            return tuple(word for word in text.split(",") if word)
        if isinstance(default, int | float):
            return type(default)(text)
        return text
    except (ValueError, KeyError):
        kinds = {bool: "true or false", int: "a whole number", float: "a number"}
        raise ParameterOutOfRange(name, text, kinds.get(type(default), "text")) from None


def check_view(options: argparse.Namespace) -> None:
    """Refuse ``--view`` where nothing can be shown.

    Raises:
        SysidError: viser is missing, or it names no free port.
    """
    if options.view_port != "0":
        free_port(options.view_port)


def check_arm(options: argparse.Namespace) -> None:
    """Refuse an arm that is not there, and what cannot be known of one.

    Raises:
        SysidError: Names the option, or the file.
    """
    require_robot(options.model, getattr(options, "prior", None))
    if getattr(options, "known_within", None) is not None:
        require_numbers(options, "known_within", most=1.0)
    calibration = getattr(options, "calibration", None)
    if calibration and not Path(calibration).is_file():
        raise ParameterOutOfRange("--calibration", calibration, "an existing file of sysid calibrate")


def read_posture(robot: RobotModel, option: str, angles: Sequence[float] | None) -> NDArray[np.float64]:
    """Return the posture of an option, (n,) [rad]; home where it is not given."""
    import numpy as np

    if angles is None:
        return robot.home
    if len(angles) != robot.n:
        raise ParameterOutOfRange(f"{option} [rad]", angles, f"{robot.n} angles: {', '.join(robot.joint_names)}")
    return np.array(angles, dtype=float)
