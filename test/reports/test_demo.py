"""What the demonstration of a calibration writes and compares; the motions before it are tested elsewhere."""

from dataclasses import replace

import numpy as np
import pytest
import yaml

from sysid_ros.cli import demo
from sysid_ros.cli.terminal import WIDTH, text_of
from sysid_ros.reports.recordings.files import read_recording


@pytest.mark.slow
def test_bounds_stand_beside_each_other_and_the_truth(robot, result, samples, monkeypatch, tmp_path):
    known = replace(robot, sensors=replace(robot.sensors, effort_gain_error=np.zeros(robot.n)))
    path = tmp_path / "samples.npz"
    np.savez(
        path, t=samples.stamps, q=samples.q, v=samples.v, tau=samples.tau, joints=np.array(robot.joint_names),
        units="t=ns, q=rad, v=rad/s, tau=Nm",
    )  # fmt: skip
    monkeypatch.setattr(demo, "read_recording", lambda _, one: read_recording(path, one))
    rows = [{"truth": float(value)} for value in result.truth]
    (tmp_path / "estimate.yaml").write_text(yaml.safe_dump({"estimate": {"parameters": rows}}))
    found = demo.compare(tmp_path, [("before", robot), ("after", known)])
    lines = found.markdown().splitlines()
    assert lines[0] == "|  | unit | before: bounds | after: bounds | before: +- | after: +- | truth |"
    assert len(lines) == 2 + 7 and all(line.count("|") == 8 for line in lines)
    for line in lines[2:]:
        cells = [cell.strip() for cell in line.split("|")][1:-1]
        truth = float(cells[-1])
        for bounds, radius in ((cells[2], cells[4]), (cells[3], cells[5])):
            low, high = map(float, bounds.split(" to "))
            assert low - 1e-4 <= truth <= high + 1e-4, line
            assert 0.5 * (high - low) == pytest.approx(float(radius), abs=2e-4)
    (tmp_path / "estimate.yaml").write_text(yaml.safe_dump({"estimate": {"parameters": [{"value": 1.0}]}}))
    assert demo.compare(tmp_path, [("before", robot)]).markdown().splitlines()[2].endswith("|  |")


def test_the_comparison_fits_a_terminal():
    lower, upper = np.full(7, -0.1234), np.full(7, -0.0123)
    found = demo.Comparison(("robot file alone", "calibrated"), ((2.0 * lower, upper), (lower, upper)), lower)
    lines = text_of(found.screen()).splitlines()
    assert len(lines) == 1 + 7 and max(map(len, lines)) <= WIDTH  # no cell is folded
    assert lines[1].split() == (
        ["mass", "kg", "-0.2468", "to", "-0.0123", "-0.1234", "to", "-0.0123", "2.11x", "-0.1234"]
    )
    assert lines[5].startswith("Ixx ")
