"""What docs/nodes.md tells people to type can be typed, and every error code is explained."""

import importlib
import re
from pathlib import Path

import pytest
import yaml

from sysid_ros.core.procedure import IdentificationErrorCode
from sysid_ros.processes import IDENTIFY, SPACE
from sysid_ros.ros.parameters import NodeParameters, declared

PAGE = (Path(__file__).parents[2] / "docs" / "nodes.md").read_text()
COMMANDS = re.findall(r"^ros2 .*$", PAGE, re.MULTILINE)
NODES = {process.executable: importlib.import_module(process.module) for process in (*IDENTIFY, *SPACE)}


def test_every_error_code_is_explained():
    for code in IdentificationErrorCode:
        assert f"| {int(code)} `{code.name}` |" in PAGE


@pytest.mark.parametrize("command", [line for line in COMMANDS if "sysid_msgs/" in line])
def test_requests_fit_their_types(command):
    package, group, name, text = re.search(r'(\w+)/(srv|action)/(\w+) "(\{.*\})"', command).groups()
    kind = getattr(importlib.import_module(f"{package}.{group}"), name)
    fields = yaml.safe_load(text)
    assert fields
    (kind.Request if group == "srv" else kind.Goal)(**fields)


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.split()[1] != "launch"])
def test_names_exist(make_nodes, command):
    """A node, and a service or topic of it that its code makes."""
    node, thing = re.search(r" /(\w+)(?:/(\w+))?", command).groups("")
    assert not thing or f"~/{thing}" in {name for _, name, _ in make_nodes.interfaces_of(NODES[node])}
    for verb, parameter in re.findall(r"param (set|describe) /\w+ (\w+)", command):
        kinds = [
            kind for kind in vars(NODES[node]).values() if isinstance(kind, type) and issubclass(kind, NodeParameters)
        ]
        assert any(parameter in declared(kind) for kind in kinds), (verb, parameter)
