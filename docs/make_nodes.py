"""Writes the reference in docs/nodes.md: ``python docs/make_nodes.py``. A test fails when it is not up to date."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType

from rclpy.qos import QoSProfile

from sysid_ros.processes import ARGUMENTS, EMULATED, IDENTIFY, SPACE, SPACE_ARGUMENTS, Argument
from sysid_ros.ros import qos
from sysid_ros.ros.parameters import NodeParameters, declared, parameters_of

_CALLS = {
    "create_publisher": "publishes",
    "create_lifecycle_publisher": "publishes",
    "create_subscription": "subscribes",
    "SourceReceiver": "subscribes",
    "_listen": "subscribes",
    "create_service": "offers service",
    "create_long_service": "offers service",
    "ActionServer": "offers action",
    "serve": "offers action",
    "create_client": "calls service",
    "ActionClient": "calls action",
}
"""Functions that make an interface of a node, and what they make; all take (type, name) in this order."""

_SHORTER = (
    (r"a number with a decimal point, as in 2\.0, |a whole number, |a list of numbers with .*?\], |^one of ", ""),
    (r"^from (?=\S+ to )| \[.*\]$|^a text$|^true or false$|^a list of numbers.*", ""),
    (r"^a list of texts", "list"),
    (r"'(\w+)'", r"`\1`"),
)
"""What the header says once, or the default and its unit show."""

PATH = Path(__file__).with_name("nodes.md")

MARK = "<!-- From here on made by docs/make_nodes.py from the code; change it there. -->\n"
"""What stands above this line is written by hand and kept."""

HEADER = """## Reference

Parameters with \\* can be given only at the start of a node, among them all that motions rely on to be safe; the others
also with `ros2 param set`. `ros2 param describe` has units and ranges, too; values outside are refused with a message.
Numbers with a decimal point in the table need one. `~/` stands for the node's own name, as in `/arm_driver/samples`.
*Latched* means reliable, transient local, keep last 1; other topics are reliable and volatile, with the depth shown.
"""


def build_page() -> str:
    """The text of docs/nodes.md."""
    by_hand = PATH.read_text().split(MARK)[0]
    parts = [HEADER, "### Launch arguments\n", _arguments(ARGUMENTS)]
    same = [argument.name for argument in SPACE_ARGUMENTS if argument in ARGUMENTS]
    own = [argument for argument in SPACE_ARGUMENTS if argument.name not in same]
    parts += ["### Launch arguments of space_robot.launch.py\n", f"As above: {_names(same)}.\n", _arguments(own)]
    processes = (*IDENTIFY, *EMULATED, *SPACE)
    modules = [importlib.import_module(process.module) for process in processes]
    counts = Counter(row for module in modules for row in _rows(parameters_of(module)).values())
    common = {row for row, count in counts.items() if count > 1}
    parts += ["### Common parameters\n", _table(row for row in counts if row in common)]
    for process, module in zip(processes, modules, strict=True):
        parts += [f"### {process.executable}\n", f"{process.description[0].upper()}{process.description[1:]}.\n"]
        rows = _rows(parameters_of(module))
        shared = [name for name, row in rows.items() if row in common]
        parts += [_interfaces(module), _table(row for row in rows.values() if row not in common)]
        parts += [f"[Common parameters](#common-parameters): {_names(shared)}.\n"] if shared else []
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
            if not isinstance(words[1], ast.Constant):  # a function with one of these names makes it
                continue
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
    return [sys.modules[name] for name in sorted(names) if f"{name}.".startswith(parts)]


def _interfaces(module: ModuleType) -> str:
    """A table of what the node offers; what it uses by name, as its type stands with the node that offers it."""
    found = _found(module)
    rows = ["| | topic | type | QoS |", "|---|---|---|---|"]
    rows += [
        f"| {what} | `{name}` | `{kind}` | {_shorten_quality(quality)} |"
        for what, name, kind, quality in found
        if what == "publishes"
    ]
    offered = [f"`{name}` (`{kind}`)" for what, name, kind, _ in found if what.startswith("offers")]
    used = [f"Offers {', '.join(offered)}"] if offered else []
    used += [
        f"{words} {_names(names)}"
        for verb, words in (("subscribes", "Subscribes to"), ("calls", "Calls"))
        if (names := list(dict.fromkeys(name for what, name, *_ in found if what.startswith(verb))))
    ]
    return "\n".join(rows) + "\n" + "".join(f"\n{line}.\n" for line in used)


def _shorten_quality(quality: str) -> str:
    if quality == "reliable, transient local, keep last 1":
        return "latched"
    return quality.replace("reliable, volatile, keep last ", "").replace("reliable, ", "")


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _arguments(arguments: Sequence[Argument]) -> str:
    rows = ["| argument | default | description | choices |", "|---|---|---|---|"]
    for argument in arguments:
        default = f"`{argument.default}`" if argument.default else ""
        is_said = set(argument.choices) <= {"true", "false", *re.findall(r"\w+(?=:)", argument.description)}
        choices = "" if is_said else ", ".join(f"`{choice}`" for choice in argument.choices)
        name = f"`{argument.name}`" + (f" or `{argument.alias}`" if argument.alias else "")
        rows.append(f"| {name} | {default} | {argument.description} | {choices} |")
    return "\n".join(rows) + "\n"


def _rows(kind: type[NodeParameters]) -> dict[str, str]:
    """Return a row of the table of parameters for each name."""
    rows = {}
    for one in declared(kind).values():
        default = ", ".join(map(str, one.default)) if isinstance(one.default, tuple) else one.default
        default = str(default).lower() if isinstance(one.default, bool) else default
        shown, unit = f"`{default}`" if default != "" else "", one.setting.unit
        shown += f" {unit}" if unit != "-" else ""
        allowed = one.allowed
        for pattern, words in _SHORTER:
            allowed = re.sub(pattern, words, allowed)
        if all(choice in f"{shown} {one.setting.description}" for choice in re.findall(r"`(\w+)`", allowed)):
            allowed = re.sub(r"`.*`", "", allowed)
        name = f"`{one.name}`" + (r"\*" if one.read_only else "")
        value = f"{shown.strip()} ({allowed})" if allowed else shown.strip()
        cells = (name, value.strip().replace("|", r"\|"), one.setting.description)
        rows[one.name] = f"| {' | '.join(cells)} |"
    return rows


def _table(rows: Iterable[str]) -> str:
    listed = list(rows)
    return "\n".join(["| parameter | default (allowed) | |", "|---|---|---|", *listed, ""]) if listed else ""


if __name__ == "__main__":
    PATH.write_text(build_page())
    sys.stdout.write(f"{PATH} written\n")
