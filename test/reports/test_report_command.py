"""``sysid report``: the files of a run again, from its recording alone."""

from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from recording_files import ROOT, batches_of
from textbook import load_textbook, textbook_file

from sysid_ros.cli import main as door
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.reports.recordings import runs
from sysid_ros.reports.recordings.mcap import SAMPLES
from sysid_ros.reports.recordings.recording import RecordingWriter, message_definition, share_directories
from sysid_ros.reports.recordings.runs import RecordedRun, read_run

STATUS, TRUTH = "sysid_msgs/msg/DriverStatus", "sysid_msgs/msg/SimulationTruth"


@pytest.fixture
def folder(robot, samples, result, tmp_path):
    """A results folder with an estimate and the recording of a run that followed a plan from 0.5 s on."""
    kinds = (SAMPLES, STATUS, TRUTH)
    definitions = {kind: message_definition(kind, (ROOT, *share_directories())) for kind in kinds}
    turned = list(reversed(PARAMETER_NAMES))
    with RecordingWriter(tmp_path / "recording.mcap", {}, definitions) as writer:
        truth = {"valid": True, "names": turned, "payload": result.truth[::-1].tolist(), "units": [""] * 10}
        writer.write("/arm_driver/truth", TRUTH, truth, int(samples.stamps[0]))
        for batch in batches_of(robot, samples):
            writer.write("/arm_driver/samples", SAMPLES, batch, int(batch.stamps[-1]))
        stamp = int(samples.stamps[0]) + 1_500_000_000
        header = {"stamp": {"sec": stamp // 10**9, "nanosec": stamp % 10**9}, "frame_id": ""}
        writer.write("/arm_driver/status", STATUS, {"header": header, "plan_id": "p1", "progress": 0.25}, stamp)
    (tmp_path / "estimate.yaml").write_text(yaml.safe_dump({"robot": robot.name, "source": "online"}))
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_files_are_made_again_with_the_truth(folder, robot, result, capsys):
    words = ["--model", textbook_file(), "--output", str(folder / "again")]
    assert door.main(["report", str(folder), *words]) == ExitStatus.OK
    (made,) = (folder / "again").iterdir()
    data = yaml.safe_load((made / "estimate.yaml").read_text())
    assert data["robot"] == robot.name and (made / "report.html").is_file()
    rows = data["estimate"]["parameters"]
    np.testing.assert_allclose([row["truth"] for row in rows], result.truth, rtol=1e-9)
    assert all(row["lower"] <= row["truth"] <= row["upper"] for row in rows)
    assert str(made) in capsys.readouterr().out.replace("\n", "")


def test_motions_begin_when_their_progress_says(folder, samples, motion, monkeypatch):
    plan = SimpleNamespace(
        plan_id="p1",
        trajectory=motion.trajectory,
        certificate=SimpleNamespace(claims="holds", margins=(), issued_at=7.0),
    )
    other = SimpleNamespace(plan_id="p2", trajectory=motion.trajectory)
    monkeypatch.setattr(runs, "read_plans", lambda path: [plan, other])
    monkeypatch.setattr(runs, "holds", lambda path, kind: True)
    (found,) = read_run(folder / "recording.mcap").motions(int(samples.stamps[0]))
    assert found.start == pytest.approx(1.5 - 0.25 * motion.trajectory.duration) and found.claims == "holds"


def test_another_arm_or_a_missing_recording_is_refused(folder, robot, capsys, monkeypatch):
    monkeypatch.setattr(RecordedRun, "fits", lambda self, robot: False)
    assert door.main(["report", str(folder), "--output", str(folder / "again")]) == ExitStatus.BAD_INPUT
    told = capsys.readouterr().err
    assert f"the arm is another than '{robot.name}' is now; expected the settings file of that run: --model" in told
    (folder / "recording.mcap").unlink()
    assert door.main(["report", str(folder)]) == ExitStatus.BAD_INPUT
    assert "recording.mcap is missing; expected the recording itself (online), with --model" in capsys.readouterr().err
    assert not (folder / "again").exists()


def test_plans_of_an_arm_with_another_box_do_not_fit(robot):
    from sysid_ros.core.certification.assumptions import robot_hash

    def plan(of, box):
        return SimpleNamespace(certificate=SimpleNamespace(robot_hash=robot_hash(of)), boxes=(box,))

    assert RecordedRun((plan(robot, robot.theta_box),)).fits(robot)
    assert not RecordedRun((plan(robot, robot.payload_prior.box),)).fits(robot)
    assert not RecordedRun((plan(load_textbook("kinova_gen3"), robot.theta_box),)).fits(robot)
