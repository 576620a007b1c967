"""Tests with tools that come with an installed ROS alone: launch, launch_testing, ament's linters."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON_FILES = [ROOT / name for name in ("sysid_ros", "launch", "examples", "setup.py")]


def require(*modules):
    """Our folder of launch files looks like a module of that name, so nothing is imported to find out."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: it comes with an installed ROS 2, not as a wheel")


@pytest.mark.realtime
def test_the_launch_file_starts_and_ends_every_node(tmp_path):
    require("launch_ros", "launch_testing")
    result = subprocess.run(
        [sys.executable, "-m", "launch_testing.launch_test", str(ROOT / "test" / "launch_identify.py")],
        cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]


def test_ament_flake8():
    """With the length of lines and the exceptions of pyproject.toml."""
    require("ament_flake8")
    from ament_flake8.main import main_with_errors

    count, errors = main_with_errors([
        "--config", str(ROOT / "test" / "ament_flake8.ini"), *map(str, PYTHON_FILES)
    ])  # fmt: skip
    assert count == 0, "\n".join(errors)
