"""The results folder: what is in it, what is not there without a usable estimate, and that the numbers agree."""

import dataclasses
import re
from datetime import datetime

import numpy as np
import pytest
import yaml

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.parameters.estimate import Alarm, AlarmCode
from sysid_ros.core.model.inertia import PARAMETER_NAMES, from_com_form, is_physically_consistent, to_com_form
from sysid_ros.reports.folders import make_results_directory
from sysid_ros.reports.payload import exported_payload, summarize_payload, tool_parameters
from sysid_ros.reports.writer import write_results


@pytest.fixture(scope="module")
def written(result, tmp_path_factory):
    return write_results(result, tmp_path_factory.mktemp("results"))


def test_all_files_are_there(written):
    assert set(written.files) == {
        *("estimate.yaml", "robot_with_payload.urdf", "report.html"),
        *("payload_kinova.yaml", "payload_kuka.yaml", "payload_ur.script", "payload_moveit.yaml"),
        *("payload_franka.json", "payload.sdf", "payload_mjcf.xml", "payload.xacro"),
    }
    assert written.left_out == ()
    assert all((written.directory / name).stat().st_size > 100 for name in written.files)


def test_estimate_yaml_holds_every_number_exactly(result, written):
    data = yaml.safe_load((written.directory / "estimate.yaml").read_text())
    rows = data["estimate"]["parameters"]
    assert [row["name"] for row in rows] == list(PARAMETER_NAMES)
    for key in ("value", "lower", "upper"):
        expected = getattr(result.estimate, "values" if key == "value" else key)
        assert [row[key] for row in rows] == expected.tolist()
    assert [row["truth"] for row in rows] == result.truth.tolist() and all(row["is_inside"] for row in rows)
    assert data["guarantee"] == result.estimate.guarantee and data["is_usable"] is True
    tool = summarize_payload(result, result.robot.tool_frame)
    assert data["payload"]["at_tool"]["com_m"]["lower"] == tool.com.lower.tolist()
    assert data["payload"]["at_tool"]["frame"] == result.robot.tool_frame
    assert data["error_budget"]["terms"]["encoder"] == result.estimate.error_budget["encoder"].tolist()
    assert data["motions"][0]["hash"] == result.motions[0].trajectory.hash()


def test_what_leaves_the_house_is_the_estimate(result):
    known = exported_payload(result.robot, result.estimate)
    np.testing.assert_array_equal(known.values, result.estimate.values)
    assert is_physically_consistent(known.values) and np.all(known.contains(known.values))


def test_a_point_that_fits_best_leaves_with_some_extent(result):
    estimate = result.estimate
    mass, com, _ = to_com_form(estimate.values)
    lower = np.where(np.arange(10) < 4, estimate.lower, -1.0)
    upper = np.where(np.arange(10) < 4, estimate.upper, 1.0)
    point = from_com_form(mass, com, np.zeros((3, 3)))
    found = exported_payload(result.robot, dataclasses.replace(estimate, values=point, lower=lower, upper=upper)).values
    np.testing.assert_allclose(found[:4], point[:4], atol=1e-15)
    np.testing.assert_allclose(to_com_form(found)[2], 2.0 * mass * 0.005**2 * np.eye(3), atol=1e-12)
    known = dataclasses.replace(estimate, values=point, lower=point - 1e-9, upper=point + 1e-9)
    np.testing.assert_array_equal(exported_payload(result.robot, known).values, point)


def test_what_is_left_of_an_end_effector_is_the_nearest_body(result):
    robot, estimate = result.robot, result.estimate
    nominal = robot.theta_nominal[robot.inertial_slice(robot.n)]
    values = estimate.values + nominal
    values[9] = nominal[9] - 1e-3  # Izz of what is left is negative
    whole = dataclasses.replace(
        estimate, target="end_effector", values=values, lower=estimate.lower + nominal, upper=estimate.upper + nominal
    )
    left = exported_payload(robot, whole)
    assert is_physically_consistent(left.values) and np.all(left.contains(left.values))
    weights, rng = 1.0 / left.width, np.random.default_rng(5)
    least = np.linalg.norm(weights * (left.values - values + nominal))
    others = left.values + rng.normal(size=(9000, 10)) * rng.uniform(0.0, 0.02, (9000, 1)) * left.width
    bodies = [one for one in others if is_physically_consistent(one) and np.all(left.contains(one))]
    assert len(bodies) > 20 and least > 0.0
    assert min(np.linalg.norm(weights * (one - values + nominal)) for one in bodies) > 0.9 * least  # extent moves it


@pytest.mark.parametrize("target", ["payload", "end_effector"])
def test_what_has_no_bounds_leaves_as_it_is(result, target):
    values, end = np.r_[1.0, np.zeros(9)], np.full(10, np.inf)
    estimate = dataclasses.replace(result.estimate, target=target, values=values, lower=-end, upper=end)
    taken = 0.0 if target == "payload" else result.robot.theta_nominal[result.robot.inertial_slice(result.robot.n)]
    np.testing.assert_array_equal(exported_payload(result.robot, estimate).values, values - taken)
    none = dataclasses.replace(estimate, values=np.full(10, np.nan), lower=np.full(10, np.nan), upper=end)
    assert np.all(np.isnan(exported_payload(result.robot, none).values))


def test_each_number_has_its_bounds_and_a_rule_says_what_is_well_known(result, written):
    for name in ("payload_kinova.yaml", "payload_kuka.yaml", "payload_ur.script", "payload_moveit.yaml", "payload.sdf"):
        text = (written.directory / name).read_text()
        assert re.search(r"mass \[kg\]: \d\.\d{3} \+0\.\d{3} / -0\.\d{3}", text), name
        assert "centre of mass z [m]: " in text and "Iyz about the centre of mass [kg m^2]: " in text, name
    data = yaml.safe_load((written.directory / "estimate.yaml").read_text())["payload"]
    assert "within 20 mm along every axis" in data["rule"]
    assert data["well_known"] == {"mass": True, "com": True, "inertia": False}
    script = (written.directory / "payload_ur.script").read_text()
    assert (
        "NOT WELL KNOWN: inertia" in script
        and "# Without the inertia, which is not well known: the controller takes zero. With it:" in script
    )
    (call,) = [line for line in script.splitlines() if line.startswith("set_target_payload(")]
    assert call.count("[") == 1, "mass and centre of gravity alone"


def test_the_load_behind_the_flange_is_tool_and_payload(result, written):
    data = yaml.safe_load((written.directory / "payload_kuka.yaml").read_text())
    body = exported_payload(result.robot, result.estimate).values
    mass = tool_parameters(result.robot)[0] + body[0]
    digits = 0.1 * 0.5 * float(exported_payload(result.robot, result.estimate).width[0])
    assert data["tool_and_payload"]["M"] == pytest.approx(mass, abs=0.5 * digits)
    assert data["payload"]["M"] == pytest.approx(body[0], abs=0.5 * digits)
    note = (written.directory / "payload_kuka.yaml").read_text().splitlines()[0]
    assert f"{result.estimate.lower[0]:.3f} and {result.estimate.upper[0]:.3f} kg" in note


@pytest.mark.usefixtures("without_figures")
def test_without_a_usable_estimate_nothing_is_left_to_feed_a_robot_with(result, tmp_path):
    nothing = np.full(10, np.nan)
    alarm = Alarm(AlarmCode.WINDOW_INCONSISTENT, "joint_2 is inconsistent")
    estimate = dataclasses.replace(
        result.estimate, values=nothing, lower=nothing, upper=nothing, is_consistent=False, alarm=alarm
    )
    written = write_results(dataclasses.replace(result, estimate=estimate, predicted_tau=None), tmp_path)
    assert written.files == ("estimate.yaml", "report.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["estimate.yaml", "report.html"]
    assert written.left_out[0].endswith("no usable estimate"), "the reason is told once, above"
    data = yaml.safe_load((tmp_path / "estimate.yaml").read_text())
    assert data["is_usable"] is False and data["alarm"] == "joint_2 is inconsistent" and "payload" not in data
    assert "joint_2 is inconsistent" in (tmp_path / "report.html").read_text()


@pytest.mark.usefixtures("without_figures")
def test_a_payload_no_body_can_have_is_left_out_with_its_reason(result, tmp_path):
    values = result.estimate.values.copy()
    lower, upper = result.estimate.lower.copy(), result.estimate.upper.copy()
    values[9], lower[9], upper[9] = 1.0, 0.99, 1.01  # Izz above Ixx + Iyy
    estimate = dataclasses.replace(result.estimate, values=values, lower=lower, upper=upper)
    written = write_results(dataclasses.replace(result, estimate=estimate, samples=None), tmp_path)
    assert "robot_with_payload.urdf" not in written.files and "estimate.yaml" in written.files
    assert any("robot_with_payload.urdf, " in text and "were not written" in text for text in written.left_out)


def test_two_results_of_one_second_get_two_folders(tmp_path):
    now = datetime(2026, 3, 4, 5, 6, 7)
    folders = [make_results_directory(tmp_path / "results", now).name for _ in range(3)]
    assert folders == ["2026-03-04_05-06-07", "2026-03-04_05-06-07_2", "2026-03-04_05-06-07_3"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SysidError, match="cannot make the results folder .*file/"):
        make_results_directory(tmp_path / "file")


def test_a_file_that_cannot_be_written_is_named(result, tmp_path):
    with pytest.raises(SysidError, match="cannot write .*nowhere/estimate.yaml"):
        write_results(result, tmp_path / "nowhere")
