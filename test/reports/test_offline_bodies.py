"""The offline command for other bodies than the payload: tables, files, exit status."""

import dataclasses

import numpy as np
import pytest
import yaml
from recording_files import save_npz
from textbook import textbook_file

from sysid_ros.cli import main as door
from sysid_ros.cli import offline
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.model.robot import parameter_names
from sysid_ros.reports.recordings.readers import Recording

MODEL = textbook_file()


@pytest.fixture
def file(robot, samples, tmp_path):
    return save_npz(tmp_path / "a.npz", robot, samples.slice(0, 1600))


def run(file, tmp_path, capsys, *words):
    status = door.main(["offline", file, "--model", MODEL, "--output", str(tmp_path / "results"), *words])
    printed = capsys.readouterr().out
    (folder,) = (tmp_path / "results").iterdir()
    assert [path.name for path in folder.iterdir()] == ["bodies.yaml"]  # nothing a robot could be fed with
    return status, printed, yaml.safe_load((folder / "bodies.yaml").read_text())


def test_all_bodies(file, robot, result, tmp_path, capsys):
    """The samples are those of the nominal arm with the payload of `result` in its hand."""
    status, printed, data = run(file, tmp_path, capsys, "--body", "all", "--set", "payload_in_hand=true")
    assert status == ExitStatus.OK
    assert "What joint torques tell:" in printed and "joint_2.Ixx − joint_2.Iyy" in printed
    assert data["format"] == "sysid_ros bodies 1" and data["body"] == "all bodies" and data["frame"] == ""
    assert len(data["combinations"]) == 43 and len(data["parameters"]) == 70
    truth = robot.theta_nominal[:70].copy()
    truth[60:] += result.truth
    parameters = {name: k for k, name in enumerate(parameter_names(robot)[:70])}
    narrower = 0
    for entry in data["combinations"]:
        value = sum(factor * truth[parameters[name]] for name, factor in entry["coefficients"].items())
        assert entry["lower"] <= value <= entry["upper"], entry["name"]
        assert entry["lower"] <= entry["value"] <= entry["upper"] and entry["error_shares"]
        narrower += entry["upper"] - entry["lower"] < 0.9 * (entry["prior_upper"] - entry["prior_lower"])
    assert narrower > 8
    for entry in data["parameters"]:
        assert entry["lower"] <= truth[parameters[entry["name"]]] <= entry["upper"]


def test_a_body_by_its_link_gives_the_numbers_of_the_online_estimator(file, robot, samples, tmp_path, capsys):
    words = ("--body", "forearm_link", "--set", "payload_in_hand=true", "--set", "body_mass=1.5")
    status, printed, data = run(file, tmp_path, capsys, *words)
    assert status == ExitStatus.OK and "object on joint_4, about the frame of joint_4" in printed
    settings = EstimatorSettings(body="joint_4", payload_in_hand=True, body_mass=1.5)
    online = StreamingEstimator(robot, settings)
    online.add(samples.slice(0, 1600))
    expected = online.estimate()
    lower = [entry["lower"] for entry in data["parameters"]]
    np.testing.assert_allclose(lower, expected.lower, rtol=1e-9, atol=1e-12)  # the arrays lie differently in memory
    assert expected.contains(np.zeros(10)) and expected.radius[3] < 0.8 * 1.5 * 0.3
    assert data["settings"]["body"] == "forearm_link"


def test_a_contradiction_is_an_alarm(file, tmp_path, capsys):
    """Without the payload in the hand that is there."""
    status, printed, data = run(file, tmp_path, capsys, "--body", "all")
    assert status == ExitStatus.FAILED and "ALARM: no parameters are consistent with all the data" in printed
    assert not data["is_usable"] and data["combinations"] == [] and "window" in data["alarm"]


def test_unknown_bodies_and_the_wrong_function_are_refused(file, robot, samples, capsys):
    assert door.main(["offline", file, "--model", MODEL, "--body", "elbow"]) == ExitStatus.BAD_INPUT
    assert "a joint or moving link: joint_1" in capsys.readouterr().err
    recording = Recording("test", (samples.slice(0, 10),), (0,))
    with pytest.raises(ParameterOutOfRange, match="other bodies are for identify_bodies"):
        offline.identify_recording(recording, robot, dataclasses.replace(EstimatorSettings(), body="all"))
