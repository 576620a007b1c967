"""The policy for SROS2 is that of the code and gives nobody more than the suite needs; without keys nothing starts."""

import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from policy_rules import PATH, read_policy

from sysid_ros.processes import EMULATED, ENCLAVE_VARIABLE, IDENTIFY, SPACE, resolve, security_variables

ROOT = Path(__file__).parents[2]
SECURE = {"ROS_SECURITY_ENABLE": "true", "ROS_SECURITY_STRATEGY": "Enforce"}


def test_it_is_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    made = runpy.run_path(str(ROOT / "docs" / "make_policy.py"))["build_policy"]()
    assert PATH.read_text() == made, "run: python docs/make_policy.py"


def test_every_process_has_an_identity_of_its_own():
    names = {process.executable for process in (*IDENTIFY, *EMULATED, *SPACE)}
    assert set(read_policy()) == names | {"operator", "robot_state_publisher"}
    for started in resolve({"robot_name": "left"}):
        name = started.process.executable
        assert security_variables(name, started.namespace, {}) == {ENCLAVE_VARIABLE: f"/sysid_ros/left/{name}"}
    assert security_variables("monitor", "", {ENCLAVE_VARIABLE: "/mine"}) == {}


@pytest.mark.parametrize(
    ("right", "name", "who"),
    [
        ("request", "/arm_driver/execute", {"identification"}),
        ("request", "/arm_driver/set_model", {"identification"}),
        ("request", "/estimator/reset", {"identification"}),
        ("request", "/safe_planner/certify", {"identification"}),
        ("request", "/arm_driver/brake", {"identification", "operator"}),
        ("publish", "/safe_planner/plan", {"safe_planner"}),
        ("publish", "/safe_planner/scene", {"safe_planner"}),
        ("publish", "/estimator/estimate", {"estimator"}),
        ("publish", "/arm_driver/samples", {"arm_driver"}),
        ("publish", "/arm_driver/status", {"arm_driver"}),
        ("publish", "/arm_driver/heartbeat", {"identification"}),
        ("call", "/identification/identify", {"operator"}),
        ("call", "/identification/move_to", {"operator"}),
    ],
)
def test_who_may_do_what_an_arm_depends_on(right, name, who):
    rules = read_policy()
    assert {node for node, names in rules.items() if name in names[right]} == who


@pytest.mark.processes
def test_a_node_without_a_usable_identity_refuses_to_start(tmp_path):
    """Where the middleware has no security, as in the wheels, and where the keys are missing: never without."""
    (tmp_path / "enclaves" / "sysid_ros" / "monitor").mkdir(parents=True)
    for enclave in ("monitor", "nobody"):
        result = start_node(tmp_path, enclave, seconds=30)
        assert result.returncode == 2 and "cannot start with SROS2" in result.stderr, result.stderr


@pytest.mark.processes
def test_a_node_starts_with_the_keys_of_the_policy(tmp_path):
    if importlib.util.find_spec("sros2") is None:
        pytest.skip("sros2, which makes the keys, comes with an installed ROS 2, not as a wheel")
    keystore = tmp_path / "keystore"
    command = ["make", "-s", "keystore", f"KEYSTORE={keystore}"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    result = start_node(keystore, "monitor", seconds=10)
    if "This Fast DDS version doesn't have the security libraries" in result.stderr:
        pytest.skip("the middleware is built without security, as the wheels are")
    assert result.returncode == 0 and "ready" in result.stderr, result.stderr


def start_node(keystore, enclave, seconds):
    """Runs the monitor with an identity; it is told to end after a while."""
    identity = {"ROS_SECURITY_KEYSTORE": str(keystore), ENCLAVE_VARIABLE: f"/sysid_ros/{enclave}"}
    until = ["timeout", "--preserve-status", "-s", "INT", str(seconds)]
    command = [*until, sys.executable, "-m", "sysid_ros.nodes.monitor"]
    return subprocess.run(command, env={**os.environ, **SECURE, **identity}, capture_output=True, text=True)
