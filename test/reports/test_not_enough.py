"""Recordings that prove nothing: no headline, nothing that a robot could be fed with, a status, and what is missing."""

import dataclasses

import numpy as np
import pytest
import yaml
from recording_files import batches_of, write_csv, write_mcap, write_npz
from textbook import textbook_file

from sysid_ros.cli import main as door
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.estimation.parameters.estimate import Quantity
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.reports.torque_fit import predict_torque
from sysid_ros.reports.writer import write_results

pytestmark = pytest.mark.usefixtures("without_figures")
MODEL = textbook_file()
VENDOR_FILES = (
    "payload_kinova.yaml", "payload_kuka.yaml", "payload_ur.script", "payload_moveit.yaml", "payload_franka.json",
    "payload.sdf", "payload_mjcf.xml", "payload.xacro",
)  # fmt: skip


def write_as(form, path, robot, samples):
    if form == "mcap":
        return write_mcap(path, batches_of(robot, samples))
    return {"npz": write_npz, "csv": write_csv}[form](path, robot, samples)


def every(samples, step):
    kept = [getattr(samples, name)[::step] for name in ("stamps", "sequence", "q", "v", "tau")]
    return SampleBlock(kept[0], np.arange(len(kept[0])), *kept[2:])


def identify(file, folder, capsys, *options):
    status = door.main(["offline", str(file), "--model", MODEL, "--output", str(folder), *options])
    (written,) = folder.iterdir()
    return status, " ".join(capsys.readouterr().out.split()), written


CASES = {
    "too short": (
        lambda samples: samples.slice(0, 30),
        "lasts 0.058 s; samples come every 0.002 s",
        "record for longer",
    ),
    "too slow": (lambda samples: every(samples, 33), "samples come every 0.066 s (15.2 Hz)", "sample faster"),
    "6 s at 21 Hz": (lambda samples: every(samples, 24), "s at 20.8 Hz, the fastest joint joint_", "sample faster"),
}


# The other forms are read as the same samples, see below.
@pytest.mark.parametrize(
    ("case", "form"), [*((case, "npz") for case in CASES), ("too short", "csv"), ("too short", "mcap")]
)
def test_what_proves_nothing_leaves_nothing_to_feed_a_robot_with(case, form, robot, samples, tmp_path, capsys):
    cut, found, advice = CASES[case]
    file = write_as(form, tmp_path / f"recording.{form}", robot, cut(samples))
    status, printed, folder = identify(file, tmp_path / "results", capsys)
    assert status == ExitStatus.NOT_IDENTIFIED
    assert "NOT IDENTIFIED: no usable estimate" in printed and found in printed and advice in printed
    assert "Payload of" not in printed
    assert sorted(path.name for path in folder.iterdir()) == ["estimate.yaml", "report.html"]
    page = (folder / "report.html").read_text()
    assert "No usable estimate" in page and advice in page
    assert "weighs" not in page and "Guaranteed bounds" not in page and "state good" not in page
    data = yaml.safe_load((folder / "estimate.yaml").read_text())
    assert data["is_usable"] is False and "payload" not in data and advice in data["shortfall"]
    assert data["status"] == ("PRIOR_ONLY" if "Hz" in case else "NO_DATA")
    assert data["narrower_than_prior"] == {"mass": False, "com": False, "inertia": False}


def test_what_weighs_an_object_only_roughly_gives_no_vendor_files(robot, samples, tmp_path, capsys):
    """At 38 Hz its shape and the data leave out that there is next to nothing in the hand, and no more."""
    file = write_npz(tmp_path / "a.npz", robot, every(samples, 13))
    status, printed, folder = identify(file, tmp_path / "results", capsys)
    data = yaml.safe_load((folder / "estimate.yaml").read_text())
    assert status == ExitStatus.NOT_IDENTIFIED and "sample faster" in printed
    assert data["narrower_than_prior"] == {"mass": True, "com": False, "inertia": False}
    assert {path.name for path in folder.iterdir()}.isdisjoint(VENDOR_FILES)


def test_an_arm_at_rest_tells_no_inertia(robot, tmp_path, capsys):
    """Gravity alone: the mass is known better than before, the inertia is not."""
    count = 1500
    q = np.tile(robot.home, (count, 1))
    payload = robot.payload_prior.nominal
    tau = predict_torque(robot, payload, q, np.zeros_like(q), np.zeros_like(q))
    still = SampleBlock(np.arange(count) * 2_000_000, np.arange(count), q, np.zeros_like(q), tau)
    status, printed, folder = identify(write_npz(tmp_path / "a.npz", robot, still), tmp_path / "results", capsys)
    names = {path.name for path in folder.iterdir()}
    data = yaml.safe_load((folder / "estimate.yaml").read_text())
    assert status == ExitStatus.NOT_IDENTIFIED and "the arm has to move" in printed
    assert not data["narrower_than_prior"]["com"] and names.isdisjoint(VENDOR_FILES)


@pytest.mark.parametrize(
    ("known", "files"),
    [
        ((Quantity.MASS,), ()),
        ((Quantity.MASS, Quantity.COM), ("payload_kinova.yaml",)),
        ((Quantity.MASS, Quantity.INERTIA), ()),
        ((Quantity.COM, Quantity.INERTIA), ()),
        (tuple(Quantity), VENDOR_FILES),
    ],
)
def test_each_file_needs_its_own_quantities(known, files, result, tmp_path):
    estimate = dataclasses.replace(result.estimate, narrower=frozenset(known))
    written = write_results(dataclasses.replace(result, estimate=estimate, samples=None), tmp_path)
    assert {name for name in written.files if name.startswith("payload")} == set(files)
    assert ("robot_with_payload.urdf" in written.files) == (len(known) == 3)
    if Quantity.MASS in known:
        for name in set(VENDOR_FILES) - set(files):
            (text,) = [text for text in written.left_out if name in text.partition(" not written: ")[0]]
            assert " not written: the bounds of " in text
        assert len(written.left_out) <= 2  # one sentence for each reason, not for each file
    else:
        assert "no usable estimate" in written.left_out[-1]
