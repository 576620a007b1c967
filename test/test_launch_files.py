"""The launch files, executed with every argument and every command of the pages, node by node."""

import ast
import importlib
import re
import shlex
from pathlib import Path

import pytest
import yaml
from ros_launch import RosLaunch

from sysid_ros.core.common.errors import SysidError
from sysid_ros.processes import ARGUMENTS, SPACE_ARGUMENTS
from sysid_ros.ros.parameters import declared, parameters_of

ROOT = Path(__file__).parents[1]
FILES = {name: ROOT / "launch" / f"{name}.launch.py" for name in ("identify", "space_robot")}
TABLES = {"identify": ARGUMENTS, "space_robot": SPACE_ARGUMENTS}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *FILES.values()]
COMMAND = re.compile(r"ros2 launch sysid_ros (\w+)\.launch\.py((?: +[\w-]+:=[^\s`]+)*)")
OTHERS = {"robot_state_publisher", "rviz2"}
"""Packages of others whose executables we start."""


def commands():
    """Return each launch file with arguments that a page has people type."""
    found = {match.groups() for page in PAGES for match in COMMAND.finditer(page.read_text().replace("\\\n", " "))}
    return sorted(found)


@pytest.fixture
def ros(monkeypatch):
    return RosLaunch(monkeypatch)


def check_nodes(nodes):
    """Hold each node against what exists: its executable, its files, and its parameters with types and ranges."""
    modules = ast.literal_eval(re.search(r"^NODES = (\(.*?\))", (ROOT / "setup.py").read_text(), re.S | re.M)[1])
    executables = {name.rpartition(".")[2]: name for name in modules}
    needed = (ROOT / "package.xml").read_text()
    for node in nodes:
        assert all(isinstance(text, str) for pair in node.additional_env.items() for text in pair)
        if node.package in OTHERS:
            assert f"<exec_depend>{node.package}</exec_depend>" in needed
            continue
        assert node.package == "sysid_ros" and node.executable in executables
        module = importlib.import_module(f"sysid_ros.{executables[node.executable]}")
        assert callable(module.main)
        known = declared(parameters_of(module))
        *files, own = node.parameters
        given = [own]
        for file in files:
            content = yaml.safe_load(Path(file).read_text()) or {}
            given += [value["ros__parameters"] for key, value in content.items() if key.endswith(f"/{node.executable}")]
        for values in given:
            for name, value in values.items():
                if name != "use_sim_time":  # every node has it
                    known[name].checked(value)


def test_pages_have_the_commands_that_are_tried_here():
    names = {name for name, _ in commands()}
    assert names == set(FILES) and len(commands()) >= 8


@pytest.mark.parametrize(("name", "words"), commands())
def test_every_launch_command_of_the_pages_starts_nodes_that_exist(ros, tmp_path, monkeypatch, name, words):
    own = tmp_path / "my_arm.yaml"  # stands for what the pages call the user's own files
    own.write_text("/**/arm_driver:\n  ros__parameters: {port_id: 30201}\n")
    monkeypatch.chdir(tmp_path)
    words = words.replace("<my_arm.yaml>", "kuka_lbr_med7:elastic")
    typed = dict(word.split(":=", 1) for word in shlex.split(words))
    if typed.get("mode") == "ros2_control":  # its page has the user say so in a file of parameters
        own.write_text("/**/arm_driver:\n  ros__parameters: {torque_command: full}\n")
        typed["parameters_file"] = str(own)
    nodes = ros.run(FILES[name], typed)
    check_nodes(nodes)
    assert [node.executable for node in nodes].count("rviz2") == (typed.get("launch_rviz") == "true")


@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        pytest.param(name, one.name, value, id=f"{name}-{one.name}-{value}")
        for name, table in TABLES.items()
        for one in table
        for value in one.allowed
    ],
)
def test_every_allowed_value_of_every_argument_is_accepted(ros, monkeypatch, name, argument, value):
    """What the values mean for an arm is checked elsewhere, and takes a second."""
    monkeypatch.setattr("sysid_ros.start_check.check_suite", lambda *_: {})
    monkeypatch.setattr("sysid_ros.start_check.require_movable", lambda *_, **__: None)
    extra = {"robot_ip": "10.0.0.1"} if value == "hardware" else {}
    check_nodes(
        ros.run(
            FILES[name],
            {"publish_tf": "false"} | {argument: value} | extra if name == "identify" else {argument: value},
        )
    )


@pytest.mark.parametrize("name", FILES)
def test_each_argument_is_declared_once_with_a_default_that_it_allows(ros, name):
    shown = {one.name: one for one in ros.describe(FILES[name])}
    spellings = [text for one in TABLES[name] for text in (one.alias, one.name) if text]
    assert list(shown) == spellings and len(set(spellings)) == len(spellings)
    for one in TABLES[name]:
        assert not one.choices or one.default in one.allowed
        assert one.value(one.default) == one.value("" if one.is_optional else one.default)
        assert shown[one.name].description.startswith(one.description)
        assert shown[one.name].choices == (list(one.allowed) or None)


@pytest.mark.parametrize(("name", "typed"), [("identify", "namespace"), ("space_robot", "robot_name")])
def test_both_names_of_an_argument_reach_the_nodes(ros, name, typed):
    assert {node.namespace for node in ros.run(FILES[name], {typed: "left"})} == {"left"}


def test_what_is_not_among_the_choices_is_refused_by_launch(ros):
    with pytest.raises(RuntimeError, match='"proves_throughout" provided value "yes" is not valid'):
        ros.run(FILES["identify"], {"proves_throughout": "yes"})


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("identify", "modle", r"launch argument 'modle' is unknown \(did you mean mode or model\?\); there are model"),
        ("identify", "robot_nmae", r"'robot_nmae' is unknown \(did you mean robot_name or"),
        ("identify", "params_file", r"did you mean parameters_file"),
        ("identify", "zzz", r"'zzz' is unknown; there are model"),
        ("space_robot", "sped", r"did you mean speed"),
    ],
)
def test_misspelt_arguments_are_named(ros, name, typed, said):
    for asked_for in ((), (str(FILES[name]),), ("--debug", "sysid_ros", FILES[name].name)):
        with pytest.raises(SysidError, match=said):
            ros.run(FILES[name], {typed: "x"}, asked_for)


def test_arguments_of_launch_itself_and_of_files_that_include_ours_are_none_of_our_business(ros):
    own = {"launch-prefix": "gdb", "sigterm_timeout": "9"}
    count = len(ros.run(FILES["identify"], {}))
    assert len(ros.run(FILES["identify"], own)) == count
    for asked_for in (
        ("their_cell", "cell.launch.py"),
        ("their_cell", "identify.launch.py"),
        ("/their/cell.launch.py",),
    ):
        assert len(ros.run(FILES["identify"], {"models": "three"}, asked_for)) == count
