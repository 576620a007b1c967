"""The option ``--view``: what it refuses before any work, and that it shows the recording that was identified."""

import socket
import sys

import numpy as np
import pytest

from sysid_ros.cli import main as door
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.offline import free_port, open_replay
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.view.address import LOOPBACK

pytestmark = pytest.mark.processes


def test_without_viser_nothing_is_started(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "viser", None)
    assert door.main(["identify", "--view", "--results", str(tmp_path / "results")]) == ExitStatus.BAD_INPUT
    assert "pip install 'sysid_ros[view]'" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()
    assert door.main(["offline", "no_such.csv", "--model", "ur5e", "--view"]) == ExitStatus.BAD_INPUT
    assert "viser" in capsys.readouterr().err
    with pytest.raises(SysidError, match="viser"):
        free_port("8080")


@pytest.mark.parametrize("text", ["80", "x", "70000", "-1"])
def test_ports_that_are_none_are_refused(text):
    pytest.importorskip("viser")
    with pytest.raises(ParameterOutOfRange, match="--view.*a port from 1024 to 65535"):
        free_port(text)


def test_a_port_that_is_taken_is_passed_over():
    pytest.importorskip("viser")
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port < free_port(str(port)) <= port + 100


def test_several_recordings_and_other_bodies_have_no_view(capsys):
    words = ["--model", "ur5e", "--view", "--output", "x"]
    assert door.main(["offline", "a.csv", "b.csv", *words]) == ExitStatus.BAD_INPUT
    assert "no --view" in capsys.readouterr().err


def test_a_result_is_replayed_from_its_samples(tmp_path):
    """What is shown at the end is the estimate, and in between what was known by then."""
    pytest.importorskip("viser")
    import sysid_ros as sr

    robot = sr.load_robot("xarm7")
    t = np.arange(400) / 500.0
    q = robot.home + 0.3 * np.sin(np.outer(t, np.arange(1, 8)))
    v = 0.3 * np.arange(1, 8) * np.cos(np.outer(t, np.arange(1, 8)))
    weight = ArmDynamics(robot, robot.theta_nominal, np.zeros(10))
    result = sr.identify({"t": t, "q": q, "v": v, "tau": np.array([weight.gravity(one) for one in q])}, robot)
    replay = open_replay(result, tmp_path / "none.npz", "xarm7", "8200")
    try:
        assert replay.view.url.startswith("http://127.0.0.1:")
        replay.show(float(result.samples.seconds[-1]))
        words = replay.view._words.content
        assert ("Alarm" in words) == (not result.estimate.is_consistent)
    finally:
        replay.view.close()
