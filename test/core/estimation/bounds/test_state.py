"""Every objective gets its turn, and those that move get one every time."""

import numpy as np

from sysid_ros.core.estimation.bounds.state import SOLVED_WITHIN, ActiveObjectives


def run(schedule, updates, gain_of):
    """Which objectives each update solved, (updates, K)."""
    history = []
    for update in range(updates):
        due = schedule.select()
        schedule.record(due, gain_of(update))
        history.append(due)
    return np.array(history)


def test_all_objectives_are_solved_as_long_as_they_move():
    assert np.all(run(ActiveObjectives(10), 4, lambda _: np.full(10, 0.01)))


def test_what_moves_is_solved_every_time_and_the_rest_in_turns():
    gain = np.where(np.arange(10) < 2, 0.02, 0.0)
    history = run(ActiveObjectives(10), 30, lambda _: gain)
    assert np.all(history[0]) and np.all(history[:, :2])
    rest = history[2:, 2:]
    assert np.all(rest.sum(axis=1) <= -(-8 // SOLVED_WITHIN) + 1)  # the work is spread evenly
    for k in range(len(rest) - SOLVED_WITHIN + 1):
        assert np.all(rest[k : k + SOLVED_WITHIN].any(axis=0))


def test_a_leap_of_one_makes_all_due():
    schedule = ActiveObjectives(6)
    run(schedule, 7, lambda _: np.zeros(6))
    due = schedule.select()
    assert 0 < due.sum() < 6
    schedule.record(due, np.where(np.arange(6) == np.flatnonzero(due)[0], 0.3, 0.0))
    assert np.all(schedule.select())


def test_gains_of_what_was_not_solved_do_not_count():
    schedule = ActiveObjectives(6)
    run(schedule, 3, lambda _: np.zeros(6))
    due = schedule.select()
    schedule.record(due, np.where(due, 0.0, 0.3))
    assert not np.all(schedule.select())
