"""Writes the reference in docs/nodes.md: ``python docs/make_nodes.py``. A test fails when it is not up to date."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from rclpy.qos import QoSProfile

from sysid_ros.processes import ARGUMENTS, EMULATED, IDENTIFY, SPACE, SPACE_ARGUMENTS, Argument
from sysid_ros.ros import qos
from sysid_ros.ros.node_help import parameters_of
from sysid_ros.ros.parameters import NodeParameters, declared

_CALLS = {
    "create_publisher": "publishes",
    "create_lifecycle_publisher": "publishes",
    "create_subscription": "subscribes",
    "create_service": "offers service",
    "create_long_service": "offers service",
    "ActionServer": "offers action",
    "create_client": "calls service",
    "ActionClient": "calls action",
}
"""Functions that make an interface of a node, and what they make; all take (type, name) in this order."""

_NUMBER = "a number with a decimal point, as in 2.0, "
"""Said once at the top of the page."""

PATH = Path(__file__).with_name("nodes.md")

MARK = "<!-- From here on made by docs/make_nodes.py from the code; change it there. -->\n"
"""What stands above this line is written by hand and kept."""

HEADER = """## Reference

Parameters marked *start* can be given only when a node starts: among them is all that makes motions safe; the others
also with `ros2 param set`. A value that is unknown, of another type or out of range is refused with a message that
says what is allowed; numbers with a unit need a decimal point. A name with `~/` lies below
the node's own name, as in `/arm_driver/samples`; others in its namespace.
"""


def build_page() -> str:
    """The text of docs/nodes.md."""
    by_hand = PATH.read_text().split(MARK)[0]
    parts = [HEADER, "### Launch arguments\n", _arguments(ARGUMENTS)]
    parts += ["### Launch arguments of space_robot.launch.py\n", _arguments(SPACE_ARGUMENTS)]
    for process in (*IDENTIFY, *EMULATED, *SPACE):
        module = importlib.import_module(process.module)
        parts += [f"### {process.executable}\n", f"{process.description[0].upper()}{process.description[1:]}.\n"]
        parts += [_interfaces(module), _parameters(parameters_of(module))]
    return by_hand + MARK + "\n" + "\n".join(parts).rstrip() + "\n"


def interfaces_of(module: ModuleType) -> list[tuple[str, str, str]]:
    """(what, name, type) of every topic, service and action a node module and its own helpers make."""
    return [row[:3] for row in _found(module)]


def _found(module: ModuleType) -> list[tuple[str, str, str, str]]:
    """The same with the quality of service of topics in words."""
    found = set()
    for part in (module, *_helpers(module)):
        for call in ast.walk(ast.parse(Path(part.__file__).read_text())):
            function = getattr(call, "func", None)
            what = _CALLS.get(getattr(function, "attr", getattr(function, "id", "")))
            if what is None:
                continue
            words = [item for item in call.args if not (isinstance(item, ast.Name) and item.id in ("self", "node"))]
            kind = getattr(part, words[0].id)
            name = f"{kind.__module__.split('._')[0].replace('.', '/')}/{kind.__name__}"
            quality = _quality(call.args[-1]) if what in ("publishes", "subscribes") else ""
            found.add((what, words[1].value, name, quality))
    order = list(dict.fromkeys(_CALLS.values()))
    return sorted(found, key=lambda row: (order.index(row[0]), *row[1:]))


def _quality(argument: ast.expr) -> str:
    """The quality of service given as a profile of ``sysid_ros.ros.qos`` or as a depth."""
    if isinstance(argument, ast.Constant):
        return qos.describe(QoSProfile(depth=argument.value))
    return qos.describe(getattr(qos, argument.attr))


def _helpers(module: ModuleType) -> list[ModuleType]:
    """Modules of the adapters beside the package of the node that hold parts of it, and those named after it."""
    names = {getattr(value, "__module__", "") for value in vars(module).values()}
    adapters = module.__package__.replace(".nodes", ".adapters")
    own = "" if adapters == "sysid_ros.space.adapters" else module.__name__.rsplit(".", 1)[-1] + "."
    parts = (module.__name__ + "_", f"{adapters}.{own}")
    return [sys.modules[name] for name in sorted(names) if name.startswith(parts)]


def _interfaces(module: ModuleType) -> str:
    rows = ["| | name | type | quality of service |", "|---|---|---|---|"]
    rows += [f"| {what} | `{name}` | `{kind}` | {quality} |" for what, name, kind, quality in _found(module)]
    return "\n".join(rows) + "\n"


def _arguments(arguments: Sequence[Argument]) -> str:
    rows = ["| argument | default | description | choices |", "|---|---|---|---|"]
    for argument in arguments:
        default = f"`{argument.default}`" if argument.default else ""
        choices = ", ".join(f"`{choice}`" for choice in argument.choices)
        name = f"`{argument.name}`" + (f" or `{argument.alias}`" if argument.alias else "")
        rows.append(f"| {name} | {default} | {argument.description} | {choices} |")
    return "\n".join(rows) + "\n"


def _parameters(kind: type[NodeParameters]) -> str:
    rows = ["| parameter | default | unit | description | allowed | |", "|---|---|---|---|---|---|"]
    for one in declared(kind).values():
        default = ", ".join(map(str, one.default)) if isinstance(one.default, tuple) else one.default
        default = str(default).lower() if isinstance(one.default, bool) else default
        shown = f"`{default}`" if default != "" else ""
        allowed = one.allowed.replace(_NUMBER, "").replace("|", "\\|")
        start = "start" if one.read_only else ""
        info = one.setting
        rows.append(f"| `{one.name}` | {shown} | {info.unit} | {info.description} | {allowed} | {start} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    PATH.write_text(build_page())
    sys.stdout.write(f"{PATH} written\n")
