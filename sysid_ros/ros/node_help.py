"""Output of ``--help`` of node executables: purpose of the node, and its parameters."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType

from rclpy.node import Node

from sysid_ros.core.common.command_line import ENDINGS, CommandParser
from sysid_ros.ros.parameters import NodeParameter, NodeParameters, declared


def parameters_of(module: ModuleType) -> type[NodeParameters]:
    """Return the class of parameters of a node module, defined there or in its part of ``sysid_ros.adapters``.

    Raises:
        LookupError: There is none, or more than one.
    """
    homes = (module.__name__, f"{module.__package__}.".replace(".nodes.", ".adapters."))
    kinds = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, NodeParameters) and value.__module__.startswith(homes)
    ]
    if len(kinds) != 1:
        raise LookupError(f"{module.__name__} defines {len(kinds)} classes of parameters; needed: 1")
    return kinds[0]


def node_parser(node_class: Callable[[], Node], program: str) -> CommandParser:
    """Return the parser of a node's command line without the arguments of ROS: it accepts only ``--help``."""
    about = (inspect.getdoc(node_class) or "A node.").split("\n\n")[0]
    try:
        known = list(declared(parameters_of(sys.modules[node_class.__module__])).values())
    except LookupError:
        known = []
    lines = [_describe(one) for one in known]
    parts = [about, "It runs until Ctrl-C. Parameters are given after --ros-args:"]
    parts += ["\n".join(["parameters:", *lines])] if lines else []
    first = next((f"{one.name}:={one.default}" for one in known if one.default not in ("", ())), "use_sim_time:=true")
    return CommandParser(
        prog=program,
        usage=f"{program} [-h] [--ros-args -p NAME:=VALUE --params-file FILE ...]",
        description="\n\n".join(parts),
        examples=(f"ros2 run sysid_ros {program} --ros-args -p {first}",),
        endings=ENDINGS,
        allow_abbrev=False,
    )


def _describe(one: NodeParameter) -> str:
    unit = one.setting.unit
    default = ",".join(map(str, one.default)) if isinstance(one.default, tuple) else one.default
    shown = f"{str(default).lower() if isinstance(default, bool) else default}{f' {unit}' if unit.strip('-') else ''}"
    return f"  {one.name} ({shown}): {one.setting.description}" if shown else f"  {one.name}: {one.setting.description}"
