"""Batches of samples are decoded as by the general decoder, without it; what is laid out differently goes to it."""

import numpy as np
import pytest
from mcap_ros2.decoder import DecoderFactory
from recording_files import batches_of, write_mcap
from textbook import load_textbook

from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.reports.recordings import mcap
from sysid_ros.reports.recordings.mcap import SAMPLES, mcap_reader
from sysid_ros.reports.recordings.sample_batches import batch_decoder

ARRAYS = {"stamps", "positions", "velocities", "efforts", "reference_positions", "reference_velocities",
          "reference_accelerations", "commanded_efforts", "valid"}  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A file, its definition of batches, and its messages."""
    robot, rng, count = load_textbook("kinova_gen3"), np.random.default_rng(0), 45
    values = (rng.normal(size=(count, robot.n)) for _ in range(3))
    block = SampleBlock(10**18 + 10**6 * np.arange(count), 7 + np.arange(count), *values)
    path = write_mcap(tmp_path_factory.mktemp("batches") / "r.mcap", batches_of(robot, block))
    with open(path, "rb") as file:
        entries = list(mcap_reader.NonSeekingReader(file).iter_messages())
    return path, entries[0][0], [message.data for _, _, message in entries]


def refuse(data):
    raise AssertionError("the general decoder is not needed")


def test_every_field_is_that_of_the_general_decoder(recorded):
    _, schema, messages = recorded
    general = DecoderFactory().decoder_for("cdr", schema)
    fast = batch_decoder(schema.data.decode(), refuse)
    assert len(messages) == 3
    for data in messages:
        one, other = general(data), fast(data)
        for name in ARRAYS:
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
        assert list(one.modes) == list(other.modes) and list(one.joint_names) == other.joint_names
        for name in ("first_sequence", "payload_epoch", "dropped"):
            assert getattr(one, name) == getattr(other, name), name
        assert one.header.frame_id == other.header.frame_id == "base"
        assert (one.header.stamp.sec, one.header.stamp.nanosec) == (other.header.stamp.sec, other.header.stamp.nanosec)


def test_reading_a_recording_unpacks_no_number_by_itself(recorded, monkeypatch):
    path, _, messages = recorded
    monkeypatch.setattr(mcap.mcap_ros2_decoder.DecoderFactory, "decoder_for", lambda *arguments: refuse)
    assert len(list(mcap.read_messages(path, {SAMPLES}))) == len(messages)


@pytest.mark.parametrize("change", [("float64[] efforts", "float32[] efforts"), ("bool[] valid", ""), ("int64[]", "#")])
def test_batches_that_are_defined_differently_go_to_the_general_decoder(recorded, change):
    definition = recorded[1].data.decode()
    assert change[0] in definition
    assert batch_decoder(definition.replace(*change), refuse) is refuse


def test_other_encodings_go_to_the_general_decoder_and_cut_messages_are_errors(recorded):
    _, schema, messages = recorded
    fast = batch_decoder(schema.data.decode(), lambda data: "general")
    assert fast(b"\x00\x03" + messages[0][2:]) == "general"
    for end in (5, 40, 300, len(messages[0]) - 8):
        with pytest.raises(ValueError, match="buffer"):
            fast(messages[0][:end])
