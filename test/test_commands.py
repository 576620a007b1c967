"""The command ``sysid``: every command is there and named so; what is unknown is refused before anything is loaded."""

import importlib
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from sysid_ros.cli import main as door
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.main import COMMANDS, EMULATORS
from sysid_ros.core.model.loader import load_robot
from sysid_ros.reports.recordings.files import read_recording

ROOT = Path(__file__).parents[1]
LEAVES = {name: command for name, command in COMMANDS.items() if command.module} | {
    f"emulate {name}": command for name, command in EMULATORS.items()
}


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_names_itself_and_has_help(name, capsys):
    module = importlib.import_module(LEAVES[name].module)
    assert module.build_parser().prog == f"sysid {name}"
    with pytest.raises(SystemExit) as ended:
        door.main([*name.split(), "--help"])
    assert ended.value.code == 0 and f"usage: sysid {name}" in capsys.readouterr().out


def test_help_lists_commands_and_exit_status(capsys):
    assert door.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS) and "4 nothing contradicts" in text
    assert door.main([]) == 2 and door.main(["emulate", "--help"]) == 0
    assert "a KUKA LBR controller" in capsys.readouterr().out
    assert door.main(["--version"]) == 0
    assert capsys.readouterr().out == f"sysid_ros {version('sysid_ros')}\n"


def test_unknown_commands_are_refused(capsys):
    assert door.main(["ofline"]) == 2
    assert "error: 'ofline' is no command of sysid; it has identify, offline, import" in capsys.readouterr().err
    assert door.main(["emulate", "ur"]) == 2
    assert "'ur' is no command of sysid emulate; it has fri, kortex, ros2_control" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "gen4"], "robot 'gen4' is unknown; known are"),
        (["--payload", "anvil"], "anvil"),
        (["--trajectories", "-3"], "--trajectories is -3; allowed: 0 or more"),
        (["--max-motion-time", "nan"], "--max-motion-time [s] is nan; allowed: 0 or more"),
        (["--target-mass-width", "-1"], "--target-mass-width [kg] is -1.0; allowed: 0 or more"),
    ],
)
def test_what_some_process_would_refuse_is_refused_before_any_starts(words, message, capfd, tmp_path, monkeypatch):
    def start(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", start)
    assert door.main(["identify", "--results", str(tmp_path / "results"), *words]) == ExitStatus.BAD_INPUT
    captured = capfd.readouterr()
    assert message in captured.err + captured.out and not (tmp_path / "results").exists()


def test_faults_of_the_program_are_told_in_a_sentence(monkeypatch, capsys):
    def fail(words):
        raise ZeroDivisionError("by hand")

    monkeypatch.setattr(door, "_run", fail)
    monkeypatch.delenv(door.TRACEBACK, raising=False)
    assert door.main(["offline"]) == ExitStatus.FAULT
    told = capsys.readouterr().err
    assert (
        "a fault of sysid_ros itself, ZeroDivisionError in test_commands.py, line" in told and "Traceback" not in told
    )
    monkeypatch.setenv(door.TRACEBACK, "1")
    with pytest.raises(ZeroDivisionError):
        door.main(["offline"])


def test_a_missing_extra_is_named(monkeypatch, capsys):
    def need(words):
        raise ModuleNotFoundError("No module named 'mujoco'", name="mujoco")

    monkeypatch.setattr(door, "_run", need)
    assert door.main(["identify"]) == ExitStatus.BAD_INPUT
    assert "install it with: pip install 'sysid_ros[sim]'" in capsys.readouterr().err


def test_nothing_is_loaded_for_help():
    code = "import sys; from sysid_ros.cli.main import main; main(['--help']); print(sorted(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "pinocchio" not in told and "numpy" not in told


def test_a_recording_becomes_a_table_that_reads_the_same(tmp_path, capsys):
    robot, rng = load_robot("kinova_gen3_2f85"), np.random.default_rng(1)
    t = 10**18 + 1_000_000 * np.arange(200)
    q = robot.home + 0.1 * np.sin(np.outer(np.arange(200), 0.001 * np.arange(1, robot.n + 1)))
    names = list(reversed(robot.joint_names))
    tau = rng.normal(size=q.shape)
    source = tmp_path / "log.npz"
    units = "t=ns, q=deg, v=rad/s, tau=mNm"
    turned = {"q": np.degrees(q[:, ::-1]), "v": 0.0 * q, "tau": -1e3 * tau[:, ::-1]}
    np.savez(source, t=t, joints=names, units=units, effort_sign="-1", **turned)
    words = ["import", str(source), "--model", robot.name, "--output", str(tmp_path / "table.npz")]
    assert door.main(words) == 0
    text = capsys.readouterr().out
    assert "200 samples in 0.199 s, usually every 1 ms" in text
    before, after = (read_recording(tmp_path / name, robot).samples for name in ("log.npz", "table.npz"))
    for name in ("stamps", "q", "v", "tau"):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
    np.testing.assert_allclose(after.tau, tau, rtol=1e-12)
    assert door.main(words) == 2 and "the file is there already" in capsys.readouterr().err
    words[-1] = str(tmp_path / "table.csv")
    assert door.main(words) == 2 and "the ending is '.csv'; allowed: .npz" in capsys.readouterr().err
