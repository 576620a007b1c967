"""Packages that only pip has: all nodes can be imported without them, and what needs one says so."""

import subprocess
import sys

import pytest

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.common.optional import optional_module, require_module
from sysid_ros.processes import EMULATED, IDENTIFY, SPACE

OPTIONAL = ("casadi", "mcap", "mcap_ros2", "mujoco", "rosbags")


@pytest.mark.parametrize("name", OPTIONAL)
def test_the_first_use_says_what_is_missing_and_how_to_get_it(monkeypatch, name):
    require_module(name)
    monkeypatch.setitem(sys.modules, name, None)
    module = optional_module(name)
    with pytest.raises(SysidError, match=f"package {name} is not installed, .* pip install {name[:4]}"):
        module.anything  # noqa: B018
    with pytest.raises(SysidError):
        require_module(name)


def test_a_package_that_lacks_another_one_is_not_called_missing(monkeypatch, tmp_path):
    (tmp_path / "mujoco.py").write_text("import surely_nowhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mujoco", raising=False)
    module = optional_module("mujoco")
    with pytest.raises(ModuleNotFoundError, match="surely_nowhere"):
        module.anything  # noqa: B018


@pytest.mark.slow
def test_every_node_can_be_imported_without_them_and_starts_without_loading_them():
    modules = [process.module for process in (*IDENTIFY, *EMULATED, *SPACE)]
    imports = f"import sys, importlib\nfor name in {modules}: importlib.import_module(name)\n"
    for before, after in [
        (f"import sys\nfor name in {OPTIONAL}: sys.modules[name] = None\n", ""),
        ("", f"assert not sys.modules.keys() & set({OPTIONAL})\n"),
    ]:
        subprocess.run([sys.executable, "-c", before + imports + after], check=True, timeout=120)


def test_a_module_is_imported_with_its_first_use(monkeypatch, tmp_path):
    (tmp_path / "rosbags.py").write_text("import sys\nsys.rosbags_loaded = True\n_private, value = 1, 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "rosbags", raising=False)
    monkeypatch.setattr(sys, "rosbags_loaded", False, raising=False)
    module = optional_module("rosbags")
    assert not sys.rosbags_loaded
    assert (module.value, module._private) == (2, 1) and sys.rosbags_loaded
    with pytest.raises(AttributeError, match="nothing_of_it"):
        module.nothing_of_it  # noqa: B018


def test_a_simulated_arm_says_that_mujoco_is_missing(monkeypatch):
    from sysid_ros.core.model.loader import load_robot
    from sysid_ros.drivers.mujoco import simulation

    monkeypatch.setitem(sys.modules, "mujoco", None)
    monkeypatch.setattr(simulation, "mujoco", optional_module("mujoco"))
    robot = load_robot("kinova_gen3")
    with pytest.raises(SysidError, match="which is needed for simulated arms"):
        simulation.build_mujoco_model(robot, robot.theta_nominal, None, 1e-3)
