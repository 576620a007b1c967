"""Keeps every test on this machine, and says which tests need processes or real time."""

import gc
import importlib.util
import os
import random
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from sysid_ros.ros.environment import choose_domain_id, loopback_environment

ROOT = Path(__file__).parent

# Without a marker of its own a test gets the first one whose pattern matches its file. "pure" ends the search.
MARKERS = {
    "test/nodes/test_driver_choice.py": "pure",
    "test/nodes/test_identification_arm.py": "pure",
    "test/nodes/test_identify_arm_goal.py": "pure",
    "test/nodes/test_node_parameters.py": "pure",
    "test/nodes/test_nodes_page.py": "pure",
    "test/nodes/test_plan_cache.py": "pure",
    "test/nodes/test_same_decisions.py": "pure",
    "test/nodes/test_scene_store.py": "pure",
    "test/nodes/test_estimator_*": "processes",
    "test/nodes/test_identifiability_*": "processes",
    "test/nodes/test_identification_goal.py": "processes",
    "test/nodes/test_identify_client.py": "processes",
    "test/nodes/test_monitor_node.py": "processes",
    "test/nodes/test_node_start.py": "processes",
    "test/nodes/test_planner_*": "processes",
    "test/nodes/*": "realtime",
    "test/reports/test_apply.py": "processes",
    "test/test_processes.py": "pure",
    "test/space/test_free_flyer_nodes.py": "realtime",
    "test/test_suite.py": "processes",
    "test/emulators/relays/*": "processes",
    "test/drivers/test_loop_process.py": "realtime",
    "test/drivers/*/test_*_process.py": "realtime",
    "test/drivers/kinova_kortex/test_kortex_arm.py": "processes",
    "test/drivers/kinova_kortex/test_kortex_faults.py": "processes",
    "test/drivers/kinova_kortex/test_kortex_identification.py": "processes",
    "test/drivers/kuka_fri/test_fri_arm.py": "processes",
    "test/drivers/kuka_fri/test_fri_faults.py": "processes",
    "test/drivers/kuka_fri/test_fri_identification.py": "processes",
    "test/drivers/ros2_control/test_lbr_messages.py": "processes",
    "test/ros/test_alive.py": "processes",
    "test/ros/test_clock_steps.py": "processes",
    "test/ros/test_environment.py": "processes",
    "test/ros/test_inbox.py": "processes",
    "test/ros/test_node.py": "processes",
    "test/ros/test_parameters.py": "processes",
    "test/ros/test_repeats.py": "processes",
    "test/ros/test_talk.py": "processes",
    "test/ros/test_waiting.py": "processes",
}

WAITING = ("processes", "realtime")

WORKER_DIED = pytest.StashKey[bool]()

ORDER = ("realtime", "processes", "slow")
"""Files with such tests come first, in this order; see :func:`pytest_collection_modifyitems`."""


def _choose_domain():
    """Return a free ROS domain that no other worker of this test run can choose."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    generator = random.SystemRandom()
    while (domain := choose_domain_id(generator)) % workers != worker:
        pass
    return domain


for _name, _value in {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}.items():
    os.environ.setdefault(_name, _value)
os.environ.update(loopback_environment(_choose_domain()))


def pytest_addoption(parser):
    """Add what `make test` runs failed tests once more with."""
    words = "only files in which a test failed last time, whole: the tests of a suite of processes rest on each other"
    parser.addoption("--failed-files", action="store_true", help=words)
    words = "only tests that compute, or only those with processes or in real time; files without any are not imported"
    parser.addoption("--kind", choices=("pure", "processes"), help=words)


def pytest_ignore_collect(collection_path, config):
    """Pass over files without a test of the kind that is asked for: to import all of them takes each worker seconds."""
    kind = config.getoption("--kind")
    if kind is None or not collection_path.match("test_*.py"):
        return None
    path, text = collection_path.relative_to(ROOT).as_posix(), collection_path.read_text(encoding="utf-8")
    is_pure = _marker_of(path) == "pure"
    if kind == "pure":
        return True if not is_pure else None
    return True if is_pure and not any(f"mark.{name}" in text for name in WAITING) else None


def pytest_collection_modifyitems(config, items):
    """Mark the tests that need processes or real time, and put files first that wait, then those that compute long.

    Workers get whole files in this order: what is left at the end is short, so all workers end together.
    """
    if config.getoption("--failed-files"):
        failed = {name.partition("::")[0] for name in config.cache.get("cache/lastfailed", {})}
        items[:] = [item for item in items if item.nodeid.partition("::")[0] in failed]
    for item in items:
        marker = _marker_of(item.path.relative_to(ROOT).as_posix())
        if marker != "pure" and not _is_marked(item):
            item.add_marker(marker)
    if kind := config.getoption("--kind"):
        others = [item for item in items if _is_marked(item) != (kind == "processes")]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if _is_marked(item) == (kind == "processes")]
    ranks = {}
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        ranks[path] = min(ranks.get(path, len(ORDER)), *(_rank(item, name) for name in ORDER))
    items.sort(key=lambda item: ranks[item.path.relative_to(ROOT).as_posix()])


def _rank(item, name):
    return ORDER.index(name) if item.get_closest_marker(name) else len(ORDER)


def _is_marked(item):
    return any(item.get_closest_marker(name) for name in WAITING)


def _marker_of(path):
    return next((marker for pattern, marker in MARKERS.items() if fnmatch(path, pattern)), "pure")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """Remember a worker that died: what it had still to run is reported nowhere."""
    if error:
        node.config.stash[WORKER_DIED] = True


def pytest_sessionfinish(session):
    """Tell a run that is not whole apart from failed tests, which `make test` runs once more."""
    if session.config.stash.get(WORKER_DIED, False):
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


@pytest.fixture(autouse=True)
def _no_real_time_priority():
    """Refuse tests that leave their worker as the torque loop wants it: ahead of all others, keeping garbage."""
    yield
    is_ordinary = not sys.platform.startswith("linux") or os.sched_getscheduler(0) == os.SCHED_OTHER
    assert is_ordinary and gc.isenabled(), "this test called request_scheduling() in the process of the tests"


@pytest.fixture(autouse=True)
def _no_ros_in_pure_tests(request, monkeypatch):
    """Refuse to open a ROS context in a test that is not marked: `make check` runs it beside others."""
    if _is_marked(request.node):
        return
    try:
        import rclpy
    except ImportError:
        return

    def refuse(*_, **__):
        pytest.fail("this test opens a ROS context: mark it `processes` or `realtime`, or add its file to conftest.py")

    monkeypatch.setattr(rclpy, "init", refuse)


@pytest.fixture(scope="session")
def make_nodes():
    """Load the script that writes docs/nodes.md."""
    spec = importlib.util.spec_from_file_location("make_nodes", ROOT / "docs" / "make_nodes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
