"""What conftest.py says about tests that need processes or real time."""

from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "test").rglob("test_*.py"))


@pytest.fixture
def conftest(request):
    return request.config.pluginmanager.get_plugin(str(ROOT / "conftest.py"))


def test_every_pattern_is_about_a_file(conftest):
    first = {path: next((p for p in conftest.MARKERS if fnmatch(path, p)), None) for path in FILES}
    assert set(conftest.MARKERS) - set(first.values()) == set()
    assert set(conftest.MARKERS.values()) == {"pure", "processes", "realtime"}


@pytest.mark.parametrize("worker", range(3))
def test_workers_choose_different_domains(conftest, monkeypatch, worker):
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{worker}")
    assert {conftest._choose_domain() % 3 for _ in range(5)} == {worker}


def test_a_test_without_a_marker_opens_no_ros_context():
    rclpy = pytest.importorskip("rclpy")
    with pytest.raises(pytest.fail.Exception, match="mark it `processes` or `realtime`"):
        rclpy.init()


@pytest.mark.processes
def test_a_test_with_a_marker_does():
    rclpy = pytest.importorskip("rclpy")
    rclpy.init()
    rclpy.shutdown()
