"""The offline command: the numbers of the online estimator, its files and exit status, and clear errors."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from doubles import text_of
from recording_files import save_npz
from textbook import textbook_file

from sysid_ros.cli import main as door
from sysid_ros.cli import offline
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.parse_recordings import offline_parser
from sysid_ros.cli.terminal import ProgressDisplay, result_summary
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.model import inertia
from sysid_ros.reports.recordings.files import read_recording
from sysid_ros.reports.recordings.readers import Recording
from sysid_ros.reports.torque_fit import predict_torque

MODEL = textbook_file()
REAL_DATA = (
    Path(os.environ.get("SYSID_SHARED", Path(__file__).parents[3] / "shared")) / "facts/data/lbr_med7_real_10s.npz"
)


@pytest.fixture(scope="module")
def recording(samples):
    """What a driver sends: portions of 20 samples."""
    batches = tuple(samples.slice(first, first + 20) for first in range(0, len(samples), 20))
    return Recording("test.mcap", batches, (0,) * len(batches))


@pytest.fixture(scope="module")
def outcome(recording, robot):
    return offline.identify_recording(recording, robot, EstimatorSettings())


def test_the_numbers_are_those_of_the_online_estimator(recording, robot, outcome):
    online = StreamingEstimator(robot, EstimatorSettings())
    for number, batch in enumerate(recording.batches):
        online.add(batch)
        if number % 25 == 0:
            online.estimate()  # a node publishes now and then
    expected = online.estimate()
    for name in ("lower", "upper"):
        assert np.array_equal(getattr(outcome.estimate, name), getattr(expected, name)), name
    assert np.allclose(outcome.estimate.values, expected.values, rtol=1e-6, atol=1e-9)
    assert outcome.estimate.number_of_windows == expected.number_of_windows
    assert np.array_equal(outcome.information, online.information())


def test_the_truth_is_inside_and_the_history_shrinks(outcome, result):
    assert outcome.estimate.contains(result.truth)
    width = outcome.history.upper - outcome.history.lower
    assert len(width) > 2 and np.all(np.diff(width, axis=0) <= 1e-12)
    assert np.all(np.diff(outcome.history.time) >= 0) and outcome.history.time[-1] == pytest.approx(6.0, abs=0.01)


def test_torque_fit_and_windows_agree_with_the_estimate(outcome):
    rest = outcome.samples.tau - outcome.predicted_tau
    assert np.all(rest.std(axis=0) < 0.1 * outcome.samples.tau.std(axis=0) + 0.05)
    assert outcome.windows.is_estimate and outcome.windows.contradictions(outcome.robot.joint_names) == []
    assert len(outcome.windows.times) == outcome.estimate.number_of_windows


def test_window_residuals_are_the_means_of_the_torque_residuals(outcome):
    """Two ways to the same: momentum without accelerations, and inverse dynamics with filtered ones."""
    check, seconds = outcome.windows, outcome.samples.seconds
    rest = outcome.samples.tau - outcome.predicted_tau
    half = 0.5 * outcome.robot.sensors.averaging_time
    inside = [np.abs(seconds - middle) <= half for middle in check.times]
    difference = np.abs(np.array([rest[part].mean(axis=0) for part in inside]) - check.residual)
    # near standstill the Coulomb torque is unknown and the two take different values for it
    is_moving = np.array([np.abs(outcome.samples.v[part]).min(axis=0) > 0.05 for part in inside])
    assert is_moving.sum() > 20 and difference[is_moving].max() < 0.03
    assert np.all(np.abs(check.residual) < check.allowed)


def test_contradictions_name_the_worst_joint_first(outcome):
    check = outcome.windows
    residual = check.residual.copy()
    residual[3, 1] = 50.0
    residual[[4, 5], 6] = -9.0
    first, second = dataclasses.replace(check, residual=residual).contradictions(outcome.robot.joint_names)
    assert first.startswith(
        f"joint_2: 1 of {len(check.times)} windows; worst at {check.times[3]:.2f} s, +50.000 Nm where"
    )
    assert second.startswith("joint_7: 2 of")


def test_a_changed_payload_starts_again(recording, robot):
    epochs = tuple(int(k >= 100) for k in range(len(recording.batches)))
    outcome = offline.identify_recording(
        dataclasses.replace(recording, payload_epochs=epochs), robot, EstimatorSettings()
    )
    later = dataclasses.replace(recording, batches=recording.batches[100:], payload_epochs=epochs[100:])
    expected = offline.identify_recording(later, robot, EstimatorSettings()).estimate
    assert np.array_equal(outcome.estimate.lower, expected.lower)
    assert any("announced to have changed" in text for text in outcome.warnings)


def test_computed_velocities_widen_the_sensor_and_void_the_guarantee(robot, samples, tmp_path):
    path = save_npz(tmp_path / "a.npz", robot, samples.slice(0, 800), v=None)
    outcome = offline.identify_recording(read_recording(path, robot), robot, EstimatorSettings())
    assert np.all(outcome.robot.sensors.velocity_error >= robot.sensors.velocity_error)
    assert not outcome.is_rigorous and "not guaranteed" in text_of(result_summary(outcome))


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["a fifth", "most", "the largest"])
def test_samples_that_are_missing_widen_the_bounds_and_no_more(robot, samples, result, tmp_path, lost):
    """However many are lost, and even if a saturated sensor loses the largest torques."""
    part, rng = samples.slice(0, 1500), np.random.default_rng(0)
    tau = part.tau.copy()
    if lost == "the largest":
        tau[np.abs(tau) > np.quantile(np.abs(tau), 0.95, axis=0)] = np.nan
    else:
        tau[rng.random(len(tau)) < (0.2 if lost == "a fifth" else 0.6)] = np.nan
    found = read_recording(save_npz(tmp_path / "a.npz", robot, part, tau=tau), robot)
    assert any("in which a number is missing" in notice for notice in found.notices)
    whole = read_recording(save_npz(tmp_path / "b.npz", robot, part), robot)
    widths = []
    for recording in (found, whole):
        estimate = offline.identify_recording(recording, robot, EstimatorSettings()).estimate
        assert estimate.contains(result.truth)
        widths.append(estimate.radius[0])
    assert widths[1] <= widths[0] * 1.001 < robot.payload_prior.box.radius[0]


@pytest.mark.usefixtures("without_figures")
def test_ctrl_c_keeps_what_the_data_so_far_say(robot, samples, tmp_path, capsys, monkeypatch):
    """A signal comes at the first renewal of the bounds."""
    path = save_npz(tmp_path / "a.npz", robot, samples.slice(0, 1500))
    update = ProgressDisplay.update

    def interrupt(self, *words, **more):
        monkeypatch.setattr(ProgressDisplay, "update", update)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ProgressDisplay, "update", interrupt)
    words = [path, "--model", MODEL, "--output", str(tmp_path / "results"), "--set", "update_windows=10"]
    assert door.main(["offline", *words]) == ExitStatus.STOPPED
    printed = capsys.readouterr().out
    (folder,) = (tmp_path / "results").iterdir()
    data = yaml.safe_load((folder / "estimate.yaml").read_text())
    (told,) = re.findall(r"stopped on request: ([\d.]+) s of 3.0 s of data were used", " ".join(printed.split()))
    assert 0.2 < data["data"]["seconds"] <= float(told) + 0.1 < 2.0


@pytest.mark.usefixtures("without_figures")
def test_a_second_ctrl_c_ends_what_the_first_one_cut(recording, tmp_path, capsys, monkeypatch):
    """The first comes while the file is read, the second at the first renewal of the bounds; nothing is lost."""
    update = ProgressDisplay.update

    def read(path, robot, options, watch):
        os.kill(os.getpid(), signal.SIGINT)
        assert not watch(0.5)
        return recording.cut(1500)

    def interrupt(self, *words, **more):
        monkeypatch.setattr(ProgressDisplay, "update", update)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(offline, "read_recording", read)
    monkeypatch.setattr(ProgressDisplay, "update", interrupt)
    (tmp_path / "a.mcap").touch()
    words = [str(tmp_path / "a.mcap"), "--model", MODEL, "--set", "update_windows=10"]
    words += ["--output", str(tmp_path / "results")]
    assert door.main(["offline", *words]) == ExitStatus.STOPPED
    printed = capsys.readouterr()
    assert "What was read is identified; Ctrl-C ends that, too." in printed.err
    assert "stopped on request" in printed.out
    (folder,) = (tmp_path / "results").iterdir()
    assert 0.2 < yaml.safe_load((folder / "estimate.yaml").read_text())["data"]["seconds"] < 2.0


def test_a_run_that_is_stopped_has_the_bounds_of_its_samples(recording, robot):
    settings, asked = EstimatorSettings(update_windows=5), []

    def is_cancelled():
        asked.append(True)
        return len(asked) > 40

    stopped = offline.identify_recording(recording, robot, settings, is_cancelled=is_cancelled)
    count = len(stopped.samples)
    assert count == 20 * 41 and len(stopped.predicted_tau) == count and "stopped on request" in stopped.warnings[-1]
    cut = recording.cut(count)
    assert np.array_equal(cut.samples.q, recording.samples.q[:count])
    again = offline.identify_recording(cut, robot, settings).estimate
    assert np.array_equal(stopped.estimate.lower, again.lower) and np.array_equal(stopped.estimate.upper, again.upper)


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_the_command_prints_writes_and_succeeds(robot, samples, tmp_path, capsys):
    path = save_npz(tmp_path / "a.npz", robot, samples.slice(0, 1500))
    status = door.main(
        ["offline", path, "--model", MODEL, "--output", str(tmp_path / "results"), "--set", "update_windows=10"]
    )
    printed = capsys.readouterr().out
    assert status == ExitStatus.OK
    assert "s of data" in printed and printed.count("guaranteed") >= 2 and "warning" in printed
    (folder,) = (tmp_path / "results").iterdir()
    assert f"Files: {folder}" in printed
    data = yaml.safe_load((folder / "estimate.yaml").read_text())
    assert data["source"] == "a.npz" and data["settings"]["update_windows"] == 10
    assert data["payload"]["at_last_joint"]["mass_kg"]["value"] == pytest.approx(1.81, abs=0.1)
    assert {"report.html", "robot_with_payload.urdf", "payload_ur.script"} <= {file.name for file in folder.iterdir()}


@pytest.mark.slow
def test_a_payload_outside_its_prior_is_an_alarm_that_names_joint_and_window(robot, samples, motion, tmp_path, capsys):
    heavy = inertia.from_com_form(8.0, [0.0, 0.0, -0.3], 0.05 * np.eye(3))
    q, v, a = motion.trajectory.sample(samples.seconds)
    part = slice(0, 500)
    tau = predict_torque(robot, heavy, q, v, a)[part]
    path = save_npz(tmp_path / "a.npz", robot, samples.slice(0, 500), tau=tau)
    status = door.main(["offline", path, "--model", MODEL, "--output", str(tmp_path / "results")])
    printed = capsys.readouterr().out
    assert status == ExitStatus.FAILED and "ALARM: no usable estimate" in printed and "joint_" in printed
    (folder,) = (tmp_path / "results").iterdir()
    assert sorted(file.name for file in folder.iterdir()) == ["estimate.yaml", "report.html"]
    page = (folder / "report.html").read_text()
    assert (
        "No usable estimate" in page and "least-squares fit" in page and "predicted with a fit to all windows" in page
    )
    # What could be wrong, in the terminal, on the page and as data.
    words = " ".join(printed.split())
    assert "1. the data agree if the hand held" in words and "check: weigh the payload" in words
    assert "What could be wrong" in page and "more than assumed" in page
    data = yaml.safe_load((folder / "estimate.yaml").read_text())
    (best, *_) = data["explanation"]["hypotheses"]
    assert best["assumption"] == "payload_prior" and best["smallest_change"] > 0.0 and best["misfit_with_best"] < 1.0
    assert data["explanation"]["misfit"] > 1.0


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_work(tmp_path, monkeypatch, capsys):
    (tmp_path / "results").write_text("a file is in the way")
    (tmp_path / "a.mcap").touch()
    monkeypatch.setattr(offline, "read_with_progress", lambda *_: pytest.fail("the work was done"))
    status = door.main(["offline", str(tmp_path / "a.mcap"), "--model", MODEL, "--output", str(tmp_path / "results")])
    assert status == ExitStatus.BAD_INPUT and "cannot make the folder" in capsys.readouterr().err


def test_what_data_need_not_show_stands_beside_every_result(outcome, robot):
    from sysid_ros.reports.estimate_yaml import estimate_data
    from sysid_ros.reports.report import report_html
    from sysid_ros.reports.result import BLIND_SPOTS

    result = outcome[0] if isinstance(outcome, tuple) else outcome
    data = estimate_data(result)
    assert "not guaranteed" in data["statistical"]["meaning"] and data["statistical"]["confidence"] == 0.95
    for row in data["estimate"]["parameters"]:
        assert row["statistical_lower"] < row["statistical_upper"]
    page = report_html(result)
    assert "95 % statistical" in page and "Allowed errors used" in page
    assert 0.05 < data["agreement"]["share"] < 1.0 and 0.0 < data["agreement"]["width"] < 1.2
    doubted = dataclasses.replace(result, agreement=dataclasses.replace(result.agreement, share=0.97))
    assert any("97 % of the errors that are allowed" in text for text in estimate_data(doubted)["warnings"])
    assert data["explanation"] is None and len(data["not_shown_by_data"]) == len(BLIND_SPOTS) >= 5
    assert all(spot["check"] for spot in data["not_shown_by_data"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.npz", "--model", MODEL], "error: missing.npz: the file is missing"),
        (["missing.npz", "--model", "no_such_arm"], "no_such_arm"),
        (["missing.npz", "--model", MODEL, "--prior", "ghost"], "payload prior 'ghost': expected one of"),
        (["missing.npz", "--model", MODEL, "--set", "speed=3"], "--set 'speed=3': expected NAME=VALUE"),
        (["missing.npz", "--model", MODEL, "--set", "torque_lag=fast"], "torque_lag 'fast': expected a number"),
        (["missing.npz", "--model", MODEL, "--set", "torque_lag=5"], "torque_lag"),
        (["missing.npz", "--model", MODEL, "--window", "0"], "window_duration"),
    ],
)
def test_bad_arguments_are_told_and_end_with_status_2(arguments, message, capsys):
    assert door.main(["offline", *arguments]) == ExitStatus.BAD_INPUT
    assert message in capsys.readouterr().err


def test_nothing_of_ros_is_needed():
    code = (
        "import sys, sysid_ros.cli.offline, sysid_ros.reports.report, sysid_ros.reports.recordings.mcap\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'rclpy' or name.split('.')[0].endswith('_msgs')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_every_setting_of_the_estimator_can_be_given():
    parser = offline_parser()
    words = ["quadrature=forward_euler", "error_terms=encoder,jitter", "max_windows=50", "detect_payload_change=true"]
    options = parser.parse_args(["f", "--model", MODEL, *(part for word in words for part in ("--set", word))])
    settings = offline.read_settings(options)
    assert settings.quadrature == "forward_euler" and settings.error_terms == ("encoder", "jitter")
    assert settings.max_windows == 50 and settings.detect_payload_change is True
    with pytest.raises(ParameterOutOfRange, match="true or false"):
        offline.read_settings(parser.parse_args(["f", "--model", MODEL, "--set", "detect_payload_change=maybe"]))


@pytest.mark.slow
@pytest.mark.skipif(not REAL_DATA.is_file(), reason="the recording of a real arm is not here")
@pytest.mark.parametrize(("effort_sign", "is_usable"), [("1", True), ("-1", False)])
def test_a_real_arm_gives_bounds_or_an_alarm_that_names_joints(effort_sign, is_usable, tmp_path):
    """A real LBR Med7: tilted base, torque 20 ms late, unknown tool, no velocities; once with the wrong sign."""
    robot = offline.load_robot("kuka_lbr_med7")
    # The zeros of its torque sensors are further off than the 0.1 Nm of the robot file; all windows together show it.
    off = np.full(robot.n, 0.3)
    sensors = dataclasses.replace(robot.sensors, effort_absolute_error=off, effort_mean_error=off)
    robot = dataclasses.replace(robot, sensors=sensors)
    with np.load(REAL_DATA) as data:
        arrays = {name: data[f"fast_{name}"][:800] for name in ("t", "q", "tau")}
    texts = {"joints": np.array(robot.joint_names), "units": "t=s, q=rad, tau=Nm", "effort_sign": effort_sign}
    np.savez(tmp_path / "a.npz", **arrays, **texts)
    settings = EstimatorSettings(torque_lag=0.02, gravity_cone=0.04)
    outcome = offline.identify_recording(read_recording(tmp_path / "a.npz", robot), robot, settings)
    assert outcome.is_usable == is_usable and outcome.predicted_tau is not None and not outcome.is_rigorous
    if is_usable:
        assert np.all(outcome.estimate.lower <= outcome.estimate.values) and outcome.shrinkage[0] > 1.3
    else:
        assert "lbr_A" in outcome.estimate.alarm.joint and outcome.estimate.alarm.window is not None
        assert outcome.windows.contradictions(robot.joint_names)[0].startswith(("lbr_A2: ", "lbr_A4: "))


@pytest.mark.slow
def test_several_recordings_are_runs_of_their_own(tmp_path, samples, robot, capsys):
    """One line and one folder each; a second call runs only what is new."""
    files = [save_npz(tmp_path / f"arm_{k}.npz", robot, samples.slice(0, 2500 + 500 * k)) for k in range(2)]
    words = ["--model", MODEL, "--output", str(tmp_path / "fleet")]
    assert door.main(["offline", *files, *words]) in (ExitStatus.OK, ExitStatus.NOT_IDENTIFIED)
    printed = capsys.readouterr()
    for k in range(2):
        assert f"arm_{k} " in printed.out and (tmp_path / "fleet" / f"arm_{k}" / "estimate.yaml").is_file()
    estimate = yaml.safe_load((tmp_path / "fleet" / "arm_1" / "estimate.yaml").read_text())
    jobs = offline.fleet_jobs(offline_parser().parse_args([*files, *words]))
    again = offline.identify_file(**jobs[1])
    assert estimate and again["values"][0] == pytest.approx(float(printed.out.split("arm_1 ")[1].split()[0]), abs=1e-3)
    lines = (tmp_path / "fleet" / "runs.jsonl").read_text().splitlines()
    third = save_npz(tmp_path / "arm_2.npz", robot, samples.slice(0, 2000))
    door.main(["offline", *files, third, *words, "--workers", "2"])
    assert (tmp_path / "fleet" / "runs.jsonl").read_text().splitlines()[:2] == lines
    assert "3 of 3 runs" in capsys.readouterr().err
    assert door.main(["offline", *files, *words, "--body", "all"]) == ExitStatus.BAD_INPUT
    assert door.main(["offline", *files, str(tmp_path / "none.npz"), *words]) == ExitStatus.BAD_INPUT
    assert "none.npz: the file is missing" in capsys.readouterr().err
