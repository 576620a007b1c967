"""Recordings: written in a thread, complete after close, read by the standard reader."""

import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory

from sysid_ros.core.common.errors import SysidError
from sysid_ros.reports.recordings import recording
from sysid_ros.reports.recordings.mcap import DamagedRecording, read_messages, read_metadata
from sysid_ros.reports.recordings.recording import SEPARATOR, RecordingWriter

DEFINITIONS = {
    "demo_msgs/msg/Numbers": f"Point[] points\nfloat64[] data\nint64 count\nstring text\n{SEPARATOR}\n"
    "MSG: demo_msgs/Point\nfloat64 x\nfloat32 y\n",
    "demo_msgs/msg/Flag": "bool on\n",
}
NUMBERS, FLAG = DEFINITIONS


def _numbers(k):
    point = SimpleNamespace(x=0.5 * k, y=-1.0)
    return SimpleNamespace(points=[point], data=np.arange(k % 40, dtype=float).tolist(), count=-k, text=f"number {k}")


def _write(path, count=200, metadata=None):
    with RecordingWriter(path, metadata, DEFINITIONS) as writer:
        for k in range(count):
            assert writer.write("/numbers", NUMBERS, _numbers(k), 1_000_000 * k)
            if k % 10 == 0:
                assert writer.write("/flag", FLAG, {"on": k % 20 == 0}, 1_000_000 * k + 7)
    return writer


def test_the_standard_reader_sees_everything(tmp_path):
    path = tmp_path / "recording.mcap"
    writer = _write(path, metadata={"robot": "arm"})
    assert writer.dropped == 0
    with open(path, "rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        assert reader.get_header().profile == "ros2"
        summary = reader.get_summary()
        assert summary.statistics.message_count == 220
        assert {s.name: s.encoding for s in summary.schemas.values()} == dict.fromkeys(DEFINITIONS, "ros2msg")
        assert {s.name: s.data.decode() for s in summary.schemas.values()} == DEFINITIONS
        assert {c.topic: c.message_encoding for c in summary.channels.values()} == {"/numbers": "cdr", "/flag": "cdr"}
        assert [(m.name, m.metadata) for m in reader.iter_metadata()] == [("sysid_ros", {"robot": "arm"})]
        decoded = list(reader.iter_decoded_messages(topics="/numbers"))
    for k, (_, _, message, values) in enumerate(decoded):
        assert (message.log_time, message.sequence) == (1_000_000 * k, k)
        assert values.points[0].x == 0.5 * k and values.points[0].y == -1.0
        assert list(values.data) == list(range(k % 40)) and values.count == -k and values.text == f"number {k}"
    assert [m.message.on for m in read_messages(path) if m.topic == "/flag"][:3] == [True, False, True]


def test_serialized_ros_messages_are_written_as_they_are(tmp_path):
    serialization = pytest.importorskip("rclpy.serialization")
    JointState = pytest.importorskip("sensor_msgs.msg").JointState

    message = JointState(name=["a", "b"], position=[1.0, 2.0], effort=[-3.0])
    message.header.stamp.sec, message.header.frame_id = 12, "base"
    raw = serialization.serialize_message(message)
    with RecordingWriter(tmp_path / "r.mcap") as writer:
        writer.write("/joint_states", "sensor_msgs/msg/JointState", raw, 5)
        writer.write("/joint_states", "sensor_msgs/msg/JointState", message, 6)
    first, second = read_messages(tmp_path / "r.mcap")
    for entry in (first, second):
        assert list(entry.message.name) == ["a", "b"] and list(entry.message.position) == [1.0, 2.0]
        assert entry.message.header.stamp.sec == 12 and entry.message.header.frame_id == "base"


def test_writing_never_waits_and_counts_what_found_no_room(tmp_path, monkeypatch):
    gate = threading.Event()
    add = recording._McapFile.add
    monkeypatch.setattr(recording, "QUEUE_LENGTH", 10)
    monkeypatch.setattr(recording._McapFile, "add", lambda self, entry: (gate.wait(), add(self, entry)))
    writer = RecordingWriter(tmp_path / "r.mcap", definitions=DEFINITIONS)
    started = time.monotonic()
    taken = [writer.write("/flag", FLAG, {"on": True}, k) for k in range(100)]
    assert time.monotonic() - started < 1.0
    assert 10 <= sum(taken) <= 11 and writer.dropped == 100 - sum(taken)
    gate.set()
    writer.close()
    assert sum(taken) == len(list(read_messages(tmp_path / "r.mcap")))


def test_a_bad_message_costs_only_itself(tmp_path):
    writer = RecordingWriter(tmp_path / "r.mcap", definitions=DEFINITIONS)
    writer.write("/flag", FLAG, {"on": True}, 1)
    writer.write("/odd", "no_such_pkg/msg/Nothing", {"x": 1}, 2)
    writer.write("/numbers", NUMBERS, SimpleNamespace(points="?"), 3)
    writer.write("/flag", FLAG, {"on": False}, 4)
    with pytest.raises(SysidError, match="/odd .no_such_pkg/msg/Nothing.*looked into.*/numbers"):
        writer.close()
    assert [m.stamp_ns for m in read_messages(tmp_path / "r.mcap")] == [1, 4]
    assert writer.dropped == 2


def test_a_full_disk_is_told_when_closing(tmp_path, monkeypatch):
    def fail(self, entry):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recording._McapFile, "add", fail)
    writer = RecordingWriter(tmp_path / "r.mcap", definitions=DEFINITIONS)
    writer.write("/flag", FLAG, {"on": True}, 1)
    with pytest.raises(SysidError, match="No space left"):
        writer.close()
    assert not writer.write("/flag", FLAG, {"on": True}, 2) and writer.dropped == 1
    writer.close()


def test_a_file_that_cannot_be_made_is_named(tmp_path):
    with pytest.raises(SysidError, match="cannot write the recording .*nowhere.*No such file"):
        RecordingWriter(tmp_path / "nowhere" / "r.mcap")


def test_ctrl_c_leaves_a_complete_file(tmp_path):
    """A process that never calls close and dies of an interrupt."""
    script = (
        "import os, signal, sys\n"
        "from sysid_ros.reports.recordings.recording import RecordingWriter\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run in the background it is ignored\n"
        "writer = RecordingWriter(sys.argv[1], definitions={'demo_msgs/msg/Flag': 'bool on\\n'})\n"
        "for k in range(3000):\n"
        "    writer.write('/flag', 'demo_msgs/msg/Flag', {'on': True}, k)\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
    )
    path = tmp_path / "r.mcap"
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60)
    assert "KeyboardInterrupt" in done.stderr and done.returncode != 0
    with open(path, "rb") as file:
        assert make_reader(file).get_summary().statistics.message_count == 3000


def test_a_recording_that_was_cut_off_reads_as_far_as_it_goes(tmp_path):
    path = tmp_path / "r.mcap"
    _write(path, 3000, {"robot": "arm"})
    data = path.read_bytes()
    path.write_bytes(data[: int(0.6 * len(data))])
    seen = []
    with pytest.raises(DamagedRecording, match="r.mcap is not a complete MCAP file"):
        for entry in read_messages(path):
            seen.append(entry.stamp_ns)
    assert len(seen) > 500 and seen == sorted(seen)
    assert read_metadata(path) == {"robot": "arm"}


def test_what_is_no_mcap_file_is_called_so(tmp_path):
    path = tmp_path / "r.mcap"
    path.write_text("# joints: joint_1\ntime,joint_1\n")
    with pytest.raises(DamagedRecording, match="r.mcap is not a complete MCAP file: it does not begin as one"):
        list(read_messages(path))
