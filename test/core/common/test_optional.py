"""Packages that only pip has: all nodes can be imported without them, and what needs one says so."""

import subprocess
import sys

import pytest

from sysid_ros.core.common.optional import PackageNotInstalled, optional_module, require_module
from sysid_ros.processes import EMULATED, IDENTIFY, SPACE

OPTIONAL = ("casadi", "mcap", "mcap_ros2", "mujoco", "rosbags")


@pytest.mark.parametrize("name", OPTIONAL)
def test_the_first_use_says_what_is_missing_and_how_to_get_it(monkeypatch, name):
    require_module(name)
    monkeypatch.setitem(sys.modules, name, None)
    module = optional_module(name)
    with pytest.raises(PackageNotInstalled, match=f"package {name} is not installed, .* pip install {name[:4]}"):
        module.anything  # noqa: B018
    with pytest.raises(PackageNotInstalled):
        require_module(name)


def test_a_package_that_lacks_another_one_is_not_called_missing(monkeypatch, tmp_path):
    (tmp_path / "mujoco.py").write_text("import surely_nowhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mujoco", raising=False)
    with pytest.raises(ModuleNotFoundError, match="surely_nowhere"):
        optional_module("mujoco")


@pytest.mark.slow
def test_every_node_can_be_imported_without_them():
    modules = [process.module for process in (*IDENTIFY, *EMULATED, *SPACE)]
    code = f"import sys, importlib\nfor name in {OPTIONAL}: sys.modules[name] = None\n"
    code += f"for name in {modules}: importlib.import_module(name)\n"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_simulated_arm_says_that_mujoco_is_missing(monkeypatch):
    from sysid_ros.core.model.loader import load_robot
    from sysid_ros.drivers.mujoco import simulation

    monkeypatch.setitem(sys.modules, "mujoco", None)
    monkeypatch.setattr(simulation, "mujoco", optional_module("mujoco"))
    robot = load_robot("kinova_gen3")
    with pytest.raises(PackageNotInstalled, match="which is needed for simulated arms"):
        simulation.build_mujoco_model(robot, robot.theta_nominal, None, 1e-3)
