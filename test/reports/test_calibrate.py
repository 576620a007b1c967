"""``sysid calibrate``: a calibration that ``sysid offline`` takes, sensors at standstill, clear errors."""

import dataclasses
import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from recording_files import save_npz
from rich.console import Console
from textbook import textbook_file

from sysid_msgs.action import IdentifyArm
from sysid_ros.cli import calibrate, offline
from sysid_ros.cli import main as door
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.parse_recordings import calibrate_parser, offline_parser
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.calibration import LoadedRecording, describe_arm, empty_hand
from sysid_ros.core.estimation.sensor_statistics import measure_sensors
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.calibration import ArmCalibration, CalibrationRecord, ConstantBounds, load_calibration
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import tool_transform
from sysid_ros.core.model.robot_files import config_directories
from sysid_ros.nodes import calibrate_client
from sysid_ros.reports.arm import check_torques
from sysid_ros.reports.recordings.files import names_apart, read_load

MODEL = textbook_file()


def still(robot, seconds=3.0, seed=0):
    """An arm that rests, with errors of known sizes."""
    rng, count = np.random.default_rng(seed), round(seconds * 1000)
    times = np.arange(count) * 1_000_000 + rng.integers(-5000, 5001, count) + 10**9
    noise = np.where(np.arange(count) % 2 == 0, 1.0, -1.0)[:, None] * np.linspace(0.1, 0.7, robot.n)
    q = np.tile(robot.home, (count, 1))
    q[1500:, 0] += 3.490658504e-4
    v = 0.001 * rng.choice([-1.0, 1.0], (count, robot.n))
    return SampleBlock(times, np.arange(count), q, v, 5.0 + noise)


def test_sensors_at_standstill(robot):
    block = still(robot)
    batches = [block.slice(first, first + 20) for first in range(0, len(block), 20)]
    found = measure_sensors(robot, batches)
    assert found.segments == 1 and found.seconds == pytest.approx(2.999, abs=1e-4)
    assert found.lengths[0] == 0.0 and found.lengths[-1] == 0.5
    np.testing.assert_allclose(found.torque[0], np.linspace(0.1, 0.7, robot.n), rtol=1e-6)
    assert np.all(found.torque[-1] < 1e-3 * found.torque[0] + 1e-9), "an alternating error has no mean"
    np.testing.assert_allclose(found.velocity[0], 0.001)
    assert np.all(found.velocity[-1] < 0.0003)
    assert found.position_step[0] == pytest.approx(3.490658504e-4) and np.isnan(found.position_step[1])
    assert 4e-6 < found.jitter < 6e-6
    assert found.period == pytest.approx(1e-3, rel=1e-2)


def test_drift_shows_as_a_slope(robot):
    block = still(robot)
    drifting = dataclasses.replace(block, tau=block.tau + 0.02 * block.seconds[:, None])
    assert measure_sensors(robot, [drifting]).drift == pytest.approx(np.full(robot.n, 0.02), rel=0.05)


def test_no_standstill_is_an_error(robot, samples):
    with pytest.raises(match="record at least 1 s without motion"):
        measure_sensors(robot, [samples.slice(500, 900)])


def test_sensors_from_the_command_line(robot, tmp_path, capsys):
    path, output = save_npz(tmp_path / "rest.npz", robot, still(robot)), tmp_path / "sensors.yaml"
    assert door.main(["calibrate", "sensors", path, "--model", MODEL, "--output", str(output)]) == ExitStatus.OK
    text = capsys.readouterr().out
    assert "3 s at standstill in 1 pieces, " in text and "stamps: within 5." in text and "assumed" in text
    values = yaml.safe_load(output.read_text())
    assert values["joints"]["joint_1"]["effort_rest"][0] == pytest.approx(0.1)
    assert len(values["error_windows"]) == len(values["joints"]["joint_7"]["velocity_error"])


@pytest.mark.slow
def test_an_arm_from_the_command_line(robot, samples, record, tmp_path, capsys):
    path = save_npz(tmp_path / "empty.npz", robot, record(np.zeros(10)))
    output = tmp_path / "arm.yaml"
    words = ["arm", path, "--model", MODEL, "--serial", "K7", "--output", str(output), "--offset-change", "0.01"]
    folder = tmp_path / "report"
    other = save_npz(tmp_path / "other.npz", robot, record(np.zeros(10)).slice(500, 2500))
    words += ["--report", str(folder), "--check", other]
    assert door.main(["calibrate", *words, "--temperature", "31", "--valid-days", "0"]) == ExitStatus.OK
    text = capsys.readouterr().out
    assert "other.npz, not used: RMS torque residual" in text
    names = {path.name for path in folder.iterdir()}
    assert names == {"arm.yaml", "arm.urdf", "arm.html", f"{robot.name}.yaml", f"{robot.name}.urdf"}
    known = load_robot(folder / f"{robot.name}.yaml")
    assert known.name == robot.name and known.calibration.record.serial == "K7"
    assert np.all(known.theta_box.width <= robot.theta_box.width)
    np.testing.assert_array_equal(known.uncalibrated.theta_box.lower, robot.theta_box.lower)
    page = (folder / "arm.html").read_text()
    found = describe_arm(robot, load_calibration(folder / "arm.yaml"))
    assert found.base.contains(robot.theta_nominal), "the arm of these samples is the nominal one"
    assert found.row_shares[0] < 0.5 and 0.3 < found.relative_width < 0.99
    assert "Arm K7" in page and "other.npz, 4.0 s" in page and "Base parameters" in page
    assert door.main(["calibrate", *words]) == ExitStatus.BAD_INPUT
    assert "holds the arm.yaml of an earlier result" in capsys.readouterr().err
    assert "certified rows" in text and "empty.npz: empty hand" in text
    calibration = load_calibration(output)
    assert calibration.record.serial == "K7" and calibration.record.temperature == 31.0
    assert calibration.record.expires is None and calibration.record.offset_change == (0.01,) * 7
    data = save_npz(tmp_path / "payload.npz", robot, samples)
    widths = []
    for extra in ([], ["--calibration", str(output)]):
        assert door.main(["offline", data, "--model", MODEL, "--output", "", *extra]) == ExitStatus.OK
        widths.append(capsys.readouterr().out)
    assert widths[0] != widths[1]


@pytest.mark.slow
def test_a_stopped_calibration_keeps_the_rows_that_it_proved(robot, record, tmp_path, capsys, monkeypatch):
    path = save_npz(tmp_path / "empty.npz", robot, record(np.zeros(10)).slice(0, 1000))
    words = ["arm", path, "--model", MODEL, "--serial", "K7", "--output", str(tmp_path / "arm.yaml")]

    at = [0.1]

    def interrupt(self, text, share, *_):
        if share > at[0]:  # heeded at the next step
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(calibrate.ProgressDisplay, "update", lambda *_: None)
    assert door.main(["calibrate", *words]) == ExitStatus.OK
    whole = load_calibration(tmp_path / "arm.yaml")
    (tmp_path / "arm.yaml").unlink()
    monkeypatch.setattr(calibrate.ProgressDisplay, "update", interrupt)
    for at[0] in (0.1, 0.24, 0.6):  # among windows and bounds of the first pass, which narrows nothing here; after it
        assert door.main(["calibrate", *words]) == ExitStatus.STOPPED and not (tmp_path / "arm.yaml").exists()
        assert "stopped before anything was proven" in capsys.readouterr().out
    monkeypatch.setattr("sysid_ros.core.estimation.calibration._BATCH", 4)
    at[0] = 0.8
    assert door.main(["calibrate", *words]) == ExitStatus.STOPPED
    assert "stopped: bounds proven so far are kept" in capsys.readouterr().out
    kept = load_calibration(tmp_path / "arm.yaml")
    assert 4 <= len(kept.matrix) < len(whole.matrix) and kept.record.serial == "K7" and kept.record.recordings
    np.testing.assert_allclose(kept.matrix, whole.matrix[: len(kept.matrix)], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(kept.lower, whole.lower[: len(kept.matrix)], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(kept.upper, whole.upper[: len(kept.matrix)], rtol=1e-3, atol=1e-6)
    assert load_robot(MODEL, calibration=tmp_path / "arm.yaml").calibration is not None


def test_recordings_are_named_so_that_they_can_be_told_apart(tmp_path):
    runs = [tmp_path / "1_empty" / "recording.mcap", tmp_path / "2_weight" / "recording.mcap"]
    assert names_apart(runs) == ["1_empty/recording.mcap", "2_weight/recording.mcap"]
    others = [tmp_path / name for name in ("a.npz", "x/b.npz", "y/b.npz")]
    assert names_apart(others) == ["a.npz", "x/b.npz", "y/b.npz"]
    assert names_apart([others[0], others[0]])[0].endswith("a.npz")


def test_an_arm_is_as_well_known_as_is_said(tmp_path, capsys):
    """Each command that reads recordings builds its arm with the share that is given."""
    rest = ["recording.npz", "--model", "ur5e"]
    commands = {
        "arm": calibrate_parser().parse_args(["arm", *rest, "--serial", "K7", "--known-within", "0.2"]),
        "offline": offline_parser().parse_args([*rest, "--known-within", "0.2"]),
    }
    known = load_robot("ur5e", known_within=0.2)
    for name, options in commands.items():
        np.testing.assert_array_equal(offline.load_known(options).theta_box.lower, known.theta_box.lower, err_msg=name)
        options.known_within = None
        assert offline.load_known(options).theta_box.width.sum() > known.theta_box.width.sum()
        options.model, options.known_within = str(config_directories()[0].parent / "urdf" / "ur5e.urdf"), 0.2
        with pytest.raises(ParameterOutOfRange, match="known_within 0.2: expected a settings file"):
            offline.load_known(options)


@pytest.mark.slow
def test_a_contradiction_is_opened_and_the_fit_stands_beside_the_bounds(robot, samples, tmp_path, capsys):
    """The samples have a payload, and are said to be of the empty hand."""
    data, output = save_npz(tmp_path / "payload.npz", robot, samples), tmp_path / "arm.yaml"
    words = ["arm", data, "--model", MODEL, "--serial", "K7", "--output", str(output)]
    assert door.main(["calibrate", *words]) == ExitStatus.OK
    text = " ".join(capsys.readouterr().out.split())
    assert "contradicted, and opened: in payload.npz the hand holds something else than stated" in text
    assert "warning: not as assumed: in payload.npz the hand holds" in text
    assert "Fit beside the bounds" in text and "predicted from the other halves" in text
    (one,) = load_calibration(output).record.openings
    assert (one.assumption, one.subject) == ("load", "payload.npz")
    # The torques of two joints have been exchanged: nothing that is opened explains that.
    words[1] = save_npz(
        tmp_path / "exchanged.npz", robot, dataclasses.replace(samples, tau=samples.tau[:, [0, 3, 2, 1, 4, 5, 6]])
    )
    assert door.main(["calibrate", *words[:-1], str(tmp_path / "none.yaml")]) == ExitStatus.FAILED
    assert "no arm within the assumptions" in capsys.readouterr().err and not (tmp_path / "none.yaml").exists()


def test_wrong_input_is_named(robot, samples, tmp_path, capsys):
    data = save_npz(tmp_path / "payload.npz", robot, samples)
    common = ["--model", MODEL, "--serial", "K7", "--output", str(tmp_path / "arm.yaml")]
    for words, message in (
        ([f"{data}=heavy"], "numbers in kg"),
        ([data, "--offset-change", "1", "2"], "one number or 7, from 0 to 10000"),
        ([data, "--offset-change", "1e300"], "one number or 7, from 0 to 10000"),
        ([data, "--date", "tomorrow"], "a date like 2026-11-22"),
        ([str(tmp_path / "none.npz")], "the file is missing"),
        ([data, "--known-within", "1.5"], "--known-within 1.5: expected 0 to 1"),
        ([data, "--known-within", "nan"], "--known-within nan: expected 0 to 1"),
    ):
        assert door.main(["calibrate", "arm", *words, *common]) == ExitStatus.BAD_INPUT
        assert message in capsys.readouterr().err
    with pytest.raises(ParameterOutOfRange, match="numbers in kg"):
        read_load("a.npz=1.0+-x", robot)
    for words in (["--known-within", "-0.1"], ["--known-within", "2"]):
        for command in (["arm", data, *common], [data, "--model", MODEL]):
            line = ["calibrate", *command, *words] if command[0] == "arm" else ["offline", *command, *words]
            assert door.main(line) == ExitStatus.BAD_INPUT
            assert f"--known-within {float(words[1])}: expected 0 to 1" in capsys.readouterr().err
    assert not (tmp_path / "arm.yaml").exists()
    assert (
        door.main(["offline", data, "--model", MODEL, "--calibration", str(tmp_path / "none.yaml")])
        == ExitStatus.BAD_INPUT
    )
    assert "none.yaml': expected an existing file of sysid calibrate" in capsys.readouterr().err


class FakeSuite:
    """Keeps what would have been started."""

    started: list = []
    status = ExitStatus.OK

    def __init__(self, processes, client, log_directory, environment, parameters):
        FakeSuite.started.append((client, log_directory, parameters))

    def run(self):
        return FakeSuite.status


@pytest.fixture
def suites(monkeypatch):
    monkeypatch.setattr(calibrate, "Suite", FakeSuite)
    monkeypatch.setattr(FakeSuite, "started", [])
    return FakeSuite


def run_words(tmp_path, *words):
    return ["run", "--serial", "K7", "--results", str(tmp_path / "results"), *words]


def test_the_arm_moves_once_with_each_load(robot, suites, tmp_path, capsys):
    words = ["--weight", "1.0+-0.002", "--weight", "2.0", "--com", "0.0", "-0.01", "0.14", "--motion-time", "9"]
    words += ["--valid-days", "30", "--firmware", "2.5.0", "--temperature", "-5"]
    assert door.main(["calibrate", *run_words(tmp_path, *words)]) == ExitStatus.OK
    (run,) = (tmp_path / "results").iterdir()
    goals = []
    for client, log, parameters in suites.started:
        options = calibrate_client.build_parser().parse_args(client[3:])
        goals.append((calibrate_client._goal(options), log, parameters))
    (empty, _, first), (light, log, second), (heavy, _, third) = goals
    assert [one["arm_driver"]["payload"] for one in (first, second, third)] == [
        "none",
        "1.0 at 0.0 -0.01 0.14",
        "2.0 at 0.0 -0.01 0.14",
    ]
    assert (empty.load_mass, list(empty.load_com), list(empty.recordings)) == (0.0, [], [])
    assert (light.load_mass, light.load_mass_tolerance) == (1.0, 0.002) and light.motion_time == 9.0
    of_record = {"arm_valid_days": 30, "arm_firmware": "2.5.0", "arm_temperature": -5.0}
    assert all(of_record.items() <= one["identification"].items() for one in (first, second, third))
    rotation, origin = tool_transform(robot)
    np.testing.assert_allclose(light.load_com, rotation @ [0.0, -0.01, 0.14] + origin, atol=1e-12)
    assert light.load_com_tolerance == pytest.approx(0.01, rel=1e-6)
    assert heavy.recordings == [f"{run}/1_empty/recording.mcap", f"{run}/2_weight/recording.mcap=1.0+-0.002"]
    assert light.results_directory == str(run / "2_weight") and log == run / "2_weight" / "log"
    assert len({goal.seed for goal, *_ in goals}) == 3
    for text in heavy.recordings:
        read_load(text, robot)
    assert f"sysid identify --model {run}/3_weight/{robot.name}.yaml" in capsys.readouterr().out


def test_a_person_is_asked_where_the_arm_is_real(suites, tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr("builtins.input", asked.append)
    words = run_words(tmp_path, "--mode", "hardware", "--robot-ip", "10.0.0.1", "--weight", "1.5")
    assert door.main(["calibrate", *words]) == ExitStatus.BAD_INPUT and not asked
    assert "an arm with elastic joints where a real one moves" in capsys.readouterr().err
    words += ["--model", f"{MODEL}:elastic"]
    assert door.main(["calibrate", *words]) == ExitStatus.OK
    assert asked == ["Empty the hand, then press Enter: ", "Attach the reference weight of 1.5 kg, then press Enter: "]
    assert [set(parameters) for *_, parameters in suites.started] == [{"identification"}] * 2  # nothing is simulated

    def nobody(_):
        raise EOFError

    monkeypatch.setattr("builtins.input", nobody)
    assert door.main(["calibrate", *words]) == ExitStatus.BAD_INPUT
    assert "there is no terminal to confirm it in" in capsys.readouterr().err


def test_what_fails_ends_the_run_and_bad_weights_are_refused_before_it(suites, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(FakeSuite, "status", ExitStatus.FAILED)
    assert door.main(["calibrate", *run_words(tmp_path, "--weight", "1.0")]) == ExitStatus.FAILED
    assert len(suites.started) == 1
    for words, message in (
        (["--weight", "heavy"], "numbers in kg"),
        (["--weight", "9.0"], "inside the payload prior 'held_object'"),
        (["--weight", "1.0", "--com", "0", "0", "0.14", "--com-tolerance", "-1"], "--com-tolerance [m] -1.0"),
        (["--mode", "hardware"], "--robot-ip ''"),
    ):
        assert door.main(["calibrate", *run_words(tmp_path, *words)]) == ExitStatus.BAD_INPUT
        assert message in capsys.readouterr().err
    assert len(suites.started) == 1


def test_numbers_that_look_like_options_reach_the_goal():
    options = calibrate_client.build_parser().parse_args(["--serial", "K7", "--com=-1e-17,0.0,-0.2"])
    assert list(calibrate_client._goal(options).load_com) == [-1e-17, 0.0, -0.2]


@pytest.mark.parametrize("code", [0, 7])
def test_the_client_shows_progress_and_what_came_out(code, monkeypatch, capsys):
    class Client:
        def __init__(self, *_):
            pass

        def run(self, goal, on_feedback, on_stop):
            on_feedback(IdentifyArm.Feedback(text="bounds", progress=0.5, relative_width=0.3))
            joints = {"joint_names": ["joint_1"], "residual_before": [2.0], "residual_after": [0.5]}
            text = "why" if code else ""
            return IdentifyArm.Result(error_code=code, error_text=text, results_directory="out", **joints)

        def close(self):
            pass

    monkeypatch.setattr(calibrate_client, "GoalClient", Client)
    monkeypatch.setattr(calibrate_client, "Node", lambda name: SimpleNamespace(destroy_node=lambda: None))
    options = calibrate_client.build_parser().parse_args(["--serial", "K7"])
    status = calibrate_client.run(options, SimpleNamespace(is_set=False))
    told = capsys.readouterr().out
    assert "50 %  bounds  widths 30 %" in told
    if code:
        assert status == ExitStatus.FAILED and "not calibrated (error 7): why" in told
    else:
        assert status == ExitStatus.OK and "Files: out" in told
        assert any(line.split() == ["joint_1", "2.000", "0.500"] for line in told.splitlines())


def test_torques_are_predicted_with_the_gains_that_were_found(robot, record):
    block = record(np.zeros(10)).slice(0, 1000)
    scaled = dataclasses.replace(block, tau=1.02 * block.tau)
    check = check_torques(
        robot, robot, np.full(robot.n, 1.0 / 1.02 - 1.0), LoadedRecording("scaled", [scaled], empty_hand())
    )
    assert np.linalg.norm(check.after) < 0.7 * np.linalg.norm(check.before)


def test_noise_of_the_sensors_does_not_hide_what_parameters_change(robot, record):
    block = record(np.zeros(10)).slice(0, 1000)
    alternating = np.where(np.arange(len(block)) % 2 == 0, 1.0, -1.0)[:, None] * np.ones(robot.n)
    recordings = [dataclasses.replace(block, tau=tau) for tau in (1.02 * block.tau, 1.02 * block.tau + alternating)]
    quiet, noisy = (
        check_torques(robot, robot, np.full(robot.n, 1.0 / 1.02 - 1.0), LoadedRecording("scaled", [one], empty_hand()))
        for one in recordings
    )
    assert noisy.before == pytest.approx(quiet.before, abs=0.05)
    assert noisy.after == pytest.approx(quiet.after, abs=0.05)


def test_friction_at_rest_does_not_hide_what_parameters_change(robot, record):
    """A joint that rests may be held by any friction up to its limit."""
    block = record(np.zeros(10)).slice(0, 1000)
    scaled = dataclasses.replace(block, tau=1.02 * block.tau)
    count, none = 500, np.zeros((500, robot.n))
    rest = dataclasses.replace(
        block.slice(0, count),
        stamps=block.stamps[-1] + 1_000_000 * np.arange(1, count + 1),
        sequence=block.sequence[-1] + np.arange(1, count + 1),
        q=block.q[-1] + none,
        v=none,
        tau=scaled.tau[-1] + none + 3.0,
    )
    gains = np.full(robot.n, 1.0 / 1.02 - 1.0)
    alone, both = (
        check_torques(robot, robot, gains, LoadedRecording("scaled", parts, empty_hand()))
        for parts in ([scaled], [scaled, rest])
    )
    moved = np.abs(block.v).max(axis=0) > 0.1
    assert moved.any() and np.all(both.after[moved] < alone.after[moved] + 0.2)


def test_constants_and_contradictions_are_said(robot):
    known = Box(np.array([0.3, 0.1]), np.array([0.4, 0.2]))
    names = ("torque lag of joint_1", "gravity along")
    lower, upper, before = np.array([-1e-3, 0.0]), np.array([2e-3, 0.5]), Box(-known.upper, known.upper)
    constants = ConstantBounds(names, ("s", "m/s^2"), lower, upper, before)
    record = CalibrationRecord(serial="K7", date="2026-11-22")
    nominal = robot.theta_nominal
    nothing = np.zeros((0, 16 * robot.n + 3)), np.zeros(0), np.zeros(0)
    calibration = ArmCalibration(robot.name, "", record, *nothing, robot.theta_box, nominal, constants)
    console = Console(width=120, record=True)
    console.print(*calibrate.describe_calibration(robot, calibration))
    text = " ".join(console.export_text().split())
    assert "torque lag of joint_1 s -0.001 0.002 -0.4 0.4" in text and "gravity along m/s^2 0 0.5 -0.2 0.2" in text
