"""The command and its reports: answers, files, and what is refused."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml
from textbook import load_textbook, textbook_file

from sysid_ros.cli.main import main
from sysid_ros.core.identifiability.mechanism import PayloadIdentifiability, compare_with_exact
from sysid_ros.core.identifiability.report import report_data, report_structure
from sysid_ros.core.identifiability.structure import analyze_structure
from sysid_ros.core.identifiability.tree import TreeBody, build_tree, prismatic, revolute
from sysid_ros.core.identifiability.tree_readers import tree_from_model
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.reports.identifiability import (
    IdentifiabilityResult,
    dimensions,
    identifiability_html,
    identifiability_markdown,
)

ROOT = Path(__file__).parents[2]
MED7 = ROOT / "urdf" / "kuka_lbr_med7.urdf"


class Page(HTMLParser):
    """Texts of a page, and whether every tag is closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.words, self.tables = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br", "path", "use", "rect"):
            self.open.append(tag)
        assert not any(name in ("src",) or (name == "href" and not value.startswith("#")) for name, value in attrs)

    def handle_endtag(self, tag):
        if tag not in ("path", "use", "rect"):
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def run(capsys, *arguments):
    status = main(["identifiability", *map(str, arguments)])
    output = capsys.readouterr()
    return status, output.out, output.err


def recording(path, moving, seconds=8.0):
    rng, times = np.random.default_rng(0), np.arange(0.0, seconds, 0.004)
    amplitude = np.where(np.isin(np.arange(7), moving), 0.5, 0.0)
    rate, phase = rng.uniform(1.0, 2.5, 7), rng.uniform(0.0, 6.0, 7)
    angle = np.outer(times, rate) + phase
    q = np.array([0, 0.3, 0, 1.2, 0, 0.9, 0]) + amplitude * np.sin(angle)
    v = amplitude * rate * np.cos(angle)
    names = [f"joint_{k}" for k in range(1, 8)]
    np.savez(path, t=times, q=q, v=v, tau=0 * q, joints=names, units="t=s, q=rad, v=rad/s, tau=Nm")
    return path


def test_answer_for_a_urdf(capsys):
    status, out, _ = run(capsys, "--urdf", MED7)
    assert status == 0
    assert "kuka_lbr_med7 has 43 base parameters out of 70 unknown ones" in out
    assert re.search(r"^Izz +● +○ +● ", out, re.M) and "★ identifiable on its own" in out
    assert re.search(r"^dim V +1 \(2\) +3 \(5\)", out, re.M)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--gravity", "0", "0", "0"], 39),
        (["--gravity", "4.905", "0", "-8.496"], 45),
        (["--floating"], 59),
        (["--lock", "lbr_A7"], 36),
        (["--static"], 12),
        (["--measured", "base_wrench"], 50),
        (["--joint-parameters", "F_c", "F_v"], 57),
        (["--known", "lbr_A1", "lbr_A2", "lbr_A3", "lbr_A4", "lbr_A5", "lbr_A6"], 10),
    ],
)
def test_options_reach_the_analysis(capsys, options, count):
    status, out, _ = run(capsys, "--urdf", MED7, *options)
    assert status == 0
    assert f"has {count} base parameters" in out, out.splitlines()[0]


def test_rotors_and_all_files(capsys, tmp_path):
    rotors = tmp_path / "rotors.yaml"
    rotors.write_text("rotors: {" + ", ".join(f"lbr_A{k}: {{gear_ratio: 100}}" for k in range(1, 8)) + "}")
    files = [tmp_path / name for name in ("r.html", "r.md", "r.yaml")]
    status, out, _ = run(
        capsys, "--urdf", MED7, "--rotors", rotors, "--html", files[0], "--markdown", files[1], "--yaml", files[2]
    )
    assert status == 0 and "has 48 base parameters" in out  # the first two motors are not felt by other joints
    text = " ".join(Page(files[0].read_text()).words)
    assert "48 base parameters" in text and "lbr_A3.I_m can be known on its own." in text
    assert "| I_m | ○ | ○ | ★ |" in files[1].read_text()
    document = yaml.safe_load(files[2].read_text())
    assert document["number_of_base_parameters"] == len(document["base_parameters"]) == 48
    first = document["base_parameters"][0]
    assert first["name"] == "lbr_A1.Izz" and first["coefficients"]["lbr_A1.I_m"] == pytest.approx(1e4)
    assert document["parameters"]["lbr_A1.m"]["class"] == "unidentifiable"


def test_what_a_recording_knows(capsys, tmp_path):
    data = recording(tmp_path / "r.npz", (0, 1, 2, 3))
    page = tmp_path / "r.html"
    status, out, _ = run(capsys, "--model", textbook_file("kinova_gen3"), "--data", data, "--html", page)
    assert status == 0
    assert re.search(r"\d+ of 69 combinations that can be known have not been excited enough", out)
    assert re.search(r"[Mm]oving joint_\d.* rad/s \(faster than so far: .*for 5 s would determine \d+ more", out)
    text = page.read_text()
    Page(text)
    assert "What this data knows" in text and 'id="spectrum0-' in text and "unbounded" in text


@pytest.mark.slow
def test_what_a_recording_knows_of_a_payload(capsys, tmp_path):
    """Torques of a payload of 1 kg give guaranteed bounds; torques of zero contradict every payload."""
    robot = load_textbook("kinova_gen3")
    data, page = recording(tmp_path / "r.npz", range(7)), tmp_path / "r.html"
    arguments = ("--model", textbook_file("kinova_gen3"), "--data", data, "--unknown", "payload", "--html", page)
    status, out, _ = run(capsys, *arguments)
    assert status == 0 and "has 10 base parameters out of 10 unknown ones" in out
    assert "No guaranteed bounds of the payload: " in out and "guaranteed bounds</th>" not in page.read_text()

    arrays = dict(np.load(data))
    theta = robot.theta_nominal.copy()
    payload = robot.payload_prior.nominal / robot.payload_prior.nominal[0]
    theta[robot.inertial_slice(7)] += payload
    a = np.gradient(arrays["v"], arrays["t"], axis=0)
    torque = TorqueRegressor(robot).evaluate(arrays["q"], arrays["v"], a) @ theta
    torque[1:] = 0.5 * (torque[1:] + torque[:-1])  # this robot's sensor holds the mean since the sample before
    arrays["tau"] = torque
    np.savez(data, **arrays)
    status, out, _ = run(capsys, *arguments)
    assert status == 0 and "No guaranteed bounds" not in out
    row = re.search(r"<tr><td>joint_7.m</td>.*?\[([^,]+), ([^\]]+)\]", page.read_text())
    lower, upper = (float(word.replace("−", "-")) for word in row.groups())
    assert lower <= 1.0 <= upper and upper - lower < 1.5


def test_rounded_geometry_is_told(capsys, tmp_path):
    text = (ROOT / "urdf" / "kinova_gen3.urdf").read_text()
    rounded = tmp_path / "rounded.urdf"
    rounded.write_text(text.replace("1.5707963267948966", "1.5708").replace("3.141592653589793", "3.1416"))
    page = tmp_path / "r.html"
    status, out, _ = run(capsys, "--urdf", rounded, "--html", page)
    assert status == 0
    assert "has 43 base parameters" in out and "geometry as written gives 45 base parameters" in out
    assert "joint_1.mcx, joint_1.mcy" in out
    assert "Rounded geometry" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--urdf", "missing.urdf"], "missing.urdf"),
        (["--urdf", str(MED7), "--lock", "elbow"], "invalid joint 'elbow'"),
        (["--urdf", str(MED7), "--tolerance", "2"], "tolerance"),
        (["--urdf", str(MED7), "--data", "x.npz"], "a recording of an arm that --model names"),
        (["--urdf", str(MED7), "--gravity", "0", "nan", "0"], "gravity"),
        (["--model", "kinova_gen3", "--floating"], "only with a URDF"),
        (["--model", "no_such_arm"], "unknown"),
        (["--urdf", str(MED7), "--rotors", str(MED7)], "rotors"),
        (["--urdf", str(MED7), "--html", "/no/such/folder/r.html"], "/no/such/folder"),
    ],
)
def test_bad_input_ends_with_a_message_and_status_2(capsys, arguments, message):
    status, _, err = run(capsys, *arguments)
    assert status == 2
    assert err.startswith("error: ") and message in err and "Traceback" not in err


def scara():
    offsets, kinds = ((0, 0, 0), (0.1, 0, 0), (0.2, 0, 0), (0, 0, 0)), (revolute, revolute, prismatic, revolute)
    bodies = [
        TreeBody(f"j{k + 1}", k - 1, np.eye(3), np.array(p, dtype=float), make([0, 0, 1]))
        for k, (p, make) in enumerate(zip(offsets, kinds, strict=True))
    ]
    return build_tree("SCARA <R&D>", bodies)


def test_an_empty_file_of_rotors_is_no_file_without_rotors(capsys, tmp_path):
    path = tmp_path / "rotors.yaml"
    for text in ("", "\n"):
        path.write_text(text)
        status, _, err = run(capsys, "--urdf", MED7, "--rotors", path)
        assert status == 2 and "is empty" in err and str(path) in err


def test_page_and_text_of_any_mechanism():
    comparison = compare_with_exact(analyze_structure(scara()))
    result = IdentifiabilityResult(comparison, source="a & b")
    page = identifiability_html(result)
    Page(page)
    assert "SCARA &lt;R&amp;D&gt;" in page and "<R&D>" not in page
    rows = dict(dimensions(result.structure))  # table 4 of the paper
    assert rows["dim V"] == ("1 (2)", "3 (4)", "4 (4)", "4 (4)")
    assert rows["dim K"] == ("1 (1)", "4 (4)", "4 (4)", "4 (4)")
    assert rows["dim T"] == ("9", "7", "9", "7")
    text = identifiability_markdown(result)
    assert "| dim T | 9 | 7 | 9 | 7 |" in text
    assert "| 4 | j2.Izz + 0.4 j3.mcx + j3.Izz | kg m^2 |" in text


def test_reports_have_the_fields_of_the_message():
    comparison = compare_with_exact(analyze_structure(scara()))
    report = report_structure(comparison)
    fields = re.findall(
        r"^(?:string|uint8|uint32|float64)(?:\[\])? (\w+) ",
        (ROOT / "sysid_msgs" / "msg" / "IdentifiabilityReport.msg").read_text(),
        re.M,
    )
    fields = [name for name in fields if not name.startswith("CLASS_")]
    assert fields == list(vars(report))
    assert len(report.base_parameters) == 8 and report.classes.count(2) > 0
    assert all(len(part) == 40 for part in (report.names, report.units, report.classes, report.combinations))
    assert np.isnan(report.condition_number) and report.method == "structural"
    assert report_data.__doc__


def test_payload_reports_from_the_estimators_information():
    robot = load_textbook()
    payload = PayloadIdentifiability(robot)
    q = np.random.default_rng(0).uniform(-1, 1, (50, 7))
    rows = TorqueRegressor(robot, bodies=(7,)).evaluate(q, 0 * q, 0 * q)[..., :10].reshape(-1, 10)
    gram = rows.T @ rows  # at rest only mass and first moment show
    analysis = payload.analyze(gram, robot.payload_prior.box)
    assert payload.row_error > 0.0
    assert np.count_nonzero(analysis.singular_values > 1e-6) == 4
    assert list(np.isfinite(analysis.deviations)) == [True] * 4 + [False] * 6
    advice = payload.advise(analysis, gram, np.zeros(7))
    report = report_data(analysis, advice)
    assert report.method == "data" and len(report.singular_values) == 10
    assert report.condition_number == np.inf or report.condition_number > 1e5
    assert "moving" in report.text.lower()
    tree = tree_from_model(robot.pin_model)
    assert payload.structure.count == 10 and len(tree.bodies) == 7
    assert PayloadIdentifiability(robot).analyze(np.zeros((10, 10))).determined == 0
