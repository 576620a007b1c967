"""The identification procedure with a scripted arm: order of steps, stop rules, and rest after every failure."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from procedure_doubles import FixedPolicy, make_estimate

from sysid_ros.core.certification.certificate import Margin
from sysid_ros.core.certification.stop_model import LimitKind
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.procedure import (
    CertifiedPlan,
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    ModelRefused,
    MotionState,
    MoveSettings,
    Phase,
    Ports,
    StopUnconfirmed,
    TareStep,
    run_identification,
    run_move,
)


class FakeTrajectory:
    duration = 2.0


def fake_plan(path, plan_id, predecessor=None, takeover_time=0.0, **more):
    times = {"takeover_time": takeover_time, "expires_at": np.inf}
    certificate = SimpleNamespace(plan_id=plan_id, predecessor=predecessor, **times)
    return CertifiedPlan(path, certificate, None, None, "an arm", **more)


def identify(backend, settings, **options):
    return run_identification(Ports(backend, backend, backend), FixedPolicy(), settings, **options)


def move(backend, goal, tolerance, max_motion_time, **options):
    wanted = MoveSettings(np.array(goal), tolerance, max_motion_time)
    return run_move(Ports(backend, backend, backend), FixedPolicy(), wanted, **options)


class FakeBackend:
    """An arm that needs ``duration`` of waiting per trajectory; ``widths`` are the estimates after each one."""

    def __init__(self, widths=(0.5, 0.2, 0.1), fail_at: str = "", alarm: str = "", certified_share=1.0):
        self.calls: list[str] = []
        self.models: list[tuple] = []
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

    def wait_until_ready(self):
        self._do("wait_until_ready")

    def set_model(self, model, is_reset=False):
        self.models.append((model, is_reset))

    def reset(self, reason, tare=TareStep.KEEP):
        self._do("reset")

    def wait_until_holding(self, model):
        pass

    def posture(self):
        return np.zeros(1)

    def plan_excitation(self, request):
        self._do("plan_excitation")
        self.limit_share = request.limit_share
        return FakeTrajectory(), 10.0

    def certify(self, trajectory, model):
        self._do("certify")
        if self.limit_share > self._certified_share:
            raise IdentificationFailed(IdentificationErrorCode.CERTIFICATE_REFUSED, "joint_7 is too fast")
        return fake_plan(trajectory, "certificate")

    def execute(self, plan, model=None):
        assert plan.plan_id == "certificate"
        self._do("execute")
        self._remaining = plan.trajectory.duration
        self._executed += 1
        self.is_at_rest = False

    def motion_state(self):
        return MotionState(self._remaining > 0.0, self._fail_at == "motion", 0.5, "joint_4 left its tracking bound")

    def brake(self, reason):
        self.calls.append("brake")
        self.is_at_rest = True

    def latest(self):
        if self._executed == 0:
            return None
        return make_estimate(self._widths[self._executed - 1], self._alarm)

    def information(self):
        return np.zeros((10, 10))

    def catch_up(self):
        self._do("catch_up")

    def wait(self, duration):
        self._remaining -= duration
        if self._remaining <= 0.0:
            self.is_at_rest = True


SETTINGS = IdentificationSettings(strategy="periodic", trajectories=3, trajectory_duration=2.0, max_motion_time=6.0)


def expect_failure(code, words, backend, settings=SETTINGS, **given):
    """A goal fails in these words, and the last thing that is done is to brake."""
    with pytest.raises(IdentificationFailed, match=words) as caught:
        identify(backend, settings, **given)
    assert caught.value.code == code and backend.calls[-1] == "brake"


def test_runs_every_trajectory_in_order_and_reports_progress():
    backend, phases = FakeBackend(), []
    outcome = identify(backend, SETTINGS, on_progress=lambda p: phases.append((p.phase, p.progress)))
    assert backend.calls == ["wait_until_ready", "reset", "catch_up"] + [
        "plan_excitation", "certify", "execute", "catch_up"
    ] * 3  # fmt: skip
    assert outcome.motion_time == pytest.approx(6.0)
    assert outcome.estimate.upper[0] - outcome.estimate.lower[0] == pytest.approx(0.2)
    assert "all 3 trajectories" in outcome.stop_reason
    fractions = [fraction for _, fraction in phases]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    assert {Phase.WAITING, Phase.PLANNING, Phase.CERTIFYING, Phase.MOVING, Phase.ESTIMATING} <= {p for p, _ in phases}


@pytest.mark.parametrize(("number", "said"), [(10.0, "checking it (condition number 10.0)"), (np.nan, "checking it")])
def test_a_motion_without_a_condition_number_is_checked_without_naming_one(number, said):
    backend, texts = FakeBackend(), []
    plan = backend.plan_excitation
    backend.plan_excitation = lambda request: (plan(request)[0], number)
    identify(backend, SETTINGS, on_progress=lambda p: texts.append(p.text))
    assert said in texts


def test_stops_when_the_target_width_is_met():
    backend = FakeBackend()
    outcome = identify(backend, replace(SETTINGS, target_mass_width=0.5))
    assert backend.calls.count("execute") == 2
    assert "narrower than 0.5 kg" in outcome.stop_reason


def test_stops_when_nothing_shrinks_any_more():
    backend = FakeBackend(widths=(0.5, 0.499, 0.4))
    outcome = identify(backend, SETTINGS)
    assert backend.calls.count("execute") == 2
    assert "shrank no interval" in outcome.stop_reason


def test_never_exceeds_the_motion_time():
    backend = FakeBackend()
    outcome = identify(backend, replace(SETTINGS, max_motion_time=5.0))
    assert backend.calls.count("execute") == 2 and outcome.motion_time == pytest.approx(4.0)
    assert "would exceed 5 s" in outcome.stop_reason


def test_a_stop_that_nobody_confirms_is_told_whatever_failed():
    """Also where the failure is one of the software, which else leaves as it is."""

    def brake(reason):
        raise StopUnconfirmed("the driver is silent")

    backend = FakeBackend(fail_at="certify")
    backend.brake = brake
    with pytest.raises(IdentificationFailed, match="certify failed") as caught:
        identify(backend, SETTINGS)
    assert str(caught.value.stop_unconfirmed) == "the driver is silent"
    backend = FakeBackend()
    backend.certify = lambda trajectory, model: 1 / 0
    with pytest.raises(ZeroDivisionError):
        identify(backend, SETTINGS)
    backend.brake = brake
    with pytest.raises(IdentificationFailed, match="ZeroDivisionError") as caught:
        identify(backend, SETTINGS)
    assert caught.value.code == IdentificationErrorCode.INTERNAL
    assert str(caught.value.stop_unconfirmed) == "the driver is silent"


def test_the_controller_gets_each_tighter_model_while_the_arm_rests():
    backend = FakeBackend()
    identify(backend, SETTINGS)
    radii = [model.box.radius[0] for model, _ in backend.models]
    assert [is_reset for _, is_reset in backend.models] == [True, False, False, False]
    assert radii == pytest.approx([10.0, 0.5, 0.2, 0.1])  # the prior; before two of the trajectories; in the end


def test_a_controller_that_refuses_a_model_goes_on_with_the_one_it_has():
    backend, texts, certified = FakeBackend(), [], []
    refused, certify = backend.set_model, backend.certify

    def set_model(model, is_reset=False):
        if not is_reset:
            raise ModelRefused("the arm moves")
        refused(model, is_reset)

    backend.set_model = set_model
    backend.certify = lambda trajectory, model: (certified.append(model), certify(trajectory, model))[1]
    identify(backend, SETTINGS, on_progress=lambda p: texts.append(p.text))
    assert "the controller keeps its model: the arm moves" in texts
    assert len(certified) == 3 and all(model is backend.models[0][0] for model in certified)
    backend.set_model = lambda model, is_reset=False: (_ for _ in ()).throw(ModelRefused("the arm moves"))
    expect_failure(IdentificationErrorCode.DRIVER_NOT_READY, "the arm moves", backend)  # not even the prior


@pytest.mark.parametrize("step", ["wait_until_ready", "reset", "plan_excitation", "certify", "execute", "catch_up"])
def test_every_failing_step_ends_with_a_brake(step):
    backend = FakeBackend(fail_at=step)
    with pytest.raises(IdentificationFailed, match=f"{step} failed"):
        identify(backend, SETTINGS)
    assert backend.calls[-1] == "brake"


def test_a_refused_plan_is_planned_again_slower():
    backend, texts = FakeBackend(certified_share=0.8), []
    outcome = identify(backend, replace(SETTINGS, trajectories=1), on_progress=lambda p: texts.append(p.text))
    assert backend.calls.count("plan_excitation") == 2 and backend.calls.count("execute") == 1 == len(outcome.plans)
    assert backend.limit_share == 0.75
    assert "planning a slower one (joint_7 is too fast)" in texts


def test_a_plan_refused_at_every_speed_ends_with_the_refusal():
    backend = FakeBackend(certified_share=0.1)
    expect_failure(IdentificationErrorCode.CERTIFICATE_REFUSED, "joint_7 is too fast", backend)
    assert backend.calls.count("plan_excitation") == 3 and "execute" not in backend.calls


def test_failed_motion_names_its_reason():
    backend = FakeBackend(fail_at="motion")
    expect_failure(IdentificationErrorCode.EXECUTION_FAILED, "joint_4 left its tracking bound", backend)
    assert backend.is_at_rest


def test_empty_set_is_an_alarm_not_a_number():
    words = "no payload explains the data"
    expect_failure(IdentificationErrorCode.INCONSISTENT, words, FakeBackend(alarm=words))


def test_cancel_while_moving_brakes():
    backend = FakeBackend()
    expect_failure(IdentificationErrorCode.CANCELED, None, backend, is_cancelled=lambda: "execute" in backend.calls)
    assert backend.calls[-2] == "execute"


def test_a_slow_motion_that_moves_on_is_waited_for():
    """The time of an emulated arm passes at a third of that of the clock."""

    class Slow(FakeBackend):
        def wait(self, duration):
            super().wait(duration / 3.0)

        def motion_state(self):
            return MotionState(self._remaining > 0.0, False, 1.0 - self._remaining / FakeTrajectory.duration, "")

    outcome = identify(Slow(), SETTINGS)
    assert outcome.motion_time == pytest.approx(6.0)


def test_a_motion_that_never_ends_times_out():
    backend = FakeBackend()
    backend.wait = lambda duration: None
    expect_failure(IdentificationErrorCode.TIMEOUT, "still moves", backend)


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

    check_time = 0.15

    def __init__(self, widths=(0.5,), missing=(), refused=(), planning_time=0.0, **options):
        super().__init__(widths=widths, **options)
        self._missing, self._refused = set(missing), set(refused)
        self._numbers, self._clock, self._planning_time = 0, 0.0, planning_time
        self._begins: dict[int, float] = {}  # by number of the plan
        self._moves: list[list[float]] = []  # begin and end of every motion from rest to rest
        self.speed = lambda clock: 1.0  # how fast the time of the arm passes
        self._following: list[tuple[float, CertifiedPlan]] = []  # when each begins
        self.asked: list[tuple] = []

    def plan(self, request):
        self._do("plan")
        self._numbers += 1
        before, left = request.predecessor, request.time_left + self.check_time
        self.asked.append((before.trajectory.number if before else 0, request.information[0, 0], left, self._clock))
        if not self.is_at_rest:
            self._clock += self._planning_time
        if self._numbers in self._missing:
            raise IdentificationFailed(IdentificationErrorCode.PLAN_FAILED, f"no plan {self._numbers}")
        path = FakeTrajectory()
        path.duration, path.number = 3.0, self._numbers
        predecessor = f"plan {before.trajectory.number}" if before else None
        takeover_time = 1.5 if before else 0.0
        more = {"handover_time": 1.5, "information_gained": np.eye(10), "condition_number": 10.0}
        return fake_plan(path, f"plan {self._numbers}", predecessor, takeover_time, **more)

    def execute(self, plan, model=None):
        self._do("execute")
        number = plan.trajectory.number
        if number in self._refused:
            raise IdentificationFailed(IdentificationErrorCode.EXECUTION_FAILED, f"plan {number} comes too late")
        if plan.predecessor is None:
            assert self.is_at_rest
            self._following = [(self._clock, plan)]
            self._moves.append([self._clock, self._clock + plan.duration])
        else:
            begins, last = self._following[-1]
            assert plan.predecessor == f"plan {last.trajectory.number}" and len(self._following) == 1, "one may wait"
            assert self._clock < begins + plan.takeover_time, "it comes too late"
            self._following.append((begins + plan.takeover_time, plan))
            self._moves[-1][1] = self._following[-1][0] + plan.duration
        self._begins[number] = self._following[-1][0]
        self._executed = len(self._widths)
        self.is_at_rest = False

    def has_begun(self, plan):
        if len(self._following) > 1 and self._clock >= self._following[1][0] - 1e-9:
            self._following.pop(0)
        return self._following[0][1] is plan

    def motion_state(self):
        begins, plan = self._following[-1]
        is_moving = self._clock < begins + plan.duration - 1e-9
        self.is_at_rest = not is_moving
        first, followed = self._following[0]
        progress = (self._clock - first) / followed.duration
        return MotionState(is_moving, self._fail_at == "motion", progress, "joint_4 left its tracking bound")

    def begin_ns(self, plan):
        begin = self._begins.get(plan.trajectory.number)
        return None if begin is None else round(1e9 * begin)

    def now_ns(self):
        return round(1e9 * self._clock)

    def stamp_ns(self):
        return round(1e9 * self._estimated)

    @property
    def _estimated(self):
        """Time of the latest estimate."""
        return 0.5 * np.floor((self._clock + 1e-9) / 0.5)

    def information(self):
        moved = sum(min(self._estimated, end) - begin for begin, end in self._moves if begin < self._estimated)
        return moved / 1.5 * np.eye(10)

    def wait(self, duration):
        assert duration > 0.0
        self._clock += self.speed(self._clock) * duration


CHAIN = IdentificationSettings(strategy="receding", max_motion_time=7.5, shrink_threshold=0.0, weighing_time=0.0)


def test_plans_take_over_until_the_time_is_used():
    backend, phases = ChainBackend(), []
    outcome = identify(backend, CHAIN, on_progress=lambda p: phases.append((p.phase, p.progress)))
    assert [plan.trajectory.number for plan in outcome.plans] == [1, 2, 3, 4]
    assert [plan.plan_id for plan in outcome.plans] == [f"plan {k}" for k in (1, 2, 3, 4)]
    assert outcome.motion_time == pytest.approx(7.5) and backend.is_at_rest
    assert "all 4 plans are done" in outcome.stop_reason
    assert [before for before, *_ in backend.asked] == [0, 1, 2, 3]
    # each is asked for with all data up to its take-over, part of them measured, the rest still to come
    assert [known for _, known, *_ in backend.asked] == pytest.approx([0.0, 1.0, 2.0, 3.0])
    fractions = [fraction for _, fraction in phases]
    assert fractions == sorted(fractions)


def test_a_missing_plan_ends_at_rest_and_a_new_chain_begins():
    backend = ChainBackend(missing={3})
    outcome = identify(backend, replace(CHAIN, max_motion_time=12.0))
    numbers = [plan.trajectory.number for plan in outcome.plans]
    assert numbers[:3] == [1, 2, 4] and backend.asked[3][0] == 0  # plan 4 starts from rest
    assert outcome.motion_time <= 12.0 + 1e-9 and backend.is_at_rest


def test_a_late_plan_is_no_failure():
    backend = ChainBackend(refused={2})
    outcome = identify(backend, replace(CHAIN, max_motion_time=12.0))
    assert [plan.trajectory.number for plan in outcome.plans][0] == 1 and backend.is_at_rest


def test_no_first_plan_is_a_failure():
    assert identify(ChainBackend(missing={1, 2}), CHAIN).plans  # asked again
    expect_failure(IdentificationErrorCode.PLAN_FAILED, "no plan 3", ChainBackend(missing={1, 2, 3}), CHAIN)


def test_a_first_plan_that_has_expired_before_the_second_was_found_is_not_executed():
    class SlowBackend(ChainBackend):
        def plan(self, request):
            plan = super().plan(request)
            plan.certificate.expires_at = self._clock + 60.0
            if plan.trajectory.number == 2:
                self._clock += 100.0
            return plan

    backend, said = SlowBackend(), []
    outcome = identify(backend, replace(CHAIN, max_motion_time=12.0), on_progress=lambda p: said.append(p.text))
    assert [plan.trajectory.number for plan in outcome.plans][:3] == [3, 4, 5] and backend.is_at_rest
    assert any("the first plan has expired" in text for text in said)


def test_the_last_first_plan_is_asked_for_with_the_nominal_payload_that_is_easiest_to_hold():
    class LightPolicy(FixedPolicy):
        def easiest_to_hold(self, posture):
            return replace(self.in_use, nominal=np.full(10, 0.5))

    def nominals(missing):
        backend, asked = ChainBackend(missing=missing), []
        plan = backend.plan
        backend.plan = lambda request: (asked.append(request.model.nominal[0]), plan(request))[1]
        run_identification(Ports(backend, backend, backend), LightPolicy(), CHAIN)
        return asked

    assert nominals({1})[:3] == [0.0, 0.0, 0.0]
    assert set(nominals({1, 2})[:2]) == {0.0} and set(nominals({1, 2})[2:]) == {0.5}, "it stays"


def test_plans_stop_when_the_target_is_met_or_nothing_shrinks():
    met = identify(ChainBackend(widths=(0.4,)), replace(CHAIN, target_mass_width=1.0))
    assert "narrower than 1 kg" in met.stop_reason and len(met.plans) <= 2
    still = identify(ChainBackend(), replace(CHAIN, max_motion_time=60.0, shrink_threshold=0.02))
    assert "shrank no interval" in still.stop_reason and len(still.plans) < 10


def test_an_arm_whose_time_passes_slowly_is_waited_for_and_one_that_stands_still_is_not():
    backend = ChainBackend()
    backend.speed = lambda clock: 0.3
    outcome = identify(backend, CHAIN)
    assert len(outcome.plans) == 4 and backend.is_at_rest
    assert [left for *_, left, _ in backend.asked[2:]] == pytest.approx([1.755, 1.755], abs=0.005)
    for last in (0.5, 2.0):  # the second one while the next plan is not asked for yet
        backend = ChainBackend()
        backend.speed = lambda clock, last=last: 1.0 if clock < last else 0.0
        expect_failure(IdentificationErrorCode.TIMEOUT, "has not come to the end of a plan in", backend, CHAIN)


def test_every_plan_is_executed_with_the_model_it_was_planned_with():
    backend, planned, executed = ChainBackend(), {}, {}
    backend.latest = lambda: make_estimate(1.0 / (1.0 + backend._clock))
    plan, execute = backend.plan, backend.execute

    def note_plan(request):
        made = plan(request)
        planned[made.trajectory.number] = request.model
        return made

    def note_execution(made, model=None):
        executed[made.trajectory.number] = model
        execute(made, model)

    backend.plan, backend.execute = note_plan, note_execution
    identify(backend, CHAIN)
    assert executed == {1: None, 2: planned[2], 3: planned[3], 4: planned[4]}
    assert planned[1] is backend.models[1][0]  # from rest: what the controller was given before
    radii = [planned[number].box.radius[0] for number in (1, 2, 3, 4)]
    assert radii == sorted(radii, reverse=True) and radii[3] < 0.5 * radii[0]
    assert backend.models[0][1] and len(backend.models) == 3  # reset, before the first plan, and in the end


def test_data_beside_the_model_in_use_end_the_motion():
    backend = ChainBackend()
    backend.latest = lambda: make_estimate(0.5, center=1.0 if backend._clock < 2.0 else 3.0)
    expect_failure(IdentificationErrorCode.INCONSISTENT, "does not overlap the bounds in use", backend, CHAIN)
    assert backend._clock < 2.2 and backend.is_at_rest


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
    outcome = identify(backend, replace(CHAIN, max_motion_time=9.0))
    assert [left for *_, left, _ in backend.asked] == pytest.approx(lefts, abs=1e-6)
    assert len(outcome.plans) == 5 and outcome.motion_time == pytest.approx(9.0)
    # whenever it is asked for, it counts on all data up to its take-over, and on none twice
    assert [known for _, known, *_ in backend.asked] == pytest.approx([0.0, 1.0, 2.0, 3.0, 4.0])


def test_after_a_plan_that_was_not_found_in_time_the_next_are_asked_for_earlier():
    backend = ChainBackend(missing={3, 6, 9})
    identify(backend, replace(CHAIN, max_motion_time=21.0))
    lefts = [left for *_, left, _ in backend.asked]
    # two plans are made at rest, then one in motion, which is not found; from then on half a t_p earlier, up to t_p
    assert lefts[:6] == pytest.approx([np.inf, np.inf, 1.75, np.inf, np.inf, 2.5])
    assert lefts[6:9] == pytest.approx([np.inf, np.inf, 3.0])  # as soon as the one before has been handed over


@pytest.mark.parametrize(
    ("missing", "longest", "plans", "reason"),
    [
        ({3, 6, 9, 12}, 20.0, 8, "no next plan was found in time, and no time for another motion"),
        ({2, 4, 6, 8, 10}, 30.0, 3, "the motion came to rest 3 times"),
        ({2, 4, 7, 9, 11, 13, 15}, 30.0, 7, "the motion came to rest 3 times"),
    ],
)
def test_motions_that_come_to_rest_go_on_where_they_have_a_second_plan(missing, longest, plans, reason):
    """As where each plan is proven throughout: there is time for it at rest only."""
    outcome = identify(ChainBackend(missing=missing), replace(CHAIN, max_motion_time=longest))
    assert len(outcome.plans) == plans and reason in outcome.stop_reason


def test_data_of_an_earlier_motion_are_counted_once():
    backend = ChainBackend(missing={3})
    identify(backend, replace(CHAIN, max_motion_time=12.0))
    # plans 1 and 2, the second to its end: 4.5 s; plan 4 starts from rest, plan 5 takes over from it
    assert [known for _, known, *_ in backend.asked[:6]] == pytest.approx([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])


def test_the_stop_rule_knows_what_is_known_when_the_plan_would_be_asked_for():
    backend = ChainBackend()
    backend.latest = lambda: make_estimate(0.5 if backend._clock < 1.0 else 0.1)
    outcome = identify(backend, replace(CHAIN, target_mass_width=0.5))
    assert "narrower than 0.5 kg" in outcome.stop_reason and backend.calls.count("plan") == 2


def test_a_part_that_takes_over_early_is_planned_on_from_at_once():
    backend = ChainBackend()  # a machine that stalls for 1.5 s while the arm moves on
    backend.speed = lambda clock: 15.0 if 0.35 < clock < 0.45 else 1.0
    outcome = identify(backend, CHAIN)
    assert [left for *_, left, _ in backend.asked] == pytest.approx([np.inf, np.inf, 1.1, 1.75])
    assert len(outcome.plans) == 4 and backend.is_at_rest
    backend = ChainBackend()  # a clock that is wrong
    backend.now_ns = lambda: 0
    outcome = identify(backend, CHAIN)
    assert len(outcome.plans) == 4 and [at for *_, at in backend.asked] == pytest.approx([0.0, 0.0, 1.5, 3.0])


def test_a_fault_before_the_next_plan_is_asked_for_ends_at_rest():
    backend = ChainBackend()
    backend.speed = lambda clock: setattr(backend, "_fail_at", "motion" if clock > 0.5 else "") or 1.0
    expect_failure(IdentificationErrorCode.EXECUTION_FAILED, "joint_4 left its tracking bound", backend, CHAIN)
    assert backend._clock < 1.0 and backend.calls[-2] == "execute" and backend.is_at_rest


def test_an_arm_that_rests_before_the_next_plan_is_asked_for_has_failed():
    backend = ChainBackend()
    moving = backend.motion_state
    backend.motion_state = lambda: replace(moving(), is_moving=False) if backend._clock > 0.2 else moving()
    with pytest.raises(IdentificationFailed, match="came to rest although a plan was to take over"):
        identify(backend, CHAIN)
    assert backend._clock < 1.0 and backend.calls[-2:] == ["execute", "brake"]


def test_cancel_before_the_next_plan_is_asked_for_brakes():
    backend = ChainBackend()
    expect_failure(IdentificationErrorCode.CANCELED, None, backend, CHAIN, is_cancelled=lambda: backend._clock > 0.5)
    assert backend._clock < 1.0 and backend.calls[-2] == "execute" and backend.is_at_rest


# Moves


class MoveBackend(ChainBackend):
    """One joint; every plan gets ``step`` [rad] closer to the goal, and no further than ``wall``."""

    def __init__(self, step=0.4, wall=np.inf, **options):
        super().__init__(**options)
        self._step, self._wall, self._at = step, wall, 0.0

    def plan(self, request):
        assert request.predecessor is None  # from rest to rest
        begin = self._at
        plan = super().plan(request)
        end = min(begin + np.clip(request.goal[0] - begin, -self._step, self._step), self._wall)
        path = plan.trajectory
        path.start, path.end = np.array([begin]), np.array([end])
        plan.certificate.margins = (
            Margin(LimitKind.TORQUE, 0.5 - 0.1 * path.number, "a joint", 0.0),
            Margin(LimitKind.GROUND, 0.01, "a link", 0.0),
        )
        return plan

    def execute(self, plan, model=None):
        super().execute(plan, model)
        self._at = plan.trajectory.end[0]


def test_a_move_ends_at_its_goal():
    backend, progress = MoveBackend(), []
    done = move(backend, [1.0], 0.01, 60.0, on_progress=lambda p: progress.append(p.progress))
    assert done.distance <= 0.01 and done.plans == 3 and done.motion_time == pytest.approx(3 * 3.0)
    assert done.smallest_torque_margin == pytest.approx(0.2)
    assert progress == sorted(progress) and backend.is_at_rest
    assert backend.calls.count("catch_up") == 1 and backend.calls.index("catch_up") < backend.calls.index("execute")


def test_a_move_ends_when_data_contradict_what_is_known():
    for begins in (0, 1):  # at rest, and in motion
        backend = MoveBackend()
        backend.latest = lambda b=backend, k=begins: make_estimate(1.0, "another payload" if b._executed >= k else "")
        with pytest.raises(IdentificationFailed, match="another payload") as caught:
            move(backend, [1.0], 0.01, 60.0)
        assert caught.value.code == IdentificationErrorCode.INCONSISTENT and backend.is_at_rest
        assert backend.calls.count("execute") == begins


def test_a_goal_behind_a_wall_is_not_tried_forever():
    backend = MoveBackend(wall=0.5)
    with pytest.raises(IdentificationFailed, match="0.500 rad away from the goal.*no plan gets closer") as caught:
        move(backend, [1.0], 0.01, 60.0)
    assert caught.value.code == IdentificationErrorCode.PLAN_FAILED and backend.is_at_rest
    assert backend.calls.count("execute") < 8


def test_a_move_keeps_its_time():
    with pytest.raises(IdentificationFailed, match="the next motion takes 3.0 s, and 6 s of motion are allowed in all"):
        move(MoveBackend(step=0.1), [1.0], 0.01, 6.0)
    backend = MoveBackend()
    with pytest.raises(IdentificationFailed, match="the first motion takes 3.0 s, but only 2 s") as caught:
        move(backend, [1.0], 0.01, 2.0)
    assert caught.value.code == IdentificationErrorCode.INVALID_GOAL and "execute" not in backend.calls
    with pytest.raises(ParameterOutOfRange, match="tolerance"):
        move(MoveBackend(), [1.0], 0.0, 6.0)
