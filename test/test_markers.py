"""What conftest.py says about tests that need processes or real time."""

from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

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


def test_every_folder_has_quick_tests(request, conftest):
    """`make check` looks into every room."""
    items = request.session.items
    if len(items) < 1000:
        pytest.skip("only some of the tests are run")
    names = (*conftest.ORDER, "skipif")
    quick = {item.path.parent for item in items if not any(map(item.get_closest_marker, names))}
    folders = {(ROOT / path).parent for path in FILES}
    needs_processes = {ROOT / "test" / "emulators" / "relays"}
    assert folders - quick == needs_processes


def test_only_files_in_which_a_test_failed_are_run_again(conftest):
    items = [
        SimpleNamespace(
            nodeid=f"{name}::{test}", path=ROOT / name, get_closest_marker=lambda name: None, add_marker=print
        )
        for name, test in [("test/a.py", "test_1"), ("test/a.py", "test_2[x::y]"), ("test/b.py", "test_1")]
    ]
    failed = {"test/a.py::test_2[x::y]": True, "test/gone.py::test_1": True}
    config = SimpleNamespace(
        getoption={"--failed-files": True}.get, cache=SimpleNamespace(get=lambda name, other: failed)
    )
    conftest.pytest_collection_modifyitems(config, items)
    assert [item.nodeid for item in items] == ["test/a.py::test_1", "test/a.py::test_2[x::y]"]


def test_no_test_is_lost_between_the_kinds(conftest):
    """A file that is passed over has no test of its kind, by its pattern or by a marker of its own."""
    passed_over = {
        kind: {
            path for path in FILES
            if conftest.pytest_ignore_collect(ROOT / path, SimpleNamespace(getoption=lambda name, kind=kind: kind))
        }
        for kind in ("pure", "processes")
    }  # fmt: skip
    assert not passed_over["pure"] & passed_over["processes"]
    assert "test/nodes/test_identification_node.py" in passed_over["pure"]
    assert "test/core/estimation/test_calibration.py" in passed_over["processes"]
    both = set(FILES) - passed_over["pure"] - passed_over["processes"]
    assert Path(__file__).relative_to(ROOT).as_posix() in both


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
