"""Dependencies point one way: nodes -> adapters -> {ros, drivers, reports} -> core; wings are imported by nothing."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import MappingProxyType

import pytest

ROOT = Path(__file__).parents[1] / "sysid_ros"
ROS = {"rclpy", "sysid_msgs", "rcl_interfaces", "launch", "launch_ros", "ament_index_python"}
NOT_IN_CORE = ROS | {"mujoco", "mcap", "mcap_ros2"}
LAYERS = {
    # layer: what it may import of this package beside itself
    "core": set(),
    "drivers": {"core"},
    "reports": {"core"},
    "library": {"core", "reports"},
    "view": {"core"},
    "ros": {"core"},
    "adapters": {"core", "drivers", "reports", "ros"},
    "nodes": {"core", "drivers", "reports", "ros", "view", "adapters", "cli"},
    "space": {"core", "drivers", "reports", "ros", "adapters", "cli"},
    "emulators": {"core", "drivers", "ros"},
    "papers": {"core", "drivers", "space", "emulators", "executor"},
}
WINGS = {"space", "emulators", "papers"}
"""Beside the product: only commands and processes, the front door, may name what is in them."""


@cache
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
    return frozenset(found)


def is_message_package(name):
    return name.endswith(("_msgs", "_srvs", "_interfaces"))


def files_of(layer):
    files = sorted((ROOT / layer).rglob("*.py"))
    assert files
    return files


PURE = [*files_of("core"), *files_of("space/core"), *files_of("papers/baselines")]


@pytest.mark.parametrize("path", PURE, ids=lambda path: str(path.relative_to(ROOT)))
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


def test_only_commands_import_a_wing():
    """Also no file of the top, such as the table of processes, which names modules of the wings as texts."""
    for path in sorted(ROOT.rglob("*.py")):
        home = path.relative_to(ROOT).parts[0]
        if home not in WINGS | {"cli"}:
            tops = {name.split(".")[1] for name in imported_modules(path) if name.startswith("sysid_ros.")}
            assert not tops & WINGS, f"{path.relative_to(ROOT)} imports {sorted(tops & WINGS)}"


@pytest.mark.parametrize("folder", ["core", "adapters"])
def test_the_wing_of_space_has_the_layers_of_the_product(folder):
    below = {"core": set(), "adapters": {"core", "simulation", "report"}}
    for path in files_of(f"space/{folder}"):
        for name in imported_modules(path):
            if name.startswith("sysid_ros.space."):
                assert name.split(".")[2] in below[folder] | {folder}, f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("layer", ["drivers", "reports", "view", "papers"])
def test_layers_without_ros_know_no_ros(layer):
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


@pytest.mark.parametrize("path", sorted(ROOT.rglob("nodes/[!_]*.py")), ids=lambda path: path.stem)
def test_nodes_holds_entry_points_only(path):
    body = ast.parse(path.read_text()).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    functions |= {getattr(one, "id", "") for node in body if isinstance(node, ast.Assign) for one in node.targets}
    assert "main" in functions, f"{path.name} is no executable; put what nodes share into ros/ or adapters/"


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


def imported_files(path, modules):
    """The files of this package that a file imports, by name of the module."""
    names = imported_modules(path)
    packages = {one.rpartition(".")[0] for one in names}
    return frozenset(name for name in modules if name in names or name in packages)


def find_circles(graph):
    """Groups of nodes that reach each other."""
    reached = {}
    for start in graph:
        seen, waiting = set(), list(graph[start])
        while waiting:
            if (node := waiting.pop()) not in seen:
                seen.add(node)
                waiting += graph[node]
        reached[start] = seen
    return {frozenset(b for b in graph if a in reached[b] and b in reached[a]) for a in graph if a in reached[a]}


@cache
def import_graph():
    paths = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path for path in ROOT.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    return MappingProxyType({name: imported_files(path, modules) - {name} for name, path in modules.items()})


def test_no_file_imports_itself_by_way_of_others():
    """Also not for types alone."""
    assert find_circles(import_graph()) == set()


def test_a_circle_is_found():
    assert find_circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {frozenset("abc")}


def test_the_proof_imports_nothing_of_planning_or_excitation():
    """Neither directly nor by way of others."""
    graph = import_graph()
    waiting = [name for name in graph if name.startswith("sysid_ros.core.certification")]
    seen = set()
    while waiting:
        if (name := waiting.pop()) not in seen:
            seen.add(name)
            waiting += graph[name]
    searching = ("sysid_ros.core.planning", "sysid_ros.core.excitation", "sysid_ros.core.procedure")
    assert {name for name in seen if name.startswith(searching)} == set()
    assert len(seen) > 20


SHARED = {"assumptions", "plan", "stop_model", "held_feedback"}
"""Modules of the proof that a search may use: records, settings, how limits are broken, errors in stops and holds."""
CALLERS = {
    "sysid_ros.core.planning.planner",
    "sysid_ros.core.planning.candidates",
    "sysid_ros.core.excitation.whole_arm",
}
"""Modules of planning that have candidates proven."""


def test_planners_share_only_data_and_the_stop_model_with_the_proof():
    for name, imported in import_graph().items():
        if name.startswith(("sysid_ros.core.planning", "sysid_ros.core.excitation")):
            allowed = SHARED | ({"verify"} if name in CALLERS else set())
            taken = {one.rpartition(".")[2] for one in imported if one.startswith("sysid_ros.core.certification.")}
            assert taken <= allowed, f"{name} imports {sorted(taken - allowed)}"


def test_no_package_imports_itself_by_way_of_others():
    """A package's own module, which collects names, counts apart from the modules in it."""
    graph = import_graph()
    own = {path.parent for path in ROOT.rglob("__init__.py")}
    folders = {".".join(folder.relative_to(ROOT.parent).parts) for folder in own}

    def package(name):
        return f"{name}.__init__" if name in folders else name.rpartition(".")[0]

    packages = {package(name): set() for name in graph}
    for name, imported in graph.items():
        packages[package(name)] |= {package(one) for one in imported} - {package(name)}
    assert find_circles(packages) == set()
