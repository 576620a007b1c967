"""The package in a few calls, and the examples, which run as they are."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest

import sysid_ros as sr
from sysid_ros.core.common.errors import SysidError

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SAYS = {
    "1_arrays.py": ["certainly between", "Contains the true parameters if"],
    "2_recording.py": ["usable: True, guaranteed: True, from log.npz"],
    "3_any_arm.py": ["assumed: friction is unknown", "with inertias known to 1 %: mass between"],
    "4_alarm.py": ["usable: False", "the data agree if the sign of the efforts of all joints were turned round"],
    "5_export.py": ["payload_franka.json", "payload_information:"],
    "6_online_model.py": ["samples, R^2 at least", "gate closed", "gate open"],
}


def test_every_example_is_tested():
    # The node is tested with the suite it needs: test/nodes/test_identification_node.py.
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*SAYS, "simulate.py", "pick_and_place.py"}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAYS)
def test_example(name):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, timeout=280, env=_environment()
    )
    assert done.returncode == 0, done.stderr
    for words in SAYS[name]:
        assert words in done.stdout, done.stdout


def _environment():
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_the_package_has_a_version_and_few_names():
    assert sr.__version__ == version("sysid_ros")
    assert set(dir(sr)) == set(sr.__all__) >= {"identify", "load_robot", "write_results", "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'identity'; it has .*identify"):
        _ = sr.identity
    for name in sr.__all__:
        assert getattr(sr, name) is not None


def test_importing_it_loads_nothing():
    code = "import sys, sysid_ros; print(sorted(m for m in sys.modules if m in ('numpy', 'pinocchio', 'rclpy')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment())
    assert done.stdout.strip() == "[]"


def test_identifying_needs_neither_ros_nor_a_simulator():
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('rclpy', 'mujoco', 'sysid_msgs', 'trimesh')));"
        "import sysid_ros as sr; sr.identify, sr.write_results, sr.load_robot('ur5e')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=_environment())


@pytest.fixture(scope="module")
def log():
    robot = sr.load_robot("xarm7")
    t = np.arange(200) / 500.0
    q = robot.home + 0.1 * np.sin(np.outer(t, np.arange(1, 8)))
    data = robot.pin_model.createData()
    tau = np.array([pin.computeGeneralizedGravity(robot.pin_model, data, row) for row in q]) + 0.1
    return {"t": t, "q": q, "v": np.gradient(q, t, axis=0), "tau": tau}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tau": None}, "the array 'tau' is missing; expected t "),
        ({"torque": np.zeros(3)}, "the array 'torque' is unknown; expected t, q, tau and optionally v"),
        ({"q": np.zeros((200, 6))}, r"the shape of 'q' is \(200, 6\); expected \(200, 7\)"),
        ({"t": np.full(200, np.nan)}, "t in sample 0 is nan; expected a finite number"),
        ({"q": np.full((200, 7), 100.0)}, "they may be in degrees"),
        ({"t": np.zeros(200)}, "not rising in 199 of 200 samples"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused(log, change, message):
    data = {name: array for name, array in {**log, **change}.items() if array is not None}
    with pytest.raises(SysidError, match=message):
        sr.identify(data, "xarm7")


def test_integers_are_nanoseconds_and_others_are_seconds(log):
    from sysid_ros.library.identify import recording_from_arrays

    robot = sr.load_robot("xarm7")
    seconds = recording_from_arrays(log, robot)
    exact = recording_from_arrays({**log, "t": np.rint(log["t"] * 1e9).astype(np.int64)}, robot)
    assert np.array_equal(seconds.samples.stamps, exact.samples.stamps) and seconds.source == "arrays"
    without = recording_from_arrays({name: log[name] for name in ("t", "q", "tau")}, robot)
    assert without.velocity_error is not None and without.caveats
