"""Recorded messages are decoded array by array, as the decoder of MCAP does number by number."""

import numpy as np
import pytest
from mcap_ros2.decoder import DecoderFactory
from recording_files import batches_of, write_mcap
from textbook import load_textbook

from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.reports.recordings.mcap import SAMPLES, mcap_reader, message_decoder

ARRAYS = {"stamps", "positions", "velocities", "efforts", "reference_positions", "reference_velocities",
          "reference_accelerations", "commanded_efforts", "valid"}  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A file's definition of batches, and its messages."""
    robot, rng, count = load_textbook("kinova_gen3"), np.random.default_rng(0), 45
    values = (rng.normal(size=(count, robot.n)) for _ in range(3))
    block = SampleBlock(10**18 + 10**6 * np.arange(count), 7 + np.arange(count), *values)
    path = write_mcap(tmp_path_factory.mktemp("batches") / "r.mcap", batches_of(robot, block))
    with open(path, "rb") as file:
        entries = list(mcap_reader.NonSeekingReader(file).iter_messages())
    return entries[0][0], [message.data for _, _, message in entries]


def test_every_field_is_that_of_the_decoder_of_mcap(recorded):
    schema, messages = recorded
    general, fast = DecoderFactory().decoder_for("cdr", schema), message_decoder(SAMPLES, schema.data.decode())
    assert schema.name == SAMPLES and len(messages) == 3
    for data in messages:
        one = general(data)
        for other in (fast(data), fast(data + bytes(40))):
            for name in ARRAYS:
                assert np.array_equal(getattr(one, name), getattr(other, name)), name
                assert isinstance(getattr(other, name), np.ndarray)
            assert list(one.modes) == list(other.modes) and list(one.joint_names) == other.joint_names
            for name in ("first_sequence", "payload_epoch", "dropped"):
                assert getattr(one, name) == getattr(other, name), name
            assert one.header.frame_id == other.header.frame_id == "base"
            assert one.header.stamp.sec == other.header.stamp.sec
            assert one.header.stamp.nanosec == other.header.stamp.nanosec


def test_other_encodings_and_cut_messages_are_errors(recorded):
    schema, messages = recorded
    decode = message_decoder(SAMPLES, schema.data.decode())
    with pytest.raises(ValueError, match=f"a message of {SAMPLES} is not in plain CDR"):
        decode(b"\x00\x03" + messages[0][2:])
    for end in (5, 40, 300, len(messages[0]) - 8):
        with pytest.raises(Exception, match="buffer|Invalid (sequence|string) length"):
            decode(messages[0][:end])
