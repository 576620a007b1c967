"""Inputs and outputs of the emulated controller: on the wire, in its table, and what it says of wrong ones."""

import numpy as np
import pytest
from fri_bench import make_controller

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.drivers.kuka_fri.codec import FriCodec
from sysid_ros.drivers.kuka_fri.link import FriSession
from sysid_ros.drivers.kuka_fri.messages import Command, IoDirection, IoType, IoValue, SessionState
from sysid_ros.drivers.modes import FriVersion
from sysid_ros.drivers.network import InvalidFrame
from sysid_ros.emulators.arguments import fri_parser
from sysid_ros.emulators.fri.__main__ import setup_of
from sysid_ros.emulators.fri.ios import IoTable, read_io

CLOSED = IoValue("closed", IoType.BOOLEAN, IoDirection.INPUT, 1)
CLOSE = IoValue("close", IoType.BOOLEAN, IoDirection.OUTPUT, 0)
TOOL = IoValue("tool", IoType.DIGITAL, IoDirection.OUTPUT, 0)
FORCE = IoValue("force", IoType.ANALOG, IoDirection.OUTPUT, 0.0)
ALL = (CLOSED, CLOSE, TOOL, FORCE)
ASKED = (CLOSE._replace(value=1), TOOL._replace(value=2**40 + 1), FORCE._replace(value=-2.5))


@pytest.mark.parametrize("version", list(FriVersion))
def test_a_client_reads_all_and_sets_outputs(version):
    """In every state that is answered, also without a position, as clients of 2.x answer while they monitor."""
    controller = make_controller(version=version, ios=ALL)
    codec = FriCodec(version)
    session, inbox = FriSession(codec), []
    for _ in range(100):
        message = session.receive(controller.cycle(inbox))
        answer = session.answer(message.q)
        inbox = [codec.encode_command(codec.decode_command(answer)._replace(ios=ASKED))] if answer else []
    assert message.state is SessionState.COMMANDING_ACTIVE
    assert message.ios == (CLOSED, *ASKED)
    controller.ios.set_input("closed", 0)
    assert session.receive(controller.cycle(inbox)).ios[0].value == 0
    said = [text for text in controller.reports if "outputs" in text]
    assert said == ["outputs: close = 1, tool = 1.09951e+12, force = -2.5"] and not controller.rejected_ios


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (CLOSED._replace(value=0), "'closed' cannot be set: it is no output of this application, which has close"),
        (CLOSE._replace(name="open"), "'open' cannot be set: it is no output of this application, which has close"),
        (CLOSE._replace(value=2), "'close' cannot be set: 2 is not 0 or 1"),
        (TOOL._replace(kind=IoType.ANALOG), "'tool' cannot be set: it is DIGITAL, the request says ANALOG"),
    ],
)
def test_what_cannot_be_set_is_told_and_spoils_nothing_else(asked, reason):
    controller = make_controller(ios=ALL)
    codec = FriCodec(FriVersion.V1_15)
    for _ in range(2):  # IDLE is not answered
        controller.cycle([])
    controller.cycle([codec.encode_command(Command(0, 0, np.zeros(7), ios=(FORCE._replace(value=1.0), asked)))])
    assert any(reason in text for text in controller.reports)
    assert (controller.rejected_ios, controller.rejected, controller.malformed) == (1, 0, 0)
    assert controller.ios.values == ALL  # all or none
    with pytest.raises(SysidError, match="no input of this application, which has closed"):
        controller.ios.set_input("close", 1)


@pytest.mark.parametrize("ios", [(CLOSE,) * 11, (FORCE._replace(value=np.nan),), (FORCE._replace(value=np.inf),)])
def test_messages_with_impossible_ones_are_refused(ios):
    codec = FriCodec(FriVersion.V2_7)
    with pytest.raises(InvalidFrame):
        codec.decode_command(codec.encode_command(Command(0, 0, ios=ios)))


def test_a_type_without_its_value_is_refused():
    codec = FriCodec(FriVersion.V1_15)
    datagram = codec.encode_command(Command(0, 0, ios=(FORCE._replace(value=1.0),)))
    assert codec.decode_command(datagram).ios[0].value == 1.0
    with pytest.raises(InvalidFrame, match="of type DIGITAL without a digitalValue"):
        codec.decode_command(datagram.replace(b"force\x10\x02", b"force\x10\x01"))


def test_the_command_line_names_them():
    texts = ["--io", "closed:boolean:input=1", "--io", "force:analog:output"]
    assert setup_of(fri_parser().parse_args(texts))[1].ios == (CLOSED, FORCE)
    for text in (
        "closed", "closed:boolean", "closed:bool:input", ":boolean:input", "x:boolean:input=2", "x:digital:output=1.5",
        "x:analog:output=nan", "x:analog:output=a", "n" * 64 + ":analog:input",
    ):  # fmt: skip
        with pytest.raises(ParameterOutOfRange, match="NAME:"):
            read_io(text)
    for many in ([CLOSE, CLOSE], [CLOSE._replace(name=str(k)) for k in range(11)]):
        with pytest.raises(ParameterOutOfRange):
            IoTable(many)
