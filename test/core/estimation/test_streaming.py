import dataclasses
import itertools

import numpy as np
import pytest

import sysid_ros.core.estimation.bounds.state as state_module
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation import streaming
from sysid_ros.core.estimation.bounds.consistency import JointConsistency
from sysid_ros.core.estimation.bounds.state import BoundState
from sysid_ros.core.estimation.parameters.estimate import AlarmCode
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.point.fit import has_shape
from sysid_ros.core.estimation.streaming import StreamingEstimator, estimate_from_samples
from sysid_ros.core.estimation.windows.samples import InvalidSamples, SampleBlock
from sysid_ros.core.estimation.windows.stream import RowStream
from sysid_ros.core.model.inertia import from_com_form, is_physically_consistent
from sysid_ros.core.model.sampling import sample_parameters, sample_payload

FAST = EstimatorSettings(update_windows=8, max_windows=150, bound_tolerance=1e-3)
SENSORS = AlarmCode.SENSOR_MISMATCH
QUICK = EstimatorSettings(update_windows=5, bound_tolerance=1e-3)


@pytest.fixture(scope="module")
def recording(robot, tools, dumbbell):
    """2.5 s of noisy data of a robot at a corner of its box that carries the dumbbell."""
    return record(robot, tools, dumbbell, seed=4)


def record(robot, tools, payload, seed, duration=2.5):
    rng = np.random.default_rng(seed)
    theta = sample_parameters(robot, rng, corner=True)
    motion = tools.FourierMotion(robot, seed)
    block = tools.record(robot, theta, payload, motion, duration)
    return tools.measure(robot, block.q, block.v, block.tau, rng)


def later(block, seconds, counter):
    return dataclasses.replace(block, stamps=block.stamps + round(seconds * 1e9), sequence=block.sequence + counter)


@pytest.mark.parametrize("seed", [0, 3, 7, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2, 4, 5, 6))])
def test_the_truth_is_inside_in_closed_loop_simulations(robot, tools, seed):
    """Payload, robot parameters (every other time at corners), noise (half of it adversarial) and motion at random."""
    rng = np.random.default_rng(seed)
    theta = sample_parameters(robot, rng, corner=seed % 2 == 0)
    payload = sample_payload(robot.payload_prior, rng, corner=seed % 8 == 7)
    q, v, tau = tools.ClosedLoop(robot, theta, payload, tools.FourierMotion(robot, seed)).run(1.2, rng)
    block = tools.measure(robot, q, v, tau, rng, adversarial=seed % 4 >= 2)
    estimate, history, _ = estimate_from_samples(robot, [block], FAST)
    assert estimate.is_consistent, estimate.alarm
    for item in [*history, estimate]:
        assert item.contains(payload), (payload - item.lower, item.upper - payload)
    assert estimate.number_of_windows >= 10
    assert estimate.radius[0] < 0.6 * robot.payload_prior.box.radius[0]
    assert is_physically_consistent(estimate.values) and estimate.contains(estimate.values)


def test_results_do_not_depend_on_the_blocks(robot, recording):
    recording = recording.slice(0, 1750)
    whole, history, residual = estimate_from_samples(robot, [recording], FAST)
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.choice(np.arange(1, len(recording)), 40, replace=False))
    blocks = [recording.slice(a, b) for a, b in itertools.pairwise([0, *cuts, len(recording)])]
    pieces, again, residual_again = estimate_from_samples(robot, blocks, FAST)
    for name in ("values", "lower", "upper"):
        np.testing.assert_array_equal(getattr(pieces, name), getattr(whole, name))
    assert len(again) == len(history) == 4, "after 2, 5, 8 and 16 windows"
    np.testing.assert_array_equal(residual.measured, residual_again.measured)


def test_looking_at_the_estimate_does_not_change_it(robot, recording):
    recording, estimates = recording.slice(0, 1950), []
    for look in (False, True):
        estimator = StreamingEstimator(robot, FAST)
        for first in range(0, len(recording), 20):
            estimator.add(recording.slice(first, first + 20))
            if look and first % 480 == 0:
                estimator.estimate()
        estimates.append(estimator.estimate())
    for name in ("values", "lower", "upper"):
        np.testing.assert_array_equal(getattr(estimates[1], name), getattr(estimates[0], name))


def test_bounds_only_shrink_and_say_where_they_come_from(robot, recording, dumbbell):
    estimate, history, _ = estimate_from_samples(robot, [recording], FAST)
    boxes = [robot.payload_prior.box, *(item.box for item in history)]
    assert all(after.is_subset_of(before) for before, after in itertools.pairwise(boxes))
    shares = sum(estimate.error_budget.values())
    # What the data alone give, before they are cut with the prior and the bounds so far.
    assert np.all(shares >= estimate.radius * (1 - 1e-6))
    assert estimate.error_budget["torque_relative"][0] > 0.1 * shares[0]
    assert estimate.error_budget["robot_inertia"][0] > 0.1 * shares[0]
    assert "Contains the true parameters if" in estimate.guarantee and "NOT" not in estimate.guarantee
    assert estimate.frame == robot.joint_names[-1] and estimate.target == "payload"
    assert estimate.data_seconds == pytest.approx(2.5, abs=0.2) and 1.0 < estimate.condition_number < 100.0


def test_before_any_data_the_answer_is_the_prior(robot):
    estimate, history, residuals = estimate_from_samples(robot, [SampleBlock.empty(7)], QUICK)
    np.testing.assert_array_equal(estimate.lower, robot.payload_prior.box.lower)
    np.testing.assert_array_equal(estimate.values, robot.payload_prior.nominal)
    assert estimate.number_of_windows == 0 and estimate.is_consistent and np.isinf(estimate.condition_number)
    assert estimate.combinations is None and history == [] and residuals.times.size == 0


def test_reset_forgets_everything(robot, recording):
    estimator = StreamingEstimator(robot, FAST)
    estimator.add(recording.slice(0, 1200))
    assert estimator.information()[0, 0] > 1.0
    assert estimator.reset("payload put down") == "estimate restarted after 11 windows: payload put down"
    assert np.all(estimator.information() == 0.0)
    np.testing.assert_array_equal(estimator.estimate().upper, robot.payload_prior.box.upper)
    estimator.add(recording.slice(1200))
    first = estimator.estimate()
    alone, _, _ = estimate_from_samples(robot, [recording.slice(1200)], FAST)
    np.testing.assert_allclose(first.lower, alone.lower, atol=1e-9)


def test_gaps_cost_windows_but_not_the_truth(robot, recording, dumbbell):
    kept = np.ones(len(recording), dtype=bool)
    kept[[350, 351, 1003, 1790]] = False
    fields = ("stamps", "sequence", "q", "v", "tau")
    notices = []
    block = SampleBlock(*(getattr(recording, name)[kept] for name in fields))
    estimate, _, _ = estimate_from_samples(robot, [block], FAST, on_notice=notices.append)
    assert estimate.contains(dumbbell) and 18 <= estimate.number_of_windows < 24
    assert len(notices) == 1 and "4 samples missing (3 places" in notices[0]


def test_a_massless_payload(robot, tools):
    block = record(robot, tools, np.zeros(10), seed=6, duration=1.5)
    estimate, _, _ = estimate_from_samples(robot, [block], FAST)
    assert estimate.contains(np.zeros(10)) and estimate.values[0] < 0.2


@pytest.mark.parametrize("method", ["set_membership", "left_inverse"])
def test_the_whole_end_effector_as_target(robot, tools, dumbbell, method):
    rng = np.random.default_rng(8)
    theta = sample_parameters(robot, rng, corner=True)
    block = tools.record(robot, theta, dumbbell, tools.FourierMotion(robot, 8), 2.0)
    block = tools.measure(robot, block.q, block.v, block.tau, rng)
    truth = dumbbell + theta[robot.inertial_slice(robot.n)]
    settings = dataclasses.replace(FAST, target="end_effector", method=method)
    estimate, _, _ = estimate_from_samples(robot, [block], settings)
    assert estimate.target == "end_effector" and estimate.contains(truth)
    payload, _, _ = estimate_from_samples(robot, [block], dataclasses.replace(settings, target="payload"))
    assert payload.radius[0] > estimate.radius[0]  # the gripper's own mass is uncertain too


def test_a_prior_of_the_whole_end_effector_does_not_fit_a_payload(robot):
    prior = dataclasses.replace(robot.payload_prior, target="end_effector", name="table I")
    with pytest.raises(ParameterOutOfRange, match="the prior 'table I' describes the whole end effector"):
        StreamingEstimator(dataclasses.replace(robot, payload_prior=prior))


def test_terms_left_out_void_the_guarantee_in_words(robot, recording):
    kept = tuple(name for name in FAST.error_terms if name not in ("velocity", "coulomb"))
    estimate, _, _ = estimate_from_samples(robot, [recording], dataclasses.replace(FAST, error_terms=kept))
    assert "NOT guaranteed where these errors are present, which were left out: velocity, coulomb" in estimate.guarantee


class TestAlarms:
    """Data inconsistent with the assumptions give an alarm that names joint and window, never a number."""

    def check(self, robot, block, joints, code=AlarmCode.WINDOW_INCONSISTENT, text="no payload is consistent with"):
        notices = []
        estimate, _, _ = estimate_from_samples(robot, [block], FAST, on_notice=notices.append)
        assert not estimate.is_consistent and np.all(np.isnan(estimate.values)) and np.all(np.isnan(estimate.upper))
        alarm = estimate.alarm
        assert alarm.code is code and text in alarm.text and alarm.text in notices
        assert alarm.joint in [f"joint_{joint}" for joint in joints] and f"window {alarm.window}" in alarm.text

    def test_payload_outside_the_prior(self, robot, tools):
        heavy = from_com_form(6.0, [0.0, 0.0, -0.3], 0.02 * np.eye(3))
        self.check(robot, record(robot, tools, heavy, seed=5, duration=1.5), joints=(2, 4))

    def test_torque_of_the_wrong_sign(self, robot, recording):
        self.check(robot, dataclasses.replace(recording, tau=-recording.tau), joints=(2, 4))

    def test_contact_on_one_joint(self, robot, recording):
        tau = recording.tau.copy()
        tau[1000:, 5] += 4.0
        self.check(robot, dataclasses.replace(recording, tau=tau), joints=(6,))

    def test_stuck_encoder(self, robot, recording):
        q = recording.q.copy()
        q[800:, 3] = q[800, 3]
        self.check(
            robot, dataclasses.replace(recording, q=q), (4,), SENSORS, "positions and velocities of joint_4 disagree"
        )

    def test_positions_in_degrees(self, robot, recording):
        block = dataclasses.replace(recording, q=np.rad2deg(recording.q))
        self.check(robot, block, range(1, 8), SENSORS, "stuck encoder, wrong units or joints mixed up")

    def test_the_alarm_stays_until_a_reset(self, robot, recording):
        estimator = StreamingEstimator(robot, FAST)
        tau = recording.tau.copy()
        tau[:, 1] += 60.0
        estimator.add(dataclasses.replace(recording, tau=tau).slice(0, 500))
        assert not estimator.estimate().is_consistent
        assert estimator.add(recording.slice(500, 1000)) == []
        assert not estimator.estimate().is_consistent
        estimator.reset("checked")
        estimator.add(recording.slice(1000))
        assert estimator.estimate().is_consistent

    def test_samples_of_another_robot(self, robot):
        with pytest.raises(InvalidSamples, match="has 6 joints"):
            StreamingEstimator(robot).add(SampleBlock.empty(6))


@pytest.mark.slow
def test_long_streams_stay_bounded_and_keep_the_truth(robot, tools, dumbbell):
    settings = dataclasses.replace(FAST, max_windows=20, update_windows=10, window_duration=0.05)
    estimator = StreamingEstimator(robot, settings)
    block = record(robot, tools, dumbbell, seed=4, duration=1.5)
    sizes, widths = [], []
    for repeat in range(5):  # the robot goes through the same motion again and again
        estimator.add(later(block, 1.501 * repeat, 1501 * repeat))
        sizes.append(sum(len(rows) for rows in estimator.stored_windows))
        estimate = estimator.estimate()
        widths.append(estimate.radius)
        assert estimate.contains(dumbbell)
    assert max(sizes) <= 7 * 20 + 50
    assert estimate.number_of_windows > 100
    assert np.all(widths[-1] <= widths[0])


@pytest.mark.parametrize("ask", [False, True])
def test_compaction_waits_for_the_next_window_or_for_who_asks(robot, tools, dumbbell, ask):
    settings = dataclasses.replace(FAST, max_windows=20, update_windows=10, window_duration=0.05)
    stored, seen = [], []

    def on_update(_):
        stored.append(len(estimator._bounds.rows))
        if ask:
            seen.append(len(estimator.stored_windows))

    estimator = StreamingEstimator(robot, settings, on_rows=lambda _: seen.append(None), on_update=on_update)
    estimator.add(record(robot, tools, dumbbell, seed=4, duration=1.1))
    assert stored == [3, 6, 10, 20] and estimator.estimate().contains(dumbbell)
    assert len(estimator._bounds.rows) < 20 and estimator.stored_windows == estimator._bounds.all_rows
    assert [count for count in seen if count] == ([3, 6, 10, 11] if ask else [])


def test_of_many_rows_each_call_solves_half_of_the_objectives(robot, tools, dumbbell, monkeypatch):
    block, solved = record(robot, tools, dumbbell, seed=4, duration=2.1), []
    whole, once, _ = estimate_from_samples(robot, [block], FAST)
    original = BoundState.evaluate

    def evaluate(state, *arguments):
        update = original(state, *arguments)
        solved.append(int(update.active.sum()))
        return update

    monkeypatch.setattr(state_module, "_MANY_ROWS", 0)
    monkeypatch.setattr(BoundState, "evaluate", evaluate)
    estimate, history, _ = estimate_from_samples(robot, [block], FAST)
    *updates, last = solved  # who asks in between gets all
    assert len(history) == len(once) and max(updates) == 5 < last and len(updates) == 2 * len(history)
    assert estimate.contains(dumbbell) and np.all(np.abs(estimate.radius / whole.radius - 1.0) < 0.1)


@pytest.mark.slow
def test_compaction_costs_little(robot, tools, dumbbell):
    block = record(robot, tools, dumbbell, seed=4, duration=4.6)
    widths = []
    for max_windows in (1000, EstimatorSettings().max_windows):
        settings = EstimatorSettings(max_windows=max_windows)
        estimate, history, _ = estimate_from_samples(robot, [block], settings)
        assert len(history) == 5 and all(item.contains(dumbbell) for item in history)
        widths.append(estimate.radius)
    # Single bounds jump a little where other cuts of the shape are found on the way.
    cost = widths[1] / widths[0]
    assert np.all(cost <= 1.15) and np.exp(np.mean(np.log(cost))) <= 1.05


def test_the_shares_add_up_and_the_labels_say_what_they_are(robot, recording):
    settings = dataclasses.replace(FAST, update_windows=25, use_cone=False)
    estimate, _, _ = estimate_from_samples(robot, [recording], settings)
    shares = sum(estimate.error_budget.values())
    assert estimate.method == "set_membership" and "smallest box" in estimate.guarantee
    assert all(np.all(share >= 0.0) for share in estimate.error_budget.values())
    # They add up to the half width that the data give, which the minors of the pseudo-inertia narrow further.
    assert np.all(shares >= estimate.radius * (1 - 1e-6)) and np.sum(shares < 1.01 * estimate.radius) >= 3
    without = tuple(name for name in settings.error_terms if name != "torque_relative")
    better, _, _ = estimate_from_samples(robot, [recording], dataclasses.replace(settings, error_terms=without))
    assert better.radius[0] < estimate.radius[0] - 0.5 * estimate.error_budget["torque_relative"][0]


@pytest.mark.slow
def test_a_wrong_robot_box_is_what_the_guarantee_depends_on(robot, tools, dumbbell):
    """Not vacuous: with a robot outside its box the truth is lost, or the inconsistency is noticed."""
    theta = robot.theta_nominal.copy()
    theta[: robot.inertial_slice(robot.n).stop] *= 1.3
    lost = 0
    for seed in range(3):
        block = tools.record(robot, theta, dumbbell, tools.FourierMotion(robot, seed), 1.5)
        estimate, _, _ = estimate_from_samples(robot, [block], dataclasses.replace(FAST, update_windows=15))
        lost += not estimate.contains(dumbbell)
    assert lost >= 2


def test_the_point_estimate_is_an_object_of_the_prior(robot, tools, dumbbell):
    """Little data: the least-squares fit inside the bounds would be wider than the prior's radius of gyration."""
    block = tools.record(robot, robot.theta_nominal, dumbbell, tools.FourierMotion(robot, 3), 1.6)
    block = tools.measure(robot, block.q, block.v, block.tau, np.random.default_rng(0))
    estimator = StreamingEstimator(robot)
    estimator.add(block)
    estimate = estimator.estimate()
    assert robot.payload_prior.shape is not None and has_shape(estimate.values, robot.payload_prior.shape)
    assert estimate.contains(estimate.values)


@pytest.mark.slow
def test_rows_are_made_with_the_bounds_found_so_far(robot, tools, dumbbell, monkeypatch):
    """Error budgets shrink with the box of the payload; a restart brings back those of the prior."""
    theta = sample_parameters(robot, np.random.default_rng(3), corner=True)
    block = tools.record(robot, theta, dumbbell, tools.FourierMotion(robot, 4), 3.2)
    block = tools.measure(robot, block.q, block.v, block.tau, np.random.default_rng(1), adversarial=True)
    rows, radii = {}, {}
    for label in ("narrowed", "prior"):
        parts = []
        estimator = StreamingEstimator(robot, on_rows=parts.append)
        assert not estimator.add(block)
        assert estimator.estimate().contains(dumbbell)
        rows[label], radii[label] = parts, estimator.estimate().radius
        monkeypatch.setattr(RowStream, "narrow", lambda self, box: None)
    monkeypatch.undo()
    first, last = (
        np.array([of[k].error.sum() for of in (rows["narrowed"], rows["prior"])]) for k in (0, len(rows["prior"]) - 1)
    )
    assert first[0] == first[1] and last[0] < 0.98 * last[1]
    gain = radii["narrowed"] / radii["prior"]  # single bounds jump a little with the cuts that are found on the way
    assert np.all(gain <= 1.05) and np.exp(np.mean(np.log(gain))) < 0.98 and np.any(gain < 0.95)
    after, fresh = [], []
    estimator = StreamingEstimator(robot, on_rows=after.append)
    estimator.add(block.slice(0, 2600))
    estimator.reset("another payload")
    count = len(after)
    estimator.add(block.slice(2600))
    StreamingEstimator(robot, on_rows=fresh.append).add(block.slice(2600))
    np.testing.assert_array_equal(after[count].errors, fresh[0].errors)


def test_a_renewal_waits_where_all_rows_were_searched(robot, recording, monkeypatch):
    """No window takes the time of both; two searches in a row put it off no further, however the samples come."""
    check, lost = JointConsistency.check, (0, 4, 9, 10, 12)

    def search(self, window, rows, build_all):
        self._point = None if rows.window[0] in lost else self._point
        return check(self, window, rows, build_all)

    monkeypatch.setattr(JointConsistency, "check", search)
    part, ends = recording.slice(0, 1510), {}
    for many, size in ((200, 2000), (0, 2000), (0, 70)):  # rows whose search takes long, samples of a block
        monkeypatch.setattr(streaming, "_MANY_ROWS", many)
        blocks = [part.slice(first, first + size) for first in range(0, len(part), size)]
        _, history, _ = estimate_from_samples(robot, blocks, dataclasses.replace(QUICK, bound_tolerance=1e-2))
        assert [item.number_of_windows for item in history] == ([1, 3, 5, 10, 15] if many else [2, 3, 6, 11, 15])
        ends[many, size] = [item.upper for item in history]
    np.testing.assert_array_equal(ends[0, 2000], ends[0, 70])


def test_short_motions_are_bounded_better_by_early_renewals(robot, recording, dumbbell, monkeypatch):
    """Each renewal adds the cuts that its solutions violate; rows that are kept need not be many."""
    settings, radii = EstimatorSettings(max_windows=20), []
    for is_early in (True, False):
        estimate, history, _ = estimate_from_samples(robot, [recording.slice(0, 1600)], settings)
        assert len(history) == (3 if is_early else 1) and all(item.contains(dumbbell) for item in history)
        radii.append(estimate.radius)
        monkeypatch.setattr(StreamingEstimator, "_is_due", lambda self, windows: windows % 15 == 0)
    gain = radii[0] / radii[1]
    assert np.all(gain <= 1.01) and np.exp(np.mean(np.log(gain))) < 0.95


def test_residuals_of_perfect_data(robot, tools, dumbbell):
    block = tools.record(robot, robot.theta_nominal, dumbbell, tools.FourierMotion(robot, 1), 1.0)
    estimate, history, residuals = estimate_from_samples(robot, [block], QUICK)
    assert estimate.number_of_windows == 10 and len(history) == 4
    np.testing.assert_allclose(residuals.times, np.arange(0.05, 1.0, 0.1))
    assert residuals.measured.shape == residuals.explained.shape == residuals.allowed.shape == (10, 7)
    assert np.all(residuals.rms < 0.1) and np.abs(residuals.measured).max() > 3.0
    assert np.all(np.abs(residuals.measured - residuals.explained) < residuals.allowed)


def test_an_alarm_leaves_the_measured_torques_for_the_plot(robot, tools, dumbbell):
    block = tools.record(robot, robot.theta_nominal, dumbbell, tools.FourierMotion(robot, 1), 1.0)
    tau = block.tau.copy()
    tau[501:] += 30.0  # a sample is the mean torque since the one before
    notices = []
    broken = SampleBlock(block.stamps, block.sequence, block.q, block.v, tau)
    estimate, _, residuals = estimate_from_samples(robot, [broken], QUICK, on_notice=notices.append)
    assert not estimate.is_consistent and len(notices) == 1
    assert residuals.measured.shape == (5, 7) and np.all(np.isnan(residuals.explained))
