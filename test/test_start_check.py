"""What is refused before a process starts, in a sentence that names what was given and what is allowed."""

import re
import shlex

import pytest

from sysid_ros.cli import main as door
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.suite import Suite
from sysid_ros.core.certification.possible import require_certifiable
from sysid_ros.core.common.errors import ModelError, SysidError
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot_files import available_robots
from sysid_ros.start_check import read_parameters

STARTED = 99


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Run a command line in an empty folder, up to the start of its first process; returns status and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Suite, "run", lambda self: STARTED)

    def run(line):
        status = door.main(shlex.split(line))
        return status, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("demo --model ur5e --mode emulated", "mode of ur5e 'emulated': expected mock, ros2_control or"),
        ("demo --payload 10", "payload '10': expected inside the payload prior 'held_object' of kinova_gen3_2f85"),
        ("demo --seed 99999999999", "--seed 99999999999: expected 0 to 2147483647"),
        ("identify --payload anvil", "anvil"),
        ("identify --trajectories -3", "--trajectories -3: expected 0 or more"),
        ("identify --max-motion-time nan", "--max-motion-time nan: expected 0 or more"),
        ("identify --target-mass-width -1", "--target-mass-width -1.0: expected 0 or more"),
        ("identify --mode hardware", "--robot-ip '': expected the address of the arm, with --mode hardware"),
        ("identify --mode mock --robot-ip 10.0.0.1", "there is no connection to kinova_gen3_2f85 with --mode mock"),
        ("identify --mode hardware --robot-ip 10.0.0.1 --fri-version 2.5", "--fri-version '2.5': expected nothing"),
        ("identify --mode hardware --robot-ip 10.0.0.300", "--robot-ip '10.0.0.300': expected the address"),
        ("identify --model kuka_lbr_med7 --mode emulated --fri-version 9", "parameter fri_version '9'"),
        ("identify --robot-name 'a b'", "--robot-name 'a b': expected letters, digits and _"),
        ("identify --max-motion-time 1e9", r"max_motion_time \[s\] 1000000000.0: expected above 0, at most 600"),
        ("identify --trajectories 1000", "trajectories .* 1000: expected from 0 to 100"),
        ("identify --nodes-only --trajectories 3", "--trajectories 3: expected nothing with --nodes-only"),
        ("identify --parameters-file none.yaml", "--parameters-file 'none.yaml'"),
        ("identify --mode ros2_control", "torque_command 'unset'"),
        ("calibrate run --model kinova_gen3 --serial ' '", "--serial ' ': expected the serial number"),
        ("calibrate run --model kinova_gen3 --serial 1 --com-tolerance 1", "--com-tolerance 1.0: expected nothing"),
        ("calibrate run --model kinova_gen3 --serial 1 --mode monitor_only", "--mode 'monitor_only': expected one"),
        ("calibrate run --model kinova_gen3 --serial 1 --motion-time 1", "motion_time .* 1.0: expected from 2"),
        ("calibrate run --model kinova_gen3 --serial 1 --weight -1", "invalid mass of a known load -1.0 kg"),
        ("space --speed 0", r"parameter speed \[-\] 0.0: expected .* from 0.01 to 50"),
        ("space --parts 1000", r"parts \[-\] 1000: expected from 1 to 20"),
        ("space --object hand", "frame 'hand': expected one of base"),
        ("space --recording x.mcap --speed 2", "--speed can only be given without --recording"),
        ("space --before x.mcap", "--before can only be given with --recording"),
        ("space --known x.yaml", "--known can only be given with --object"),
        ("emulate ros2_control --update-rate 0", "--update-rate 0.0: expected 50 to 1000"),
        ("emulate ros2_control --namespace 'a b'", "--namespace 'a b': expected letters"),
        ("emulate ros2_control --seconds nan", "--seconds nan: expected more than 0"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_before_anything_starts(run, tmp_path, line, said):
    status, shown = run(line)
    assert status == ExitStatus.BAD_INPUT
    assert shown.startswith(("error: ", "[ros2_control_emulator] ")) and re.search(said, shown), shown
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("line", ["demo", "identify", "identify --nodes-only", "calibrate run --serial 1"])
def test_an_arm_that_no_proof_can_move_is_refused_with_those_that_can_be(run, tmp_path, monkeypatch, line):
    monkeypatch.setattr("sysid_ros.start_check.available_robots", lambda: ("kinova_gen3_2f85", "xarm7"))
    status, shown = run(f"{line} --model ur5e")
    assert status == ExitStatus.BAD_INPUT and not list(tmp_path.iterdir())
    command = " ".join(word for word in line.split()[:2] if word.isalpha())
    assert "--model ur5e: no motion of 'ur5e' can be certified" in shown
    assert f"sysid {command} works with kinova_gen3_2f85. What this arm" in shown
    assert "sysid offline BAG --model ur5e" in shown


def test_what_others_move_needs_no_proof_and_a_real_arm_no_payload(run):
    for line in (
        "identify --model ur5e --mode monitor_only",
        "identify --nodes-only",
        "identify --model kuka_lbr_med7:elastic --mode hardware --robot-ip 10.0.0.1 --fri-version 2.5",
        "identify --model kinova_gen3:elastic --mode hardware --robot-ip gen3.local",
        "demo --model kinova_gen3_2f85:elastic",
        "demo --payload none",
        "space --object tool",
    ):
        assert run(line)[0] == STARTED, line


def test_arms_that_can_be_moved_are_those_whose_settings_say_enough():
    able = set()
    for name in available_robots():
        try:
            require_certifiable(load_robot(name))
            able.add(name)
        except SysidError as error:
            assert f"no motion of '{name}' can be certified" in str(error)
    assert able >= {"kinova_gen3", "kinova_gen3_2f85", "kuka_lbr_med7"} and "ur5e" not in able


def test_parameter_files_are_read_as_ros_reads_them(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(
        "/**:\n  ros__parameters: {a: 1, group: {b: 2}}\n"
        "left:\n  arm_driver:\n    ros__parameters: {a: 3}\n"
        "/*/estimator:\n  ros__parameters: {c: 4}\n"
    )
    assert read_parameters(path, "arm_driver") == {"a": 1, "group.b": 2}
    assert read_parameters(path, "arm_driver", "left") == {"a": 3, "group.b": 2}
    assert read_parameters(path, "estimator", "right") == {"a": 1, "group.b": 2, "c": 4}
    assert read_parameters(path, "estimator") == {"a": 1, "group.b": 2}
    for text in ("hello", "arm_driver: 3", "arm_driver: {ros__parameters: 3}", "a: ["):
        path.write_text(text)
        with pytest.raises(ModelError):
            read_parameters(path, "arm_driver")


def test_a_misspelt_parameter_names_the_node(run, tmp_path):
    (tmp_path / "own.yaml").write_text("/**/estimator:\n  ros__parameters: {update_rat: 5.0}\n")
    status, shown = run("identify --parameters-file own.yaml")
    assert status == ExitStatus.BAD_INPUT and "node 'estimator' has no parameter 'update_rat'; it has model" in shown
