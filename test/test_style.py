"""The whole project passes the linter with the rules of pyproject.toml."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_ruff_finds_nothing():
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed (requirements-test.txt)")
    result = subprocess.run(
        [ruff, "check", "--output-format", "concise", "."], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout


def test_the_linter_is_awake(tmp_path):
    """With an unused import and a line that is too long it finds two faults."""
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed (requirements-test.txt)")
    path = tmp_path / "bad.py"
    path.write_text('"""Docs."""\nimport os\n' + "x = " + " + ".join(["1"] * 60) + "\n")
    command = [ruff, "check", "--config", str(ROOT / "pyproject.toml"), "--output-format", "concise", str(path)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert "F401" in result.stdout
    assert "E501" in result.stdout
