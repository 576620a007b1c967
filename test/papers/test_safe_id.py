"""SAFE-ID's experiments: tasks within limits and as near to obstacles as said, methods, tables from a smoke run."""

import json

import numpy as np
import pytest

from sysid_ros.cli import main as door
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.model.mechanics import ArmDynamics, BodyPoses
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.papers import safe_id, safe_id_report, safe_id_runs
from sysid_ros.papers.names import DUMBBELLS, EXPERIMENTS, METHODS
from sysid_ros.papers.safe_id import CLEARANCE, PIECE, Spheres, build_task


@pytest.mark.parametrize("experiment", EXPERIMENTS)
@pytest.mark.parametrize("dumbbell", [DUMBBELLS[0], DUMBBELLS[-1]])
def test_tasks_are_within_limits_and_as_near_as_said(experiment, dumbbell):
    robot, task = safe_id.experiment_robot(), build_task(experiment, dumbbell)
    spheres, limits, step = Spheres(robot), robot.limits, 1e-5
    dynamics = ArmDynamics(robot, robot.theta_nominal, load_payload(robot, dumbbell), armature=True)
    nearest = np.inf
    for t in np.arange(0.013, 2.0 * PIECE, 0.01):
        q, v, a = task.evaluate(t)
        before, after = task.evaluate(t - step), task.evaluate(t + step)
        np.testing.assert_allclose(v, (after[0] - before[0]) / (2.0 * step), atol=1e-4)
        np.testing.assert_allclose(a, (after[1] - before[1]) / (2.0 * step), atol=5e-2)
        assert np.all(limits.q_lower < q) and np.all(q < limits.q_upper) and np.all(np.abs(v) < limits.v_max)
        assert np.all(np.abs(dynamics.torque(q, v, a)) < limits.tau_max)
        nearest = min(nearest, spheres.clearance(q, task.scene))
    assert nearest == pytest.approx(CLEARANCE[experiment], abs=2e-4)
    path = BodyPoses(robot).tool_path([task.start, task.goal])
    # The tool is the flange; the grip is 0.14 m below it.
    assert np.hypot(*path[1, :2]) == pytest.approx(safe_id.PLATFORM[experiment][0], abs=1e-3)
    assert np.hypot(*path[0, :2]) == pytest.approx(safe_id.PICK[0], abs=1e-3)
    assert path[0, 2] - 0.14 == pytest.approx(safe_id.PICK[2], abs=1e-3)


def test_the_motion_has_the_least_jerk_of_its_family():
    """Any other velocity or acceleration half way has more."""

    def jerk(knots):
        task = safe_id.Task(knots, safe_id.Scene())
        times = np.linspace(1e-6, 2.0 * PIECE - 1e-6, 4001)
        acceleration = np.array([task.evaluate(t)[2] for t in times])
        rate = np.diff(acceleration, axis=0) / np.diff(times)[:, None]
        smooth = np.abs(times[1:] - PIECE) > 1e-3  # the jerk may step half way, the acceleration may not
        assert np.abs(np.diff(acceleration, axis=0)).max() < 0.2
        return float(np.sum(rate[smooth] ** 2))

    rng = np.random.default_rng(0)
    best = safe_id.least_jerk(*rng.normal(size=(3, 4)))
    least = jerk(best)
    for _ in range(6):
        other = best.copy()
        other[1, 1:] += 0.05 * rng.normal(size=(2, 4))
        assert jerk(other) > least


def test_methods_are_those_of_the_paper_and_the_online_model():
    assert len(METHODS) == 12 and sum(one.paper != ("-", "-", "-") for one in METHODS.values()) == 11
    assert {one.controller for one in METHODS.values()} - {"robust"} == set(safe_id_runs.GRIDS)
    kinds = [job["method"] for job in safe_id_runs.tuning_jobs()]
    assert len(kinds) == sum(map(len, safe_id_runs.GRIDS.values()))


def test_gains_are_the_best_safe_ones():
    def entry(hand, torque, frequency):
        judged = {"collides": False, "position_limit": False, "velocity": 0.5, "torque": torque}
        job = {"method": "grav-pid", "gains": {"frequency": frequency}}
        return {"job": job, "result": {"judged": judged, "hand_max": hand}}

    chosen = safe_id_runs.choose_gains([entry(2e-3, 0.8, 20.0), entry(1e-3, 1.2, 60.0), entry(1.5e-3, 0.9, 40.0)])
    assert chosen == {"robust": {}, "pid": {"frequency": 40.0}}
    assert safe_id_runs.choose_gains([entry(2e-3, 3.0, 20.0)])["pid"] == {"frequency": 20.0}


def test_fourier_and_random_motions_keep_what_they_know_of():
    robot, posture = safe_id.experiment_robot(), safe_id.identification_posture()
    limits, rng = robot.limits, np.random.default_rng(3)
    reference = safe_id_runs.fourier_motion(robot, posture, rng)
    states = [reference(t) for t in np.arange(0.0, 8.0, 0.01)]
    q, v, a = (np.array(column) for column in zip(*states, strict=True))
    assert np.all(limits.q_lower <= q) and np.all(q <= limits.q_upper)
    assert np.all(np.abs(v) <= limits.v_max) and np.all(np.abs(a) <= limits.a_max)
    np.testing.assert_allclose(v[1:-1], (q[2:] - q[:-2]) / 0.02, atol=2e-2)
    plans = safe_id_runs.random_plans(robot, posture, rng)
    moving = safe_id_runs.concatenate(plans)
    for begin, _ in plans[1:]:
        for one, other in zip(moving(begin - 1e-6), moving(begin + 1e-6), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4)


def test_what_counts_as_a_failure():
    judged = {"collides": False, "position_limit": False, "velocity": 0.5, "torque": 0.9}
    bad = judged | {"torque": 1.1}

    def task(experiment, method="ours", **changes):
        result = {"failure": "", "judged": judged, "placed": 5e-4, "clearance_lost": 5e-4} | changes
        job = {"kind": "task", "method": method, "experiment": experiment, "dumbbell": DUMBBELLS[0], "seed": 0}
        return {"job": job, "result": result}

    job = {"kind": "identify", "way": "ours", "dumbbell": DUMBBELLS[0], "seed": 0}
    good = [{"job": job, "result": {"judged": judged}}]
    assert safe_id_report.failure_of(task("a"), good) == "" == safe_id_report.failure_of(task("c"), good)
    assert safe_id_report.failure_of(task("a", placed=2e-3), good) == "misplaced"
    assert safe_id_report.failure_of(task("c", clearance_lost=2e-3), good) == "too near"
    assert safe_id_report.failure_of(task("a", judged=bad), good) == "torque"
    assert safe_id_report.failure_of(task("a", failure="nothing"), good) == "no model"
    assert "identified" in safe_id_report.failure_of(task("a"), [{"job": job, "result": {"judged": bad}}])


def test_the_first_paragraph_names_where_ours_is_not_better():
    judged = {"collides": False, "position_limit": False, "velocity": 0.5, "torque": 0.9}

    def task(method, hand, energy, torque=0.9):
        result = {
            "failure": "", "judged": judged | {"torque": torque}, "placed": 5e-4, "clearance_lost": 5e-4,
            "hand_max": hand, "hand_mean": 0.5 * hand, "torque_rms": 0.3, "energy": energy,
        }  # fmt: skip
        job = {"kind": "task", "method": method, "experiment": "a", "dumbbell": DUMBBELLS[0], "seed": 0}
        return {"job": job, "result": result}

    def identify(way, seconds, widths, condition):
        upper = np.array(widths)
        result = {"judged": judged, "seconds": seconds, "lower": -upper, "upper": upper, "condition": condition}
        return {"job": {"kind": "identify", "way": way, "dumbbell": DUMBBELLS[0], "seed": 0}, "result": result}

    ones = np.ones(10)
    runs = [identify("ours", 11.9, ones, 300.0), identify("random", 9.0, [2.0, 1.0, 0.5, *ones[3:]], 80.0)]
    tasks = [task("ours", 2e-4, 14.6), task("grav-pid", 1e-4, 14.59), task("wrong", 3e-4, 12.0, 1.2)]
    text = safe_id_report.verdict([*runs, *tasks])
    assert text.startswith("Ours does 1 of 1 tasks; as large a share or a larger one: grav-pid.")
    assert "largest error of the hand is 0.20 mm; no larger: grav-pid." in text
    assert "smaller medians in mean error of the hand (0.1 mm; grav-pid 0.05); energy (14.6 J; wrong 12)." in text
    assert "identified after 11.9 s, in the paper 7.5 s without the weighing; sooner by random plans (9.0 s)." in text
    assert "not narrower than after random plans for mcx (1.00 times), mcy (2.00 times)" in text and "m (0" not in text
    assert "better conditioned with 4lb. The paper's exciting plans are better conditioned than ours with 4lb." in text
    better = [identify("ours", 7.0, 0.4 * ones, 30.0), runs[1], task("ours", 1e-5, 1.0), tasks[2]]
    text = safe_id_report.verdict(better)
    for words in ("as large a share", "smaller medians", "sooner", "narrower", "better conditioned", "in the paper"):
        assert words not in text


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of both of the following: the arm is identified once for them."""
    return tmp_path_factory.mktemp("results")


@pytest.mark.slow
def test_a_smoke_size_of_tables_2_and_3(results, capsys):
    """One arm, one dumbbell, one task: certified plans, the model and its task, and a method without any."""
    words = ["--experiment", "table-3", "--seeds", "1", "--dumbbells", "dumbbell_4lb", "--tasks", "a"]
    words += ["--methods", "ours", "conservative", "--results", str(results)]
    assert door.main(["papers", "safe-id", *words]) == ExitStatus.OK
    printed = capsys.readouterr().out
    assert "Successes (Table III)" in printed and "Ours does 1 of 1 tasks" in printed
    entries = [json.loads(line) for line in (results / "runs.jsonl").read_text().splitlines()]
    (identified,) = [one["result"] for one in entries if one["job"].get("way") == "ours"]
    assert identified["inside"] and len(identified["plans"]) == 4 and identified["seconds"] < 20.0  # in two chains
    assert safe_id_runs.is_safe(identified["judged"])
    tasks = {one["job"]["method"]: one["result"] for one in entries if one["job"]["kind"] == "task"}
    assert set(tasks) == {"ours", "conservative"}
    assert tasks["ours"]["hand_max"] < 1e-3 and safe_id_runs.is_safe(tasks["ours"]["judged"])
    text = (results / "runs.jsonl").read_text()
    assert door.main(["papers", "safe-id", *words]) == ExitStatus.OK
    assert (results / "runs.jsonl").read_text() == text
    capsys.readouterr()
    assert door.main(["papers", "safe-id", "--done", "--results", str(results)]) == ExitStatus.OK
    assert "Ours does 1 of 1 tasks" in capsys.readouterr().out


@pytest.mark.slow
def test_smoke_sizes_of_tables_4_and_5(results, capsys):
    words = ["--seeds", "1", "--results", str(results)]
    assert door.main(["papers", "safe-id", *words, "--experiment", "table-4", "--motions", "4"]) == ExitStatus.OK
    assert "Correlation of the condition numbers" in capsys.readouterr().out
    assert (
        door.main(["papers", "safe-id", *words, "--experiment", "table-5", "--dumbbells", "dumbbell_4lb"])
        == ExitStatus.OK
    )
    assert "Condition number of Y (Table V)" in capsys.readouterr().out
    assert (results / "safe_id_figures_6_to_10.png").stat().st_size > 5000
