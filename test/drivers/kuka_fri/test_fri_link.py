"""What the link counts, on the controller's clock."""

import pytest
from fri_bench import PERIOD, make_controller, run
from fri_memory import Memory, connected, use_clock_of

from sysid_ros.drivers.kuka_fri.link import FriLink
from sysid_ros.drivers.kuka_fri.settings import FriSettings
from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.drivers.modes import FriVersion

OVERDUE = "answers later than a period"


@pytest.mark.parametrize("multiplier", [1, 2])
def test_answers_later_than_a_period_are_counted(monkeypatch, multiplier):
    """The period is that of answers: with a receive multiplier there is time for more than one message."""
    send_period = PERIOD / multiplier
    memory = Memory(make_controller(send_period=send_period, receive_multiplier=multiplier))
    use_clock_of(memory, monkeypatch)
    link = FriLink(FriSettings(period=PERIOD), memory)
    assert link.health()[OVERDUE] == 0
    answers, expected = 0, 0
    for reaction in (0.0, 0.9, 1.1, 0.5, 5.0, 0.9) * multiplier:
        for _ in range(multiplier + (answers == 0)):  # the first message is one of IDLE
            link.next(0.1)
        assert link.session.is_answer_due
        memory.time += reaction * PERIOD
        link.answer()
        link.answer()  # the second time does nothing
        answers, expected = answers + 1, expected + (reaction > 1.0)
        health = link.health()
        assert (health["commands sent"], health[OVERDUE]) == (answers, expected)
    assert health["reaction max [s]"] == pytest.approx(5.0 * PERIOD)


def test_late_answers_are_the_missed_deadlines_of_the_loop_and_outlive_a_connection(monkeypatch):
    memory = Memory(make_controller())
    use_clock_of(memory, monkeypatch)
    loop = connected(memory, FriVersion.V1_15, late_limit=10.0)
    run(loop, 0.1)
    assert loop.status().missed_deadlines == 0
    compute, delays = loop._controller.compute, [0.9, 1.1, 0.0, 1.5, 0.99]

    def slowly(*state):
        memory.time += PERIOD * (delays.pop() if delays else 0.0)
        return compute(*state)

    loop._controller.compute = slowly
    run(loop, 0.1)
    assert not delays and loop.mode is LoopMode.HOLD
    assert loop.status().missed_deadlines == loop.arm.health()[OVERDUE] == 2
    loop.release("test")
    assert loop.status().missed_deadlines == 2
    loop.connect()
    assert loop.arm.health()[OVERDUE] == 0 and loop.status().missed_deadlines == 2
    loop.release("test")
