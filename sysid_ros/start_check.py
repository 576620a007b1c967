"""What is refused before a process starts: what some process would refuse seconds later, or could never carry out.

The commands and the launch files both ask here.
"""

from __future__ import annotations

import importlib
import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from sysid_ros.core.certification.possible import require_certifiable
from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange, SysidError
from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.control.settings import ROBUST
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import FRI, KORTEX, RobotModel
from sysid_ros.core.model.robot_files import available_robots
from sysid_ros.drivers.modes import Mode
from sysid_ros.processes import ParameterValue, Spelling, StartedProcess

_PAYLOAD = "payload"
_KEY = "ros__parameters"
_CONNECTIONS: Mapping[str, tuple[str, ...]] = {
    FRI: ("robot_ip", "fri_version", "port_id"),
    KORTEX: ("robot_ip", "port", "username", "password_file"),
}
"""Options of how an arm is reached, by the protocol of its controller."""
_ROUNDING = 1e-9


def check_suite(
    values: Mapping[str, str],
    started: Sequence[StartedProcess],
    own: Mapping[str, Mapping[str, ParameterValue]],
    spelling: Spelling,
) -> dict[str, Any]:
    """Refuse what some process of the suite of an arm would refuse later; needs ROS.

    Args:
        values: Launch arguments as texts.
        started: What is going to be started.
        own: Parameters by executable that override ``started``.
        spelling: How the arguments were typed.

    Returns:
        The parameters of every node, see :func:`require_parameters`.

    Raises:
        SysidError: No such arm, gripper or payload, a value out of range, or arguments that do not go together.
        ModuleNotFoundError: An extra of the package is not installed.
    """
    robot, mode = load_robot(values["model"]), Mode(values["mode"])
    robot.gripper_state(values["gripper"])
    require_modules(mode.is_simulated)
    require_connection(values, robot, spelling)
    found = require_parameters(started, own, spelling)
    if mode.is_simulated:
        require_held(robot, found["arm_emulator" if mode.is_emulated else "arm_driver"].payload)
    return found


def require_modules(is_simulated: bool, is_arm: bool = True) -> None:
    """Refuse to start processes that would end at once, because an extra of the package is not installed.

    Args:
        is_simulated: Whether an arm or robot is simulated.
        is_arm: Whether it is an arm, for which motions are planned and certified.

    Raises:
        ModuleNotFoundError: Names the module.
    """
    for name in ("rclpy", "sysid_msgs", *(["mujoco"] if is_simulated else []), *(["casadi"] if is_arm else [])):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


def require_connection(values: Mapping[str, str], robot: RobotModel, spelling: Spelling) -> None:
    """Refuse arguments of a connection that is not made with the arm and the mode.

    Raises:
        ParameterOutOfRange: Names the argument.
    """
    has_one = Mode(values["mode"]) in (Mode.HARDWARE, Mode.EMULATED)
    used = _CONNECTIONS.get(robot.protocol, ()) if has_one else ()
    for name in sorted({name for names in _CONNECTIONS.values() for name in names} - set(used)):
        value = values[name]
        if value:
            where = f"to {robot.name} with {spelling.pair('mode', values['mode'])}"
            allowed = f"nothing: no connection {where} has it" if used else f"nothing: there is no connection {where}"
            raise ParameterOutOfRange(spelling.title(name), value, allowed)
    try:
        ipaddress.IPv4Address(values["robot_ip"] or "127.0.0.1")
    except ValueError:
        if re.fullmatch(r"(?=.*[A-Za-z])[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", values["robot_ip"]):
            return
        allowed = "the address of the arm's controller, as in 192.168.1.10, or the name of a computer"
        raise ParameterOutOfRange(spelling.title("robot_ip"), values["robot_ip"], allowed) from None


def require_parameters(
    started: Sequence[StartedProcess],
    own: Mapping[str, Mapping[str, ParameterValue]],
    spelling: Spelling,
) -> dict[str, Any]:
    """Build the parameters of every node as the node itself will, and the arm of the driver; needs ROS.

    Args:
        started: What is going to be started.
        own: Parameters by executable that override ``started``.
        spelling: How the arguments were typed.

    Returns:
        The :class:`~sysid_ros.ros.parameters.NodeParameters` by executable.

    Raises:
        ParameterOutOfRange: A value has the wrong type, is not allowed or does not fit the arm; or a bad name space.
        SysidError: A parameter file cannot be read, or names a parameter that its node does not have.
    """
    from rclpy.exceptions import InvalidNamespaceException  # ROS may not be installed
    from rclpy.validate_namespace import validate_namespace

    from sysid_ros.ros.parameters import FOREIGN, declared, parameters_of, require_known

    found: dict[str, Any] = {}
    for one in started:
        name = one.process.executable
        if one.namespace:
            try:
                validate_namespace(f"/{one.namespace}")
            except InvalidNamespaceException:
                allowed = "letters, digits and _, as in left or cell_1/left; no part begins with a digit"
                raise ParameterOutOfRange(spelling.title("robot_name"), one.namespace, allowed) from None
        given: dict[str, Any] = {}
        for path in one.parameter_files:
            given |= read_parameters(path, name, one.namespace)
        given |= {**one.parameters, **own.get(name, {})}
        kind = parameters_of(importlib.import_module(one.process.module))
        given = {key: value for key, value in given.items() if not key.startswith(FOREIGN)}
        require_known(given, declared(kind), name)
        found[name] = kind().with_values(**given)
    if "arm_driver" in found:
        driver = found["arm_driver"]
        driver.build(load_robot(driver.model))
    return found


def read_parameters(path: Path, node: str, namespace: str = "") -> dict[str, Any]:
    """Read the parameters of a node from a file of ROS parameters.

    Args:
        path: The file: names of nodes, with the wildcards ``*`` and ``**``, over ``ros__parameters``.
        node: Name of the node.
        namespace: Its name space; empty for none.

    Raises:
        ModelError: It is no such file.
    """
    values = read_yaml(path)
    wanted = [*filter(None, namespace.split("/")), node]
    found: dict[str, Any] = {}
    for pattern, parameters in _sections(values, path):
        if _matches(pattern, wanted):
            found |= dict(_flat(parameters))
    return found


def _sections(values: Any, path: Path, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield patterns of names of nodes, and the parameters below them."""
    if not isinstance(values, dict):
        where = "/".join(above) or "the file"
        raise ModelError(
            f"cannot read {path}", f"{where} has to be names of nodes over {_KEY}, as in '/**/arm_driver:'"
        )
    for key, value in values.items():
        if key == _KEY:
            if not isinstance(value, dict):
                raise ModelError(
                    f"cannot read {path}", f"{_KEY} of {'/'.join(above) or 'no node'} has to be names and values"
                )
            yield above, value
        else:
            yield from _sections(value, path, (*above, *filter(None, str(key).split("/"))))


def _matches(pattern: Sequence[str], name: Sequence[str]) -> bool:
    """Whether the parts of a pattern match a name; ``*`` is any part, ``**`` any parts."""
    if not pattern:
        return not name
    first, *rest = pattern
    if first == "**":
        return any(_matches(rest, name[skipped:]) for skipped in range(len(name) + 1))
    return bool(name) and first in ("*", name[0]) and _matches(rest, name[1:])


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def require_held(robot: RobotModel, payload: str) -> None:
    """Refuse a payload that a simulated arm cannot be found to hold: one outside its prior; needs the simulator.

    Raises:
        SysidError: There is no such payload, or it is outside.
    """
    from sysid_ros.drivers.mujoco.simulation import load_payload  # the simulator may not be installed

    values, prior = load_payload(robot, payload), robot.payload_prior
    if values is None or prior.target != _PAYLOAD:
        return
    slack = _ROUNDING * prior.box.width
    if np.any(values < prior.box.lower - slack) or np.any(values > prior.box.upper + slack):
        low, high = prior.box.lower[0], prior.box.upper[0]
        allowed = (
            f"inside the payload prior '{prior.name}' of {robot.name}, which has {low:g} to {high:g} kg: no bounds "
            f"contain what lies outside, and this has {values[0]:.4g} kg"
        )
        raise ParameterOutOfRange("payload", payload, allowed)


def require_movable(found: Mapping[str, Any], command: str, spelling: Spelling, has_goal: bool = True) -> None:
    """Refuse an arm of which no motion can be certified, and say which arms can be moved and what to do with this one.

    Args:
        found: The parameters of the suite, of :func:`require_parameters`.
        command: What would move it, as it is typed.
        spelling: How its arguments are typed.
        has_goal: Whether it is to be identified by motions; otherwise it may be moved without certificates, too: by
            hand, or by a law without a bound.

    Raises:
        SysidError: None can.
    """
    driver = found["arm_driver"]
    needs_no_proof = driver.controller != ROBUST or driver.loop.allows_guiding
    if found["identification"].is_moved_by_others or (needs_no_proof and not has_goal):
        return
    robot = load_robot(driver.model)
    try:
        require_certifiable(robot)
    except SysidError as error:
        works = ", ".join(name for name in available_robots() if _is_certifiable(load_robot(name)))
        model = spelling.pair("model", driver.model)
        watch = "sysid identify" if spelling is Spelling.OPTION else command
        raise SysidError(
            f"{model}: {error}.\n{command} works with {works}. What this arm carries can be identified from a "
            f"recording (sysid offline BAG --model {driver.model}), or while another controller moves it "
            f"({watch} {spelling.pair('mode', 'monitor_only')} {model})"
        ) from error


def _is_certifiable(robot: RobotModel) -> bool:
    try:
        require_certifiable(robot)
    except SysidError:
        return False
    return True
