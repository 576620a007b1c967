"""Readers: the same samples from every form of file, and every kind of bad input by its name."""

import dataclasses
import re

import numpy as np
import pytest
from recording_files import ROOT, batches_of, write_csv, write_mcap, write_npz

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.reports.recordings.files import read_recording
from sysid_ros.reports.recordings.mcap import SAMPLES
from sysid_ros.reports.recordings.options import InvalidRecording, ReadOptions
from sysid_ros.reports.recordings.recording import RecordingWriter, message_definition, share_directories


def _same(recording, samples):
    found = recording.samples
    for name in ("stamps", "q", "v", "tau"):
        assert np.array_equal(getattr(found, name), getattr(samples, name)), name


def test_every_form_gives_the_same_samples(robot, short, tmp_path):
    for path in (
        write_npz(tmp_path / "a.npz", robot, short),
        write_csv(tmp_path / "a.csv", robot, short),
        write_mcap(tmp_path / "a.mcap", batches_of(robot, short)),
    ):
        recording = read_recording(path, robot)
        _same(recording, short)
        assert recording.notices == () and recording.caveats == () and recording.source == path.name


def test_a_recording_keeps_portions_references_and_metadata(robot, short, tmp_path):
    recording = read_recording(write_mcap(tmp_path / "a.mcap", batches_of(robot, short)), robot)
    assert [len(batch) for batch in recording.batches] == [20] * 15
    assert np.array_equal(recording.samples.sequence, short.sequence)
    assert np.array_equal(recording.reference_q, short.q + 1) and np.array_equal(recording.reference_v, short.v + 2)
    assert np.array_equal(recording.commanded_tau, short.tau + 3)
    assert recording.metadata == {"robot": "test"}


@pytest.mark.parametrize(
    "options", [{"units": {"v": "deg/s"}}, {"joint_names": {"a": "joint_1"}}, {"effort_sign": -1.0}]
)
def test_what_a_recording_of_the_suite_says_itself_cannot_be_told_otherwise(robot, short, tmp_path, options):
    path = write_mcap(tmp_path / "a.mcap", batches_of(robot, short))
    with pytest.raises(InvalidRecording, match="for a recording of this suite"):
        read_recording(path, robot, ReadOptions(**options))


def test_joints_are_matched_by_name(robot, short, tmp_path):
    turned = list(reversed(robot.joint_names))
    flip = dataclasses.replace(short, q=short.q[:, ::-1], v=short.v[:, ::-1], tau=short.tau[:, ::-1])
    _same(read_recording(write_npz(tmp_path / "a.npz", robot, flip, joints=np.array(turned)), robot), short)
    mcap = write_mcap(tmp_path / "a.mcap", batches_of(robot, flip, joint_names=turned))
    _same(read_recording(mcap, robot), short)


@pytest.mark.parametrize(("unit", "count"), [("ms", 1e-6), ("ps", 1000)])
def test_units_and_sign_are_converted(unit, count, robot, short, tmp_path):
    path = write_npz(
        tmp_path / "a.npz", robot, short, f"t={unit} q=deg v=deg/s tau=mNm",
        t=(short.stamps - short.stamps[0]) * count, q=np.degrees(short.q), v=np.degrees(short.v), tau=-1e3 * short.tau,
        effort_sign="-1",
    )  # fmt: skip
    found = read_recording(path, robot).samples
    assert np.array_equal(found.stamps, short.stamps - short.stamps[0])
    for name in ("q", "v", "tau"):
        assert np.allclose(getattr(found, name), getattr(short, name), rtol=1e-12, atol=1e-15)


def test_velocities_may_be_missing_and_that_is_said(robot, short, tmp_path):
    recording = read_recording(write_npz(tmp_path / "a.npz", robot, short, v=None), robot)
    error = np.abs(recording.samples.v - short.v).max(axis=0)
    assert np.all(error <= recording.velocity_error + 2e-4)
    assert "velocities were computed from the positions" in recording.caveats[0]
    names = ["t", *(f"{kind}_{joint}" for kind in ("q", "x", "tau") for joint in robot.joint_names)]
    from_csv = read_recording(write_csv(tmp_path / "a.csv", robot, short, names=names), robot)
    assert np.array_equal(from_csv.samples.v, recording.samples.v)


def test_gaps_are_told(robot, short, tmp_path):
    stamps = short.stamps.copy()
    stamps[100:] += 50_000_000
    recording = read_recording(write_npz(tmp_path / "a.npz", robot, short, t=stamps), robot)
    assert re.match(r"1 gap .* longest lasts 0.052 s, 0.198 s after .*period 0.002 s.*cut there", recording.notices[0])


def test_samples_that_are_not_valid_or_repeated_are_left_out(robot, short, tmp_path):
    batches = list(batches_of(robot, short))
    batches[3].valid[5] = False
    batches[4].efforts[0] = float("nan")
    batches.insert(7, batches[6])
    recording = read_recording(write_mcap(tmp_path / "a.mcap", batches), robot)
    assert len(recording.samples) == 298 and len(recording.reference_q) == 298
    assert set(recording.samples.sequence) == set(range(300)) - {65, 80}
    text = " ".join(recording.notices)
    assert "not valid" in text and "not finite" in text and "repeat earlier samples" in text and "gaps" in text


def test_payload_changes_are_kept(robot, short, tmp_path):
    batches = list(batches_of(robot, short))
    for batch in batches[10:]:
        batch.payload_epoch = 4
    assert read_recording(write_mcap(tmp_path / "a.mcap", batches), robot).payload_epochs == (0,) * 10 + (4,) * 5


def test_a_recording_begins_and_ends_where_the_estimate_did(robot, short, tmp_path):
    definition = {SAMPLES: message_definition(SAMPLES, (ROOT, *share_directories()))}
    for text, count in ((str(short.stamps[27]), 253), ("soon", None)):
        with RecordingWriter(tmp_path / "a.mcap", {"robot": "test"}, definition) as writer:
            for number, batch in enumerate(batches_of(robot, short)):
                writer.write("/samples", SAMPLES, batch, int(batch.stamps[-1]))
                if number == 5:  # known only after a while
                    assert writer.describe(first_stamp_ns=text, last_stamp_ns=str(short.stamps[279]))
        assert not writer.describe(first_stamp_ns="0")
        if count is None:
            with pytest.raises(InvalidRecording, match="'first_stamp_ns' is 'soon'; expected a whole number"):
                read_recording(tmp_path / "a.mcap", robot)
            continue
        recording = read_recording(tmp_path / "a.mcap", robot)
        _same(recording, short.slice(27, 280))
        assert recording.samples.sequence[0] == 27 and len(recording.reference_q) == count
        assert recording.metadata["robot"] == "test" and recording.metadata["first_stamp_ns"] == text


def test_a_recording_with_two_arms_asks_for_the_topic(robot, short, tmp_path):
    path = write_mcap(tmp_path / "a.mcap", batches_of(robot, short), ("/left/samples", "/right/samples"))
    with pytest.raises(
        InvalidRecording, match="topic of the samples is not given; expected one of /left/samples, /right"
    ):
        read_recording(path, robot)
    _same(read_recording(path, robot, ReadOptions(topics=("/right/samples",))), short)
    with pytest.raises(InvalidRecording, match="none on /middle; expected /left/samples, /right/samples"):
        read_recording(path, robot, ReadOptions(topics=("/middle",)))


def _npz(**changes):
    return lambda path, robot, samples: write_npz(path.with_suffix(".npz"), robot, samples, **changes)


def _csv(**changes):
    return lambda path, robot, samples: write_csv(path.with_suffix(".csv"), robot, samples, **changes)


def _changed(name, change):
    return lambda path, robot, samples: write_npz(
        path.with_suffix(".npz"), robot, samples, **{"t" if name == "stamps" else name: change(getattr(samples, name))}
    )


def _text(name, text):
    def write(path, robot, samples):
        path = path.with_name(name)
        path.write_bytes(text)
        return path

    return write


def _mcap(**changes):
    return lambda path, robot, samples: write_mcap(path.with_suffix(".mcap"), batches_of(robot, samples, **changes))


SEVEN = [f"joint_{i}" for i in range(1, 8)]
BAD = {
    "ending": (
        _text("a.txt", b""),
        "the ending is '.txt'; expected a folder of rosbag2 or .mcap, .db3, .bag, .csv, .npz",
    ),
    "missing file": (lambda path, robot, samples: path.with_name("no.npz"), "the file is missing"),
    "not an npz": (_text("a.npz", b"hello"), "the file is there, but no NPZ file; expected"),
    "not an mcap": (_text("a.mcap", b"hello world, hello world"), "a.mcap: the bag is unreadable .not a valid MCAP"),
    "empty mcap": (
        lambda p, r, s: write_mcap(p.with_suffix(".mcap"), []),
        "of this suite's samples is none on any topic",
    ),
    "not text": (_text("a.csv", b"\xff\xfe\x00"), "the text is unreadable"),
    "array missing": (
        _npz(tau=None),
        "array 'tau' is missing; expected t, q, tau and optionally v; the file has t, q, v",
    ),
    "array of texts": (_npz(q=np.array(["a"])), "the type of array 'q' is <U1; expected numbers"),
    "shape": (_npz(q=np.zeros((300, 6))), r"the shape of array 'q' is \(300, 6\); expected \(300, 7\)"),
    "joints missing": (
        _npz(joints=None),
        "'joints' is missing; expected the names of the joints, in the order of the columns; .* has joint_1, ",
    ),
    "unknown joint": (
        _npz(joints=np.array([*SEVEN[:6], "elbow"])),
        "the list of joints is without joint_7; the file has joint_1.*in this order --map elbow=joint_7",
    ),
    "joint left out": (
        lambda p, r, s: write_npz(
            p.with_suffix(".npz"), r, s, joints=np.array(SEVEN[:6]), q=s.q[:, :6], v=s.v[:, :6], tau=s.tau[:, :6]
        ),
        "the list of joints is without joint_7",
    ),
    "units missing": (_npz(units=None), "'units' is missing; expected text like 't=s"),
    "unknown unit": (_npz(units="t=ns, q=grad, v=rad/s, tau=Nm"), "the unit 'q=grad' is unknown; .*q=rad or deg"),
    "unit left out": (_npz(units="t=ns, q=rad, tau=Nm"), "the unit of v is missing; expected v=rad/s or deg/s"),
    "sign": (_npz(effort_sign="2"), "effort_sign is 2; expected 1 .*or -1"),
    "wrong unit of q": (
        _changed("q", np.degrees),
        r"the position of joint_\d in sample \d+ is -?[\d.]+ rad; expected .*'q=deg'",
    ),
    "wrong unit of v": (
        _changed("v", lambda v: 100.0 + 0.0 * v),
        r"the velocity of joint_\d in sample 0 is 100 rad/s; expected .*'v=deg/s'",
    ),
    "wrong unit of tau": (
        _changed("tau", lambda tau: 1e3 * tau),
        "the size of the efforts is 1000 of what gravity needs .*mNm.*: say .* 'tau=mNm'",
    ),
    "wrong unit of t": (_npz(units="t=s, q=rad, v=rad/s, tau=Nm"), "the usual time between samples is .*'t=ns'"),
    "falling stamps": (
        _changed("stamps", lambda t: np.roll(t, 150)),
        r"the time is not rising in 150 of 300 samples, first .* s after the first sample",
    ),
    "sign of the torques": (
        _changed("tau", np.negative),
        "the direction of the efforts is against the joints, .*'effort_sign: -1'",
    ),
    "torques of zero": (
        _npz(tau=np.zeros((300, 7))),
        "the effort of joint_1 is missing, or zero throughout; expected meas",
    ),
    "one sample": (
        lambda p, r, s: write_npz(p.with_suffix(".npz"), r, s.slice(0, 1)),
        "the number of samples is 1; expected at least 2",
    ),
    "too short for velocities": (
        lambda p, r, s: write_npz(p.with_suffix(".npz"), r, s.slice(0, 9), v=None),
        "the velocity is missing; expected columns of velocities; velocities cannot be computed from 9 samples",
    ),
    "csv header": (_csv(header=["# units: t=s"]), "the unit of q is missing; expected q=rad or deg"),
    "csv column": (_csv(edit=lambda text: text.replace("tau_joint_4", "x")), "column 'tau_joint_4' is missing"),
    "csv twice": (_csv(edit=lambda text: text.replace("q_joint_4", "q_joint_5")), "column 'q_joint_4' is missing"),
    "csv word": (
        _csv(edit=lambda text: text[:-20] + ",oops,1\n"),
        "the number of values in line 304 is|column .* in line 304",
    ),
    "csv number": (
        _csv(edit=lambda text: re.sub(r"(?m)^(\d{19}),[^,]*,", r"\1,abc,", text, count=1)),
        "column 'q_joint_1' in line 5 is 'abc'; expected a number",
    ),
    "csv empty": (_text("a.csv", b"# joints: a\n# units: t=s\n"), "the number of data lines is 0"),
    "mcap joints": (_mcap(joint_names=[*SEVEN[:6], "elbow"]), "is without joint_7; .*--map elbow=joint_7"),
    "mcap length": (_mcap(efforts=[0.0] * 6), "the length of efforts in a batch is 6; expected 140"),
    "mcap valid": (_mcap(valid=[True]), "the length of valid in a batch is 1; expected 20"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_by_name(case, robot, short, tmp_path):
    write, message = BAD[case]
    path = write(tmp_path / "a.txt", robot, short)
    with pytest.raises(SysidError, match=message) as caught:
        read_recording(path, robot)
    if not isinstance(caught.value, ParameterOutOfRange):
        assert path.name in str(caught.value)


def test_what_the_nodes_send_is_read_back(robot, short, tmp_path):
    """The real message, serialized by ROS, against the reader that knows only its definition."""
    serialization = pytest.importorskip("rclpy.serialization")
    conversions = pytest.importorskip("sysid_ros.ros.conversions.samples")
    size = len(short)
    sent = conversions.Samples(
        short.stamps, short.sequence, short.q, short.v, short.tau, short.q + 1, short.v + 2, np.zeros_like(short.q),
        short.tau + 3, np.ones(size, dtype=bool), np.full(size, 2, dtype=np.uint8), payload_epoch=3,
    )  # fmt: skip
    message = conversions.samples_to_message(sent, robot.joint_names, "base_link")
    with RecordingWriter(tmp_path / "a.mcap") as writer:
        writer.write("/arm_driver/samples", SAMPLES, serialization.serialize_message(message), int(short.stamps[-1]))
    recording = read_recording(tmp_path / "a.mcap", robot)
    _same(recording, short)
    assert recording.payload_epochs == (3,) and np.array_equal(recording.commanded_tau, short.tau + 3)
