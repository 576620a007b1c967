"""Everything a person can set or call is documented."""

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

from sysid_ros.cli.parse_suites import identify_parser, space_parser
from sysid_ros.processes import ARGUMENTS, EMULATED, IDENTIFY, SPACE, SPACE_ARGUMENTS
from sysid_ros.ros.parameters import declared

ROOT = Path(__file__).parents[1]


def test_page_of_nodes_is_up_to_date(make_nodes):
    assert make_nodes.PATH.read_text() == make_nodes.build_page(), "run: python docs/make_nodes.py"


def test_every_parameter_has_unit_and_description(make_nodes):
    for process in (*IDENTIFY, *EMULATED, *SPACE):
        kind = make_nodes.parameters_of(importlib.import_module(process.module))
        listed = declared(kind).values()
        assert listed
        for one in listed:
            where = f"{process.executable}: {one.name}"
            assert len(one.setting.description) > 5, where
            if isinstance(one.default, (int, float)) and not isinstance(one.default, bool):
                assert one.setting.unit, f"{where} has no unit ('-' for a pure number)"
                assert one.setting.allowed, f"{where} has no range"


def test_nodes_take_the_arguments_the_table_gives_them(make_nodes):
    for process in (*IDENTIFY, *EMULATED, *SPACE):
        names = {argument.name for argument in (SPACE_ARGUMENTS if process in SPACE else ARGUMENTS)}
        kind = make_nodes.parameters_of(importlib.import_module(process.module))
        parameters = {*declared(kind)} | {"use_sim_time"}
        for name in process.arguments:
            assert name in names
            assert name in parameters, f"{process.executable} has no parameter {name}"


def test_every_topic_of_the_page_is_one_somebody_publishes(make_nodes):
    """A subscription nobody publishes for, and a client nobody answers, is a misspelt name."""
    offered, wanted = set(), set()
    for process in (*IDENTIFY, *EMULATED, *SPACE):
        for what, name, kind in make_nodes.interfaces_of(importlib.import_module(process.module)):
            full = f"{process.executable}{name[1:]}" if name.startswith("~") else name
            (offered if what in ("publishes", "offers service", "offers action") else wanted).add((full, kind))
    assert offered
    from_others = {("obstacles", "visualization_msgs/msg/MarkerArray")}  # whoever sees them
    from_others.add(("estimator/get_parameters", "rcl_interfaces/srv/GetParameters"))  # rclpy offers it
    assert wanted - offered == from_others


def test_launch_arguments_and_options_have_descriptions():
    for argument in (*ARGUMENTS, *SPACE_ARGUMENTS):
        assert len(argument.description) > 10
    for action in (*identify_parser()._actions, *space_parser()._actions):
        assert action.help, action.option_strings


@pytest.mark.parametrize(
    "name", [process.executable for process in (*IDENTIFY, *EMULATED, *SPACE)] + ["sysid identify"]
)
def test_every_executable_is_in_the_documentation(name):
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(re.search(rf"\b{name}\b", page.read_text()) for page in pages)


@cache
def public_functions():
    """Public functions and classes with docstrings, by file."""
    return list(_public_functions())


def _public_functions():
    for path in sorted((ROOT / "sysid_ros").rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith(
                "_"
            ):
                yield path, node
                if isinstance(node, ast.ClassDef):
                    for item in node.body:
                        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and not item.name.startswith("_"):
                            yield path, item


def test_documented_arguments_exist_and_existing_ones_are_documented():
    """A section "Args:" names every argument of its function, and no other."""
    wrong = []
    for path, node in public_functions():
        docstring = ast.get_docstring(node) or ""
        function = node
        if isinstance(node, ast.ClassDef):
            found = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
            function = found[0] if found else None
        section = re.search(r"^Args:\n((?:    .*\n?|\n)+)", docstring + "\n", re.M)
        if section is None or function is None:
            continue
        documented = {name.lstrip("*") for name in re.findall(r"^    (\*{0,2}\w+)(?: \([^)]*\))?:", section[1], re.M)}
        arguments = function.args
        listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        names = {item.arg for item in listed if item is not None} - {"self", "cls"}
        if documented != names:
            wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {sorted(documented ^ names)}")
    assert wrong == []


def test_every_field_of_our_messages_has_a_unit_or_an_explanation():
    numbers = re.compile(r"^(float|u?int)\d+(\[\d*\])? \w+")
    for path in sorted((ROOT / "sysid_msgs").glob("*/*.*")):
        if path.suffix not in (".msg", ".srv", ".action"):
            continue
        assert path.read_text().startswith("# "), f"{path.name} does not say what it is"
        for line in path.read_text().splitlines():
            if numbers.match(line) and "=" not in line:
                comment = line.partition("#")[2].strip()
                assert comment, f"{path.name}: {line}"
                if line.startswith("float"):
                    assert "[" in comment or "unit" in comment or "names" in comment or "see " in comment, line
