"""The verifier as a whole: sound on random plans, names what is broken, and finds the tightest margins."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pinocchio as pin
import pytest
from proofs import assume, certify, verify
from textbook import load_textbook
from verifier_cases import TrueArm, make_boxes_around, make_errors, make_plan, small_payload

from sysid_ros.core.certification.checks import ROUNDING, AllowedErrors, Check, Division
from sysid_ros.core.certification.stop_model import STOP_ERRORS, LimitKind, PlanRejected, VerifierSettings
from sysid_ros.core.collision.clearance import build_scene_model
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.excitation.model import TorqueDemand
from sysid_ros.core.model.robot import Sphere
from sysid_ros.core.tracking_bound.stops import StopBound
from sysid_ros.core.trajectories.braking import BrakedTrajectory
from sysid_ros.core.trajectories.families import BezierTrajectory

ZERO = np.zeros(7)


@pytest.fixture
def errors():
    return make_errors()


@pytest.fixture
def boxes(robot):
    return robot.theta_box, small_payload(robot)[0]


def simulate(robot, plan, errors, scene, arms, rng, count=60):
    """Smallest margins at samples with random errors inside their bounds, by code of its own."""
    collision, limits = build_scene_model(robot, scene), robot.limits
    radii = np.array([sphere.radius for sphere in collision.spheres])
    data, found = robot.pin_model.createData(), {}
    first, second = collision.pairs.T
    for time in np.linspace(0.0, plan.duration, count) * (1 - 1e-12):
        q, v, a = (x[0] for x in plan.sample([time]))
        moved = q + errors.position * rng.choice([-1.0, 1.0, 0.0, 0.5], robot.n)
        faster = v + errors.velocity * rng.choice([-1.0, 1.0], robot.n)
        pin.forwardKinematics(robot.pin_model, data, moved)
        centers = np.array([data.oMi[s.body].act(s.center) for s in collision.spheres])
        low = (centers[:, 2] - radii)[collision.movable]
        gaps = np.linalg.norm(centers[first] - centers[second], axis=1) - radii[first] - radii[second]
        torque = max(((np.abs(arm.torque(q, v, a)) + errors.torque) / limits.tau_max).max() for arm in arms)
        here = {
            LimitKind.POSITION: np.minimum(moved - limits.q_lower, limits.q_upper - moved).min(),
            LimitKind.VELOCITY: (1.0 - np.abs(faster) / limits.v_max).min(),
            LimitKind.ACCELERATION: (1.0 - np.abs(a) / limits.a_max).min(),
            LimitKind.TORQUE: 1.0 - torque,
            LimitKind.SELF_COLLISION: gaps.min() - scene.clearance,
            LimitKind.GROUND: low.min() - scene.ground_height - scene.clearance,
        }
        outside = [(box.distance(centers) - radii)[collision.movable].min() for box in scene.obstacles]
        here[LimitKind.OBSTACLE] = min(outside) - scene.clearance
        for name, value in here.items():
            found[name] = min(found.get(name, np.inf), value)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kinova_gen3_2f85", "kuka_lbr_iiwa14"])
def test_margins_are_never_above_what_simulation_finds(name):
    """Random plans, a third of them fast, in random scenes; at least 100 accepted per arm."""
    robot, rng = load_textbook(name), np.random.default_rng(11)
    payloads = (small_payload(robot), (robot.payload_prior.box, robot.payload_prior.nominal))
    settings = VerifierSettings(brake_times=(0.4,))
    accepted, rejected, smallest = 0, set(), {}
    while accepted < 100:
        speed, payload = rng.choice([0.6, 1.0, 1.5]), payloads[accepted % 2]
        boxes = robot.theta_box, payload[0]
        plan, errors = make_plan(robot, rng, speed), make_errors(rng.uniform(0, 0.03), 0.05, rng.uniform(0, 0.5))
        scene = Scene(make_boxes_around(rng, 2), ground_height=-0.02, clearance=0.005)
        try:
            proven = verify(robot, plan, boxes, errors, scene, settings)
        except PlanRejected as rejection:
            rejected.add(rejection.limit)
            continue
        accepted += 1
        drawn = [TrueArm(robot, *payload, rng, is_corner=k > 0) for k in range(3)]
        truth = simulate(robot, plan, errors, scene, drawn, rng, count=20)
        continuous = {LimitKind.CONTINUOUS_TORQUE} if name == "kinova_gen3_2f85" else set()
        assert set(proven.margins) == {*truth, LimitKind.BRAKING_TORQUE} | continuous
        for check, value in truth.items():
            assert 0.0 <= proven.margins[check].value <= value + 1e-8, check
            smallest[check] = min(smallest.get(check, np.inf), value - proven.margins[check].value)
        times = np.linspace(0.0, plan.duration, 121)
        part = np.minimum(
            (times * (len(proven.torque_squares) - 1) / plan.duration).astype(int), len(proven.torque_squares) - 2
        )
        for one in drawn:
            size = np.array([np.abs(one.torque(*(x[0] for x in plan.sample([t])))) for t in times]) + errors.torque
            means = [np.mean(size[part == k] ** 2, axis=0) for k in range(part.max() + 1)]
            assert np.all(means <= proven.torque_squares[:-1] * 1.02)  # samples in place of an integral
            rest = size[-1] - errors.torque  # while it is held the feedback averages out: test_held_feedback.py
            assert np.all(rest**2 + errors.torque**2 <= proven.torque_squares[-1] + 1e-8)
    assert LimitKind.OBSTACLE in rejected
    assert rejected & {LimitKind.TORQUE, LimitKind.BRAKING_TORQUE, LimitKind.CONTINUOUS_TORQUE}
    # Not vacuous: for every kind the simulation comes close to the margin somewhere.
    assert max(smallest.values()) < 0.03


def test_torque_limits_count_the_feedback_at_each_time(robot, boxes):
    """The margin is that of the worst parameters and of the bound at this time, and more than with the largest."""
    step = np.array([0.9, 0.6, -0.8, 0.5, 0.9, -0.6, 0.9])
    plan = BezierTrajectory(robot.home, ZERO, ZERO, robot.home + step, 2.0)
    bound, settings = assume(robot, boxes).bound(plan), VerifierSettings(brake_times=())
    largest = AllowedErrors(bound.position, bound.velocity, bound.torque)
    found, with_largest = (
        verify(robot, plan, boxes, errors, settings=settings).margins[LimitKind.TORQUE].value
        for errors in (bound, largest)
    )
    times = np.linspace(0.0, plan.duration, 2001)
    demand = TorqueDemand(robot, *boxes, ZERO).evaluate(*plan.sample(times))
    # Beside the bound counts what its law compensates of friction, beside numbers without a law all of it.
    share = np.abs(bound.whole.settings.friction_share(plan.sample(times)[1]))
    left_out = (1.0 - share) * robot.friction(boxes[0].upper)[:, 0]
    at_each_time, at_most = (
        1.0 - ((needed + feedback) / robot.limits.tau_max).max()
        for needed, feedback in (
            (demand - left_out, bound.torque_over(times, np.zeros_like(times))),
            (demand, bound.torque),
        )
    )
    assert at_each_time - settings.rate_tolerance - 0.01 < found <= at_each_time + 1e-9
    assert with_largest <= at_most + 1e-9 < found, "not vacuous: the largest is not where the motion needs most"


def close_call(robot, errors, scene=None, **limits):
    """A plan of the Gen3 that moves joints 2, 4 and 6, and the arm with changed limits."""
    step = np.array([0.3, 0.4, -0.3, 0.3, 0.3, -0.3, 0.3])
    changed = replace(robot, limits=replace(robot.limits, **limits)) if limits else robot
    return changed, BezierTrajectory(robot.home, ZERO, ZERO, robot.home + step, 2.0)


BROKEN = {
    "position": ("q_upper", lambda plan, e: plan.position_extrema()[1] + e.position),
    "velocity": ("v_max", lambda plan, e: np.maximum(*map(np.abs, plan.velocity_extrema())) + e.velocity),
    "acceleration": ("a_max", lambda plan, e: np.maximum(*map(np.abs, plan.acceleration_extrema()))),
}


@pytest.mark.parametrize("check", BROKEN)
@pytest.mark.parametrize("joint", [1, 5])
@pytest.mark.parametrize("brake_times", [(), (1.2,)])
def test_a_limit_broken_a_little_is_named(robot, errors, boxes, check, joint, brake_times):
    """Where stops are allowed the errors in them, which are larger, need room, too."""
    settings = VerifierSettings(brake_times=brake_times)
    factor, fast = (STOP_ERRORS, 1.05) if brake_times else (1.0, 1.0)
    reach = SimpleNamespace(position=factor * errors.position, velocity=fast * errors.velocity)
    field, reached = BROKEN[check]
    _, plan = close_call(robot, errors)
    limit = np.array(getattr(robot.limits, field))
    limit[joint] = reached(plan, reach)[joint] + 1e-4
    changed, _ = close_call(robot, errors, **{field: limit})
    assert verify(changed, plan, boxes, errors, settings=settings).margins
    limit[joint] -= 2e-4
    changed, _ = close_call(robot, errors, **{field: limit})
    with pytest.raises(PlanRejected, match=f"{check} limit broken at joint 'joint_{joint + 1}'") as caught:
        verify(changed, plan, boxes, errors, settings=settings)
    assert caught.value.allowed == pytest.approx(limit[joint])
    assert abs(caught.value.value) > abs(caught.value.allowed)


@pytest.mark.parametrize("check", ["torque", "braking torque"])
def test_a_torque_limit_broken_a_little_is_named(robot, errors, boxes, check):
    _, plan = close_call(robot, errors)
    settings = VerifierSettings(brake_times=(0.15,) if check == "braking torque" else ())
    margin = verify(robot, plan, boxes, errors, settings=settings).margins[LimitKind(check)].value
    # The margin is a lower bound, tight to the tolerance.
    passing = replace(settings, torque_fraction=1.0 - margin + 1e-9 + 2 * ROUNDING)
    assert verify(robot, plan, boxes, errors, settings=passing).margins[LimitKind(check)].value >= 0.0
    failing = replace(settings, torque_fraction=1.0 - margin - 0.02)
    with pytest.raises(PlanRejected, match=rf"{check} limit broken at joint 'joint_\d'"):
        verify(robot, plan, boxes, errors, settings=failing)


def test_distances_broken_a_little_are_named(robot, errors, boxes):
    _, plan = close_call(robot, errors)
    wall = Obstacle("wall", [0.0, 0.75, 0.5], [0.5, 0.05, 0.5])
    free = verify(robot, plan, boxes, errors, Scene((wall,), ground_height=-0.1))
    assert free.margins[LimitKind.OBSTACLE].place.endswith("and wall")
    assert " and " in free.margins[LimitKind.SELF_COLLISION].place
    gap = free.margins[LimitKind.OBSTACLE].value
    moved = replace(wall, center=wall.center - [0.0, gap - 1e-7, 0.0])
    assert verify(robot, plan, boxes, errors, Scene((moved,))).margins[LimitKind.OBSTACLE].value < 0.006
    close = replace(wall, center=wall.center - [0.0, gap - 0.01, 0.0])
    moved = replace(wall, center=wall.center - [0.0, gap + 0.006, 0.0])
    with pytest.raises(PlanRejected, match="obstacle limit broken at .* and wall"):
        verify(robot, plan, boxes, errors, Scene((moved,)))
    with pytest.raises(PlanRejected, match="obstacle limit broken at .* and wall.* allowed 0.02 m"):
        verify(robot, plan, boxes, errors, Scene((close,), clearance=0.02))
    with pytest.raises(ParameterOutOfRange, match="ground_height"):
        verify(robot, plan, boxes, errors, Scene(ground_height=0.03))
    strong = replace(robot, limits=replace(robot.limits, tau_max=np.full(7, 1e4), tau_continuous=np.full(7, 1e4)))
    down = BezierTrajectory(robot.home, ZERO, ZERO, [0.0, 2.0, 0.0, 0.3, 0.0, 0.3, 0.0], 4.0)
    with pytest.raises(PlanRejected, match=r"ground limit broken at \w+, \d"):
        verify(strong, down, boxes, errors, Scene(ground_height=0.02))
    assert verify(strong, down, boxes, errors).margins
    folded = np.array([0.0, -0.3, 0.0, 2.5, 0.0, 2.0, 0.0])
    with pytest.raises(PlanRejected, match="self-collision limit broken at .* and "):
        verify(robot, BezierTrajectory(folded, ZERO, ZERO, folded, 1.0), boxes, errors)


def test_what_happens_between_samples_is_seen(robot, boxes):
    """A fast sweep past the corner of a thin board: the closest point lies between any few samples."""
    errors = make_errors(0.0, 0.0, 0.0)
    plan = BezierTrajectory(robot.home - [0.6, 0, 0, 0, 0, 0, 0], ZERO, ZERO, robot.home + [0.6, 0, 0, 0, 0, 0, 0], 2.0)
    board = Obstacle("board", [0.75, 0.0, 0.55], [0.02, 0.002, 0.2])
    scene = Scene((board,), -0.1, payload_spheres=())
    found = [
        verify(robot, plan, boxes, errors, scene, VerifierSettings(piece=piece)).margins[LimitKind.OBSTACLE].value
        for piece in (1.0, 0.1, 0.01)
    ]
    arm = [TrueArm(robot, *small_payload(robot), np.random.default_rng(0))]
    exact = simulate(robot, plan, errors, scene, arm, np.random.default_rng(0), 2001)[LimitKind.OBSTACLE]
    assert 0.0 < exact < 0.3
    assert all(exact - 0.005 - 1e-6 <= margin <= exact for margin in found)


def test_brake_times_are_tried_in_order(robot, errors, boxes):
    weak, plan = close_call(robot, errors, tau_max=0.65 * robot.limits.tau_continuous)
    none = VerifierSettings(brake_times=())
    assert verify(weak, plan, boxes, errors, settings=none).brake_time == 0.0
    times = (0.1, 0.2, 0.4, 0.8)
    chosen = verify(weak, plan, boxes, errors, settings=VerifierSettings(brake_times=times)).brake_time
    assert chosen in times[1:3]
    for shorter in times[: times.index(chosen)]:
        with pytest.raises(PlanRejected, match="braking torque"):
            verify(weak, plan, boxes, errors, settings=VerifierSettings(brake_times=(shorter,)))


@pytest.mark.parametrize("excess", [0.01, 2.0])
def test_errors_of_longer_stops_are_bounded_only_where_that_may_help(robot, excess):
    """The torque of the feedback is about as large as in shorter ones: where that is much too large, they are none."""
    own, times = make_errors(), (0.5, 0.8, 1.2, 2.0)
    boxes, asked = (robot.theta_box, small_payload(robot)[0]), []
    _, plan = close_call(robot, own)

    def allowed(size):
        def stops(time):
            asked.append(time)
            torque = (size if time < 1.0 else own.torque)[None]
            return StopBound(time, own.position, np.ones(1), own.velocity[None], np.array([0.0, plan.duration]), torque)

        return AllowedErrors(own.position, own.velocity, own.torque, stops=stops)

    found = verify(robot, plan, boxes, allowed(own.torque), settings=VerifierSettings(brake_times=(0.5,)))
    room = found.margins[LimitKind.BRAKING_TORQUE]
    joint = np.isin(robot.joint_names, room.place.split("'"))
    assert joint.sum() == 1
    asked.clear()
    errors = allowed(own.torque + joint * (room.value + 0.02 + excess) * robot.limits.tau_max)
    settings = VerifierSettings(brake_times=times)
    if excess > 1.0:
        with pytest.raises(PlanRejected, match="braking torque"):
            verify(robot, plan, boxes, errors, settings=settings)
        assert asked == [0.5]
    else:
        assert verify(robot, plan, boxes, errors, settings=settings).brake_time == 1.2
        assert asked == [0.5, 0.8, 1.2]


def test_fourier_plans_are_verified_and_stopped_ones_refused(robot, errors, boxes, make_fourier):
    raw = make_fourier(0)
    plan = type(raw)(robot.home, 0.15 * raw.sine, 0.15 * raw.cosine, raw.base_frequency, raw.duration)
    proven = verify(robot, plan, boxes, errors)
    largest = np.maximum(*map(np.abs, plan.velocity_extrema()))
    exact = (1.0 - (largest + 1.05 * errors.velocity) / robot.limits.v_max).min()
    assert exact - 0.011 <= proven.margins[LimitKind.VELOCITY].value <= exact + 1e-6
    with pytest.raises(ParameterOutOfRange, match="braked:fourier"):
        verify(robot, BrakedTrajectory(plan, 1.0, 0.5), boxes, errors)


def test_arguments_that_do_not_fit_are_refused(robot, errors, boxes):
    _, plan = close_call(robot, errors)
    six = BezierTrajectory(*[np.zeros(6)] * 4, duration=1.0)
    short, elsewhere = Box(np.zeros(9), np.ones(9)), Scene(payload_spheres=(Sphere(3, ZERO[:3], 0.1, "x"),))
    inside = Scene((Obstacle("in the way", [0, 0, 0.1], [0.1] * 3),))
    cases = [
        (ParameterOutOfRange, "number of joints 6", (six, boxes, errors)),
        (ParameterOutOfRange, "payload's parameter box 9", (plan, (boxes[0], short), errors)),
        (ParameterOutOfRange, "errors.torque", (plan, boxes, replace(errors, torque=np.full(7, np.nan)))),
        (ParameterOutOfRange, "errors.position", (plan, boxes, replace(errors, position=-errors.position))),
        (ParameterOutOfRange, "body of a payload sphere", (plan, boxes, errors, elsewhere)),
        (ParameterOutOfRange, "outside of the base", (plan, boxes, errors, inside)),
    ]  # fmt: skip
    for kind, text, arguments in cases:
        with pytest.raises(kind, match=text):
            verify(robot, *arguments)
    # A table the arm is mounted on is no collision with its base.
    assert verify(robot, plan, boxes, errors, Scene((Obstacle("table", [0, 0, -0.1], [1.0, 1.0, 0.1]),), -0.0))


def test_the_certificate_says_everything(robot, errors, boxes):
    plan = BezierTrajectory(robot.home, np.full(7, 0.1), ZERO, robot.home + 0.1, 3.0)
    scene = Scene((Obstacle("wall", [0.0, 0.9, 0.5], [0.5, 0.05, 0.5]),), ground_height=0.0)
    certificate = certify(robot, plan, boxes, errors, scene, now=5.0)
    certificate.matches(plan, *boxes, scene_hash=scene.hash(), now=5.0)
    assert certificate.brake_time > 0.0
    assert "1 obstacle" in certificate.claims and "the ground" in certificate.claims
    assert "Not proven: nothing else" in certificate.claims
    np.testing.assert_array_equal(certificate.torque_bound, errors.torque)
    assert {margin.limit for margin in certificate.margins} == {*LimitKind} - {LimitKind.TORQUE_AT_REST}
    assert all(margin.place and 0.0 <= margin.time <= 3.0 for margin in certificate.margins)
    nothing = certify(robot, plan, boxes, errors, Scene(payload_spheres=()), VerifierSettings(brake_times=()))
    for missing in ("stops along the path", "the ground", "obstacles", "collisions of the payload"):
        assert missing in nothing.claims.split("Not proven:")[1]


def test_the_certificate_says_what_stops_rest_on(robot, errors):
    plan = BezierTrajectory(robot.home, ZERO, ZERO, robot.home + 0.1, 3.0)
    claims = certify(robot, plan, (robot.theta_box, small_payload(robot)[0]), errors).claims
    assert f"(those of the position to {STOP_ERRORS:g} times the bound), which is measured, not proven;" in claims


def test_the_certificate_names_links_without_spheres(robot, errors, boxes):
    plan = BezierTrajectory(robot.home, ZERO, ZERO, robot.home + 0.1, 3.0)

    def missing(*links):
        left = replace(robot, spheres=tuple(s for s in robot.spheres if s.link not in links))
        return certify(left, plan, boxes, errors).claims.split("Not proven:")[1]

    assert "no spheres" not in missing()
    assert "collisions of half_arm_1_link, forearm_link (no spheres)." in missing("forearm_link", "half_arm_1_link")
    all_but_base = {s.link for s in robot.spheres if s.body > 0}
    first = "shoulder_link, half_arm_1_link, half_arm_2_link, forearm_link and 8 more (no spheres)"
    assert f"collisions of {first}" in missing(*all_but_base)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"torque_fraction": 0.0}, "torque_fraction"),
        ({"brake_times": (0.5, 0.3)}, "brake_times"),
        ({"piece": 2.0}, "piece"),
        ({"shortest_piece": 0.0}, "shortest_piece"),
        ({"rate_tolerance": np.nan}, "rate_tolerance"),
        ({"distance_tolerance": 0.0}, "distance_tolerance"),
        ({"validity": -1.0}, "validity"),
    ],
)
def test_settings_out_of_range_are_refused(changes, message):
    with pytest.raises(ParameterOutOfRange, match=message):
        VerifierSettings(**changes)


# The division of time, on a function that is known


def wave_check(middle, half, offset, factor=1.0):
    """Margin ``offset + cos(t)`` bounded by its slope."""
    exact = (offset + np.cos(middle))[None]
    return Check(LimitKind.GROUND, [("it",)], exact - factor * half, exact, lambda row, margin: (margin, 0.0), 0.01)


def test_division_finds_the_smallest_margin():
    division = Division(1e-4)
    found = division.run(lambda m, h: [wave_check(m, h, 1.05)], np.array([1.0, 3.0, 5.0]), np.ones(3))[LimitKind.GROUND]
    assert 0.04 - ROUNDING <= found.margin <= 0.05 and found.when == pytest.approx(np.pi, abs=0.2)
    # Only what decides was divided: pieces of the same size everywhere would be 600.
    assert division.pieces < 150


@pytest.mark.parametrize(("offset", "factor"), [(0.99, 1.0), (1.0001, 300.0), (np.nan, 1.0)])
def test_division_gives_up_where_nothing_is_proven(offset, factor):
    with pytest.raises(PlanRejected, match="ground limit broken at it"):
        Division(1e-3).run(lambda m, h: [wave_check(m, h, offset, factor)], np.array([1.0, 3.0, 5.0]), np.ones(3))
