"""Dependencies point one way: nodes -> {ros, drivers, reports} -> core; the core knows neither ROS nor simulators."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "sysid_ros"
ROS = {"rclpy", "sysid_msgs", "rcl_interfaces", "launch", "launch_ros", "ament_index_python"}
NOT_IN_CORE = ROS | {"mujoco", "mcap", "mcap_ros2"}
LAYERS = {
    # layer: what it may import of this package beside itself
    "core": set(),
    "drivers": {"core"},
    "reports": {"core"},
    "ros": {"core"},
    "emulation": {"core", "drivers"},
    "adapters": {"core", "drivers", "emulation", "reports", "ros"},
    "nodes": {"core", "drivers", "emulation", "reports", "ros", "adapters", "cli"},
}


def imported_modules(path):
    """Full names of everything a file imports, imports inside functions included."""
    package = path.relative_to(ROOT.parent).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
            module = base if node.level else node.module
            # `from sysid_ros import x` may import a module.
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def is_message_package(name):
    return name.endswith(("_msgs", "_srvs", "_interfaces"))


def files_of(layer):
    files = sorted((ROOT / layer).rglob("*.py"))
    assert files
    return files


@pytest.mark.parametrize("path", files_of("core"), ids=lambda path: str(path.relative_to(ROOT)))
def test_core_imports_no_ros_no_simulator_no_driver(path):
    for name in imported_modules(path):
        top = name.split(".")[0]
        assert top not in NOT_IN_CORE, f"{path} imports {name}"
        assert not is_message_package(top), f"{path} imports {name}"


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_import_only_what_lies_below(layer):
    allowed = LAYERS[layer] | {layer}
    for path in files_of(layer):
        for name in imported_modules(path):
            parts = name.split(".")
            if parts[0] == "sysid_ros" and len(parts) > 1:
                assert parts[1] in allowed, f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("layer", ["drivers", "reports"])
def test_drivers_and_reports_know_no_ros(layer):
    for path in files_of(layer):
        for name in imported_modules(path):
            top = name.split(".")[0]
            assert top not in ROS, f"{path.relative_to(ROOT)} imports {name}"
            assert not is_message_package(top), f"{path.relative_to(ROOT)} imports {name}"


def test_the_walk_sees_every_kind_of_import(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path / "sysid_ros")
    folder = tmp_path / "sysid_ros" / "core" / "model"
    folder.mkdir(parents=True)
    path = folder / "bad.py"
    inner = "def f():\n    from mujoco import B\n"
    path.write_text("import rclpy.node as n\nfrom . import box\nfrom ..errors import A\n" + inner)
    assert imported_modules(path) == {
        "rclpy.node", "sysid_ros.core.model.box", "sysid_ros.core.errors.A", "mujoco.B"
    }  # fmt: skip


def test_importing_the_core_loads_nothing_of_ros():
    """Also what the core's own dependencies load counts."""
    modules = [".".join(path.relative_to(ROOT.parent).with_suffix("").parts) for path in files_of("core")]
    modules = [name.removesuffix(".__init__") for name in modules]
    code = (
        f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\n"
        f"print(sorted(set(m.split('.')[0] for m in sys.modules) & {NOT_IN_CORE!r}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent, check=True)
    assert result.stdout.strip() == "[]"
