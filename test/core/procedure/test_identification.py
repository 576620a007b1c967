"""The identification procedure with a scripted arm: order of steps, stop rules, and rest after every failure."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.procedure import (
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    MotionState,
    Phase,
    PlannedMotion,
    PlannedPart,
    run_identification,
    run_move,
)


class FakeEstimate:
    def __init__(self, half_width: float, alarm: str = ""):
        self.values = np.full(10, 1.0)
        self.lower = np.full(10, 1.0 - half_width)
        self.upper = np.full(10, 1.0 + half_width)
        self.alarm = alarm
        self.is_consistent = not alarm


class FakeTrajectory:
    duration = 2.0


class FakeBackend:
    """An arm that needs ``duration`` of waiting per trajectory; ``widths`` are the estimates after each one."""

    def __init__(self, widths=(0.5, 0.2, 0.1), fail_at: str = "", alarm: str = "", certified_share=1.0):
        self.calls: list[str] = []
        self._widths = widths
        self._fail_at = fail_at
        self._alarm = alarm
        self._certified_share = certified_share
        self._remaining = 0.0
        self._executed = 0
        self.is_at_rest = True

    def _do(self, name: str) -> None:
        self.calls.append(name)
        if name == self._fail_at:
            raise IdentificationFailed(IdentificationErrorCode.PLAN_FAILED, f"{name} failed")

    def check_ready(self):
        self._do("check_ready")

    def reset_estimate(self, reason):
        self._do("reset_estimate")

    def plan(self, index, duration, information, limit_share):
        self._do("plan")
        self.limit_share = limit_share
        return PlannedMotion(FakeTrajectory(), 10.0)

    def certify(self, motion):
        self._do("certify")
        if self.limit_share > self._certified_share:
            raise IdentificationFailed(IdentificationErrorCode.CERTIFICATE_REFUSED, "joint_7 is too fast")
        return "certificate"

    def execute(self, motion, certificate):
        assert certificate == "certificate"
        self._do("execute")
        self._remaining = motion.trajectory.duration
        self._executed += 1
        self.is_at_rest = False

    def motion_state(self):
        return MotionState(self._remaining > 0.0, self._fail_at == "motion", 0.5, "joint_4 left its tracking bound")

    def brake(self, reason):
        self.calls.append("brake")
        self.is_at_rest = True

    def estimate(self):
        if self._executed == 0:
            return None
        return FakeEstimate(self._widths[self._executed - 1], self._alarm)

    def information(self):
        return np.zeros((10, 10))

    def settle(self, duration):
        self._do("settle")

    def wait(self, duration):
        self._remaining -= duration
        if self._remaining <= 0.0:
            self.is_at_rest = True


SETTINGS = IdentificationSettings(strategy="periodic", trajectories=3, trajectory_duration=2.0, max_motion_time=6.0)


def test_runs_every_trajectory_in_order_and_reports_progress():
    backend, phases = FakeBackend(), []
    outcome = run_identification(backend, SETTINGS, on_progress=lambda p: phases.append((p.phase, p.progress)))
    assert backend.calls == ["check_ready", "reset_estimate", "settle"] + ["plan", "certify", "execute", "settle"] * 3
    assert outcome.motion_time == pytest.approx(6.0)
    assert outcome.estimate.upper[0] - outcome.estimate.lower[0] == pytest.approx(0.2)
    assert "all 3 trajectories" in outcome.stop_reason
    fractions = [fraction for _, fraction in phases]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    assert {Phase.WAITING, Phase.PLANNING, Phase.CERTIFYING, Phase.MOVING, Phase.ESTIMATING} <= {p for p, _ in phases}


def test_stops_when_the_target_width_is_met():
    settings = IdentificationSettings(
        strategy="periodic", trajectories=3, trajectory_duration=2.0, max_motion_time=6.0, target_mass_width=0.5
    )
    backend = FakeBackend()
    outcome = run_identification(backend, settings)
    assert backend.calls.count("execute") == 2
    assert "narrower than 0.5 kg" in outcome.stop_reason


def test_stops_when_nothing_shrinks_any_more():
    backend = FakeBackend(widths=(0.5, 0.499, 0.4))
    outcome = run_identification(backend, SETTINGS)
    assert backend.calls.count("execute") == 2
    assert "shrank no interval" in outcome.stop_reason


def test_never_exceeds_the_motion_time():
    settings = IdentificationSettings(strategy="periodic", trajectories=3, trajectory_duration=2.0, max_motion_time=5.0)
    backend = FakeBackend()
    outcome = run_identification(backend, settings)
    assert backend.calls.count("execute") == 2 and outcome.motion_time == pytest.approx(4.0)
    assert "would exceed 5 s" in outcome.stop_reason


@pytest.mark.parametrize("step", ["check_ready", "plan", "certify", "execute", "settle"])
def test_every_failing_step_ends_with_a_brake(step):
    backend = FakeBackend(fail_at=step)
    with pytest.raises(IdentificationFailed, match=f"{step} failed"):
        run_identification(backend, SETTINGS)
    assert backend.calls[-1] == "brake"


def test_a_refused_plan_is_planned_again_slower():
    backend, texts = FakeBackend(certified_share=0.8), []
    settings = IdentificationSettings(strategy="periodic", trajectories=1, trajectory_duration=2.0, max_motion_time=6.0)
    outcome = run_identification(backend, settings, on_progress=lambda p: texts.append(p.text))
    assert backend.calls.count("plan") == 2 and backend.calls.count("execute") == 1 == len(outcome.motions)
    assert backend.limit_share == 0.75
    assert "planning a slower one (joint_7 is too fast)" in texts


def test_a_plan_refused_at_every_speed_ends_with_the_refusal():
    backend = FakeBackend(certified_share=0.1)
    with pytest.raises(IdentificationFailed, match="joint_7 is too fast") as caught:
        run_identification(backend, SETTINGS)
    assert caught.value.code == IdentificationErrorCode.CERTIFICATE_REFUSED
    assert backend.calls.count("plan") == 3 and "execute" not in backend.calls and backend.calls[-1] == "brake"


def test_failed_motion_names_its_reason():
    backend = FakeBackend(fail_at="motion")
    with pytest.raises(IdentificationFailed, match="joint_4 left its tracking bound") as caught:
        run_identification(backend, SETTINGS)
    assert caught.value.code == IdentificationErrorCode.EXECUTION_FAILED
    assert backend.calls[-1] == "brake" and backend.is_at_rest


def test_empty_set_is_an_alarm_not_a_number():
    backend = FakeBackend(alarm="no payload explains the data")
    with pytest.raises(IdentificationFailed, match="no payload explains the data") as caught:
        run_identification(backend, SETTINGS)
    assert caught.value.code == IdentificationErrorCode.INCONSISTENT
    assert backend.calls[-1] == "brake"


def test_cancel_while_moving_brakes():
    backend = FakeBackend()
    with pytest.raises(IdentificationFailed) as caught:
        run_identification(backend, SETTINGS, is_cancelled=lambda: "execute" in backend.calls)
    assert caught.value.code == IdentificationErrorCode.CANCELED
    assert backend.calls[-2:] == ["execute", "brake"]


def test_a_motion_that_never_ends_times_out():
    backend = FakeBackend()
    backend.wait = lambda duration: None
    with pytest.raises(IdentificationFailed, match="still moves") as caught:
        run_identification(backend, SETTINGS)
    assert caught.value.code == IdentificationErrorCode.TIMEOUT


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("trajectories", -1),
        ("strategy", "wild"),
        ("max_motion_time", -1.0),
        ("trajectory_duration", 0.1),
        ("target_mass_width", float("nan")),
    ],
)
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(ParameterOutOfRange, match=name):
        IdentificationSettings(**{name: value})


def test_a_trajectory_longer_than_the_motion_time_is_refused():
    with pytest.raises(ParameterOutOfRange, match="at most max_motion_time"):
        IdentificationSettings(strategy="periodic", max_motion_time=3.0, trajectory_duration=5.0)


# Plans that take over from each other


class ChainBackend(FakeBackend):
    """Plans of 3 s that may be left after 1.5 s; ``missing`` are the numbers of plans that are not found.

    A plan that takes over is made in ``planning_time``. Estimates are made every 0.5 s; 1.5 s of motion add the unit
    matrix to the information. Of each request for a plan the number of the plan before, the information, the time until
    the take-over and the time of the arm are kept.
    """

    def __init__(self, widths=(0.5,), missing=(), refused=(), planning_time=0.0, **options):
        super().__init__(widths=widths, **options)
        self._missing, self._refused = set(missing), set(refused)
        self._numbers, self._clock, self._planning_time = 0, 0.0, planning_time
        self._begins: dict[int, float] = {}  # by number of the plan
        self._moves: list[list[float]] = []  # begin and end of every motion from rest to rest
        self.speed = lambda clock: 1.0  # how fast the time of the arm passes
        self._following: list[tuple[float, PlannedPart]] = []  # when each begins
        self.asked: list[tuple] = []

    def plan_next(self, before, information):
        self._do("plan_next")
        self._numbers += 1
        left = self.time_until_takeover(before) if before else np.inf
        self.asked.append((before.motion.trajectory.number if before else 0, information[0, 0], left, self._clock))
        if not self.is_at_rest:
            self._clock += self._planning_time
        if self._numbers in self._missing:
            raise IdentificationFailed(IdentificationErrorCode.PLAN_FAILED, f"no plan {self._numbers}")
        path = FakeTrajectory()
        path.duration, path.number = 3.0, self._numbers
        return PlannedPart(PlannedMotion(path, 10.0), f"certificate {self._numbers}", 1.5, np.eye(10))

    def execute_next(self, part, before):
        self._do("execute_next")
        number = part.motion.trajectory.number
        if number in self._refused:
            raise IdentificationFailed(IdentificationErrorCode.EXECUTION_FAILED, f"plan {number} comes too late")
        if before is None:
            assert self.is_at_rest
            self._following = [(self._clock, part)]
            self._moves.append([self._clock, self._clock + part.motion.trajectory.duration])
        else:
            begins, last = self._following[-1]
            assert last is before and len(self._following) == 1, "only one may wait"
            assert self._clock < begins + before.takeover_time, "it comes too late"
            self._following.append((begins + before.takeover_time, part))
            self._moves[-1][1] = self._following[-1][0] + part.motion.trajectory.duration
        self._begins[number] = self._following[-1][0]
        self._executed = len(self._widths)
        self.is_at_rest = False

    def is_followed(self, part):
        if len(self._following) > 1 and self._clock >= self._following[1][0] - 1e-9:
            self._following.pop(0)
        return self._following[0][1] is part

    def motion_state(self):
        begins, part = self._following[-1]
        is_moving = self._clock < begins + part.motion.trajectory.duration - 1e-9
        self.is_at_rest = not is_moving
        first, followed = self._following[0]
        progress = (self._clock - first) / followed.motion.trajectory.duration
        return MotionState(is_moving, self._fail_at == "motion", progress, "joint_4 left its tracking bound")

    def time_until_takeover(self, part):
        begin = self._begins.get(part.motion.trajectory.number)
        return np.inf if begin is None else begin + part.takeover_time - self._clock

    @property
    def _estimated(self):
        """Time of the latest estimate."""
        return 0.5 * np.floor((self._clock + 1e-9) / 0.5)

    def share_to_come(self, part):
        begin = self._begins.get(part.motion.trajectory.number, np.inf)
        return (1.5 - min(max(self._estimated - begin, 0.0), 1.5)) / 1.5

    def information(self):
        moved = sum(min(self._estimated, end) - begin for begin, end in self._moves if begin < self._estimated)
        return moved / 1.5 * np.eye(10)

    def wait(self, duration):
        assert duration > 0.0
        self._clock += self.speed(self._clock) * duration


CHAIN = IdentificationSettings(strategy="receding", max_motion_time=7.5, shrink_threshold=0.0)


def test_plans_take_over_until_the_time_is_used():
    backend, phases = ChainBackend(), []
    outcome = run_identification(backend, CHAIN, on_progress=lambda p: phases.append((p.phase, p.progress)))
    assert [path.trajectory.number for path in outcome.motions] == [1, 2, 3, 4]
    assert outcome.certificates == tuple(f"certificate {k}" for k in (1, 2, 3, 4))
    assert outcome.motion_time == pytest.approx(7.5) and backend.is_at_rest
    assert "all 4 plans are done" in outcome.stop_reason
    assert [before for before, *_ in backend.asked] == [0, 1, 2, 3]
    # each is asked for with all data up to its take-over, part of them measured, the rest still to come
    assert [known for _, known, *_ in backend.asked] == pytest.approx([0.0, 1.0, 2.0, 3.0])
    fractions = [fraction for _, fraction in phases]
    assert fractions == sorted(fractions)


def test_a_missing_plan_ends_at_rest_and_a_new_chain_begins():
    backend = ChainBackend(missing={3})
    outcome = run_identification(backend, replace(CHAIN, max_motion_time=12.0))
    numbers = [path.trajectory.number for path in outcome.motions]
    assert numbers[:3] == [1, 2, 4] and backend.asked[3][0] == 0  # plan 4 starts from rest
    assert outcome.motion_time <= 12.0 + 1e-9 and backend.is_at_rest


def test_a_late_plan_is_no_failure():
    backend = ChainBackend(refused={2})
    outcome = run_identification(backend, replace(CHAIN, max_motion_time=12.0))
    assert [path.trajectory.number for path in outcome.motions][0] == 1 and backend.is_at_rest


def test_no_first_plan_is_a_failure():
    assert run_identification(ChainBackend(missing={1, 2}), CHAIN).motions  # asked again
    backend = ChainBackend(missing={1, 2, 3})
    with pytest.raises(IdentificationFailed, match="no plan 3") as caught:
        run_identification(backend, CHAIN)
    assert caught.value.code == IdentificationErrorCode.PLAN_FAILED and backend.calls[-1] == "brake"


def test_plans_stop_when_the_target_is_met_or_nothing_shrinks():
    met = run_identification(ChainBackend(widths=(0.4,)), replace(CHAIN, target_mass_width=1.0))
    assert "narrower than 1 kg" in met.stop_reason and len(met.motions) <= 2
    still = run_identification(ChainBackend(), replace(CHAIN, max_motion_time=60.0, shrink_threshold=0.02))
    assert "shrank no interval" in still.stop_reason and len(still.motions) < 10


def test_a_failed_chain_names_its_reason():
    with pytest.raises(IdentificationFailed, match="joint_4 left its tracking bound") as caught:
        run_identification(ChainBackend(fail_at="motion"), CHAIN)
    assert caught.value.code == IdentificationErrorCode.EXECUTION_FAILED


def test_an_arm_whose_time_passes_slowly_is_waited_for_and_one_that_stands_still_is_not():
    backend = ChainBackend()
    backend.speed = lambda clock: 0.3
    outcome = run_identification(backend, CHAIN)
    assert len(outcome.motions) == 4 and backend.is_at_rest
    assert [left for *_, left, _ in backend.asked[2:]] == pytest.approx([1.755, 1.755], abs=0.005)
    for last in (0.5, 2.0):  # the second one while the next plan is not asked for yet
        backend = ChainBackend()
        backend.speed = lambda clock, last=last: 1.0 if clock < last else 0.0
        with pytest.raises(IdentificationFailed, match="has not come to the end of a plan in") as caught:
            run_identification(backend, CHAIN)
        assert caught.value.code == IdentificationErrorCode.TIMEOUT and backend.calls[-1] == "brake"


# When the next plan is asked for


@pytest.mark.parametrize(
    ("planning_time", "lefts"),
    [
        (0.0, [np.inf, np.inf, 1.75, 1.75, 1.75]),
        (1.4, [np.inf, np.inf, 1.75, 1.75, 1.75]),
        # asked for at once, when the one before has been handed over: nothing is waited for that is past
        (1.55, [np.inf, np.inf, 1.75, 1.7, 1.65]),
    ],
)
def test_a_plan_is_asked_for_just_early_enough(planning_time, lefts):
    backend = ChainBackend(planning_time=planning_time)
    outcome = run_identification(backend, replace(CHAIN, max_motion_time=9.0))
    assert [left for *_, left, _ in backend.asked] == pytest.approx(lefts, abs=1e-6)
    assert len(outcome.motions) == 5 and outcome.motion_time == pytest.approx(9.0)
    # whenever it is asked for, it counts on all data up to its take-over, and on none twice
    assert [known for _, known, *_ in backend.asked] == pytest.approx([0.0, 1.0, 2.0, 3.0, 4.0])


def test_after_a_plan_that_was_not_found_in_time_the_next_are_asked_for_earlier():
    backend = ChainBackend(missing={3, 6, 9})
    run_identification(backend, replace(CHAIN, max_motion_time=21.0))
    lefts = [left for *_, left, _ in backend.asked]
    # two plans are made at rest, then one in motion, which is not found; from then on half a t_p earlier, up to t_p
    assert lefts[:6] == pytest.approx([np.inf, np.inf, 1.75, np.inf, np.inf, 2.5])
    assert lefts[6:9] == pytest.approx([np.inf, np.inf, 3.0])  # as soon as the one before has been handed over


def test_data_of_an_earlier_motion_are_counted_once():
    backend = ChainBackend(missing={3})
    run_identification(backend, replace(CHAIN, max_motion_time=12.0))
    # plans 1 and 2, the second to its end: 4.5 s; plan 4 starts from rest, plan 5 takes over from it
    assert [known for _, known, *_ in backend.asked[:6]] == pytest.approx([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])


def test_the_stop_rule_knows_what_is_known_when_the_plan_would_be_asked_for():
    backend = ChainBackend()
    backend.estimate = lambda: FakeEstimate(0.5 if backend._clock < 1.0 else 0.1)
    outcome = run_identification(backend, replace(CHAIN, target_mass_width=0.5))
    assert "narrower than 0.5 kg" in outcome.stop_reason and backend.calls.count("plan_next") == 2


def test_a_part_that_takes_over_early_is_planned_on_from_at_once():
    backend = ChainBackend()  # a machine that stalls for 1.5 s while the arm moves on
    backend.speed = lambda clock: 15.0 if 0.35 < clock < 0.45 else 1.0
    outcome = run_identification(backend, CHAIN)
    assert [left for *_, left, _ in backend.asked] == pytest.approx([np.inf, np.inf, 1.1, 1.75])
    assert len(outcome.motions) == 4 and backend.is_at_rest
    backend = ChainBackend()  # a clock that is wrong
    backend.time_until_takeover = lambda part: 5.0
    outcome = run_identification(backend, CHAIN)
    assert len(outcome.motions) == 4 and [at for *_, at in backend.asked] == pytest.approx([0.0, 0.0, 1.5, 3.0])


def test_a_fault_before_the_next_plan_is_asked_for_ends_at_rest():
    backend = ChainBackend()
    backend.speed = lambda clock: setattr(backend, "_fail_at", "motion" if clock > 0.5 else "") or 1.0
    with pytest.raises(IdentificationFailed, match="joint_4 left its tracking bound") as caught:
        run_identification(backend, CHAIN)
    assert caught.value.code == IdentificationErrorCode.EXECUTION_FAILED
    assert backend._clock < 1.0 and backend.calls[-2:] == ["execute_next", "brake"] and backend.is_at_rest


def test_an_arm_that_rests_before_the_next_plan_is_asked_for_has_failed():
    backend = ChainBackend()
    moving = backend.motion_state
    backend.motion_state = lambda: replace(moving(), is_moving=False) if backend._clock > 0.2 else moving()
    with pytest.raises(IdentificationFailed, match="came to rest although a plan was to take over"):
        run_identification(backend, CHAIN)
    assert backend._clock < 1.0 and backend.calls[-2:] == ["execute_next", "brake"]


def test_cancel_before_the_next_plan_is_asked_for_brakes():
    backend = ChainBackend()
    with pytest.raises(IdentificationFailed) as caught:
        run_identification(backend, CHAIN, is_cancelled=lambda: backend._clock > 0.5)
    assert caught.value.code == IdentificationErrorCode.CANCELED
    assert backend._clock < 1.0 and backend.calls[-2:] == ["execute_next", "brake"] and backend.is_at_rest


# Moves


class MoveBackend(ChainBackend):
    """One joint; every plan gets ``step`` [rad] closer to the goal, and no further than ``wall``."""

    def __init__(self, step=0.4, wall=np.inf, **options):
        super().__init__(**options)
        self._step, self._wall, self._at = step, wall, 0.0

    def plan_next(self, before, information, goal):
        begin = before.motion.trajectory.end[0] if before else self._at
        part = super().plan_next(before, information)
        end = min(begin + np.clip(goal[0] - begin, -self._step, self._step), self._wall)
        path = part.motion.trajectory
        path.start, path.end = np.array([begin]), np.array([end])
        margins = SimpleNamespace(margins={"torque [-]": 0.5 - 0.1 * path.number, "ground [m]": 0.01})
        return replace(part, certificate=margins)


def test_a_move_ends_at_its_goal():
    backend, progress = MoveBackend(), []
    move = run_move(backend, [1.0], 0.01, 60.0, on_progress=lambda p: progress.append(p.progress))
    assert move.distance <= 0.01 and move.parts == 3 and move.motion_time == pytest.approx(2 * 1.5 + 3.0)
    assert move.smallest_torque_margin == pytest.approx(0.2)
    assert progress == sorted(progress) and backend.is_at_rest
    assert backend.calls.count("settle") == 1 and backend.calls.index("settle") < backend.calls.index("execute_next")
    assert backend.asked[2][2] == pytest.approx(3.0)  # at once: nothing is learnt that could be waited for


def test_a_move_ends_when_data_contradict_what_is_known():
    for begins in (0, 1):  # at rest, and in motion
        backend = MoveBackend()
        backend.estimate = lambda b=backend, k=begins: FakeEstimate(1.0, "another payload" if b._executed >= k else "")
        with pytest.raises(IdentificationFailed, match="another payload") as caught:
            run_move(backend, [1.0], 0.01, 60.0)
        assert caught.value.code == IdentificationErrorCode.INCONSISTENT and backend.is_at_rest
        assert backend.calls.count("execute_next") == 2 * begins  # the plan that moves, and the one that waits


def test_a_goal_behind_a_wall_is_not_tried_forever():
    backend = MoveBackend(wall=0.5)
    with pytest.raises(IdentificationFailed, match="0.500 rad away from the goal.*no plan gets closer") as caught:
        run_move(backend, [1.0], 0.01, 60.0)
    assert caught.value.code == IdentificationErrorCode.PLAN_FAILED and backend.is_at_rest
    assert backend.calls.count("execute_next") < 8


def test_a_move_keeps_its_time():
    with pytest.raises(IdentificationFailed, match="would exceed 6 s of motion"):
        run_move(MoveBackend(step=0.1), [1.0], 0.01, 6.0)
    with pytest.raises(ParameterOutOfRange, match="tolerance"):
        run_move(MoveBackend(), [1.0], 0.0, 6.0)
