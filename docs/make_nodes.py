"""Writes docs/nodes.md from the code: ``python docs/make_nodes.py``. A test fails when the file is not up to date."""

from __future__ import annotations

import ast
import importlib
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType

from sysid_ros.processes import ARGUMENTS, IDENTIFY
from sysid_ros.ros.parameters import NodeParameters, allowed_values

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

PATH = Path(__file__).with_name("nodes.md")

HEADER = """# Nodes: topics, services, parameters, launch arguments

Made by `docs/make_nodes.py` from the code; change it there. Parameters marked *start* can be given only when a node
starts; the others also with `ros2 param set`. A value that is unknown, of another type or out of range is refused with
a message that says what is allowed. A name with `~/` lies below the node's own name, as in `/arm_driver/samples`.

`ros2 launch sysid_ros identify.launch.py` starts all of these nodes; without an installed ROS, `sysid_identify` does.
Files with parameters: `config/nodes/mock.yaml` and `config/nodes/hardware.yaml`, by launch argument `mode`.
"""


def build_page() -> str:
    """The text of docs/nodes.md."""
    parts = [HEADER, "## Launch arguments\n", _arguments()]
    for process in IDENTIFY:
        module = importlib.import_module(process.module)
        parts += [f"## {process.executable}\n", f"{process.description[0].upper()}{process.description[1:]}.\n"]
        parts += [_interfaces(module), _parameters(parameters_of(module))]
    return "\n".join(parts).rstrip() + "\n"


def parameters_of(module: ModuleType) -> type[NodeParameters]:
    """The class of parameters a node module defines."""
    kinds = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, NodeParameters) and value.__module__ == module.__name__
    ]
    if len(kinds) != 1:
        raise LookupError(f"{module.__name__} defines {len(kinds)} classes of parameters; needed: 1")
    return kinds[0]


def interfaces_of(module: ModuleType) -> list[tuple[str, str, str]]:
    """(what, name, type) of every topic, service and action a node module and its own helpers make."""
    found = set()
    for part in (module, *_helpers(module)):
        for call in ast.walk(ast.parse(Path(part.__file__).read_text())):
            function = getattr(call, "func", None)
            what = _CALLS.get(getattr(function, "attr", getattr(function, "id", "")))
            if what is None:
                continue
            words = [item for item in call.args if not (isinstance(item, ast.Name) and item.id in ("self", "node"))]
            kind = getattr(part, words[0].id)
            found.add((what, words[1].value, f"{kind.__module__.split('._')[0].replace('.', '/')}/{kind.__name__}"))
    order = list(dict.fromkeys(_CALLS.values()))
    return sorted(found, key=lambda row: (order.index(row[0]), row[1]))


def _helpers(module: ModuleType) -> list[ModuleType]:
    """Modules named after the node, which hold parts of it, as ``identification_backend`` does."""
    names = {getattr(value, "__module__", "") for value in vars(module).values()}
    return [sys.modules[name] for name in sorted(names) if name.startswith(module.__name__ + "_")]


def _interfaces(module: ModuleType) -> str:
    rows = ["| | name | type |", "|---|---|---|"]
    return (
        "\n".join([*rows, *(f"| {what} | `{name}` | `{kind}` |" for what, name, kind in interfaces_of(module))]) + "\n"
    )


def _arguments() -> str:
    rows = ["| argument | default | description | choices |", "|---|---|---|---|"]
    for argument in ARGUMENTS:
        default = f"`{argument.default}`" if argument.default else ""
        choices = ", ".join(f"`{choice}`" for choice in argument.choices)
        rows.append(f"| `{argument.name}` | {default} | {argument.description} | {choices} |")
    return "\n".join(rows) + "\n"


def _parameters(kind: type[NodeParameters]) -> str:
    rows = ["| parameter | default | unit | description | allowed | |", "|---|---|---|---|---|---|"]
    for one in fields(kind):
        default = ", ".join(map(str, one.default)) if isinstance(one.default, tuple) else one.default
        default = str(default).lower() if isinstance(one.default, bool) else default
        shown = f"`{default}`" if default != "" else ""
        allowed = allowed_values(kind, one).replace("|", "\\|")
        start = "start" if one.metadata["read_only"] else ""
        unit = one.metadata["unit"]
        rows.append(f"| `{one.name}` | {shown} | {unit} | {one.metadata['description']} | {allowed} | {start} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    PATH.write_text(build_page())
    sys.stdout.write(f"{PATH} written\n")
