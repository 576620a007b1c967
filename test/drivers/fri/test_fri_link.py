"""What the link counts, on the controller's clock."""

import pytest
from fri_bench import PERIOD, make_controller
from fri_memory import Memory, use_clock_of

from sysid_ros.drivers.fri.link import FriLink
from sysid_ros.drivers.fri.settings import FriSettings

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
