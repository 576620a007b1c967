"""SAFE-ID's experiments: tasks within limits and as near to obstacles as said, methods, tables from a smoke run."""

import json

import numpy as np
import pytest

from sysid_ros.cli import main as door
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.model.mechanics import ArmDynamics, BodyPoses
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.papers import safe_id, safe_id_report, safe_id_runs
from sysid_ros.papers.baselines.armour import ArmourController, PublishedPid
from sysid_ros.papers.baselines.slotine_li import SlotineLiRegressor
from sysid_ros.papers.names import DUMBBELLS, EXPERIMENTS, METHODS
from sysid_ros.papers.safe_id import CLEARANCE, Spheres, build_task


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_tasks_are_within_limits_and_as_near_as_said(experiment):
    robot, task = safe_id.experiment_robot(), build_task(experiment)
    spheres, limits, step = Spheres(robot), robot.limits, 1e-5
    dynamics = ArmDynamics(robot, robot.theta_nominal, load_payload(robot, DUMBBELLS[-1]), armature=True)
    nearest = np.inf
    for t in np.arange(0.013, 2.0 * task.leg, 0.01):
        q, v, a = task.evaluate(t)
        before, after = task.evaluate(t - step), task.evaluate(t + step)
        np.testing.assert_allclose(v, (after[0] - before[0]) / (2.0 * step), atol=1e-4)
        np.testing.assert_allclose(a, (after[1] - before[1]) / (2.0 * step), atol=5e-2)
        assert np.all(limits.q_lower < q) and np.all(q < limits.q_upper) and np.all(np.abs(v) < limits.v_max)
        assert np.all(np.abs(dynamics.torque(q, v, a)) < limits.tau_max)
        nearest = min(nearest, spheres.clearance(q, task.scene))
    assert nearest == pytest.approx(CLEARANCE[experiment], abs=2e-4)
    start, goal = BodyPoses(robot).tool_path([task.start, task.goal])
    np.testing.assert_allclose(start, [0.0, 0.4, 0.37], atol=1e-3)  # the authors' postures, in our model of the arm
    np.testing.assert_allclose(goal, [0.25 if experiment == "a" else 0.5, 0.0, 0.62], atol=1e-3)


def test_the_robust_law_is_the_published_one():
    """By Pinocchio's inverse dynamics at corners of the box; the robust input by brute force over many parameters."""
    robot = safe_id.experiment_robot()
    law, rng = ArmourController(robot), np.random.default_rng(1)
    last, friction = robot.inertial_slice(robot.n), robot.theta_nominal[-4 * robot.n :].reshape(-1, 4)
    payload, spread = robot.payload_prior.nominal, robot.payload_prior.box
    law.set_model(robot.theta_nominal, robot.theta_box, payload, spread)
    gain = np.array([5.0, 5.0, 5.0, 5.0, 7.0, 7.0, 7.0])
    regressor = SlotineLiRegressor(robot)
    for scale in (1e-4, 0.02):
        q, v, e, de, a_d = rng.uniform(-1.0, 1.0, (5, robot.n)) * np.array([1.5, 0.5, scale, scale, 1.0])[:, None]
        r, v_a, a_a = de + gain * e, v + de + gain * e, a_d + gain * de
        tau = law.compute(q, v, q + e, v + de, a_d)
        total = robot.theta_nominal.copy()
        total[last] += payload
        dynamics = ArmDynamics(robot, total, armature=True)
        nominal = dynamics.passive_torque(q, v, v_a, a_a) + friction[:, 0] * np.sign(v_a) + friction[:, 1] * v_a
        added = tau - nominal
        if scale < 1e-3:  # well below V_max there is none
            np.testing.assert_allclose(added, 0.0, atol=1e-9)
            continue
        np.testing.assert_allclose(added / np.linalg.norm(added), r / np.linalg.norm(r), atol=1e-9)
        drawn = rng.choice([-1.0, 1.0], (4000, total.size)) * robot.theta_box.radius + robot.theta_box.center - total
        drawn[:, last] += rng.choice([-1.0, 1.0], (4000, 10)) * spread.radius + spread.center
        rows = regressor.evaluate_one(q, v, v_a, a_a)
        errors = np.abs(drawn @ rows.T).max(axis=0)
        energies = [0.5 * r @ dynamics.inertia(q) @ r]
        least = np.linalg.norm(errors) - 20.0 * (0.02 - min(energies)) / np.linalg.norm(r)
        assert np.linalg.norm(added) > max(0.0, least)


def test_the_pid_has_the_published_gains():
    robot = safe_id.experiment_robot()
    law, rest = PublishedPid(robot), np.zeros(robot.n)
    law.set_model(robot.theta_nominal, robot.theta_box, np.zeros(10), robot.payload_prior.box)
    q = robot.home
    gravity = law.compute(q, rest, q, rest, rest)
    np.testing.assert_allclose(
        law.compute(q, rest, q + 0.1, rest, rest) - gravity, 0.1 * np.repeat([75.0, 20.0], [4, 3])
    )
    integral = 0.1 * 0.01 * 1e-3
    np.testing.assert_allclose(law.compute(q, rest, q, rest, rest) - gravity, integral, atol=1e-12)
    np.testing.assert_allclose(
        law.compute(q, rest, q, rest + 0.1, rest) - gravity, 0.1 * np.repeat([5.0, 1.0], [4, 3]) + integral, atol=1e-12
    )


def test_methods_are_those_of_the_paper_and_the_online_model():
    assert len(METHODS) == 12 and sum(one.paper != ("-", "-", "-") for one in METHODS.values()) == 11
    assert {one.controller for one in METHODS.values()} - {"robust", "pid"} == set(safe_id_runs.GRIDS)
    kinds = [job["method"] for job in safe_id_runs.tuning_jobs("published")]
    assert len(kinds) == sum(map(len, safe_id_runs.GRIDS.values()))


def test_gains_are_the_best_safe_ones():
    def entry(hand, torque, adaptation):
        judged = {"collides": False, "position_limit": False, "velocity": 0.5, "torque": torque}
        job = {"method": "adap-1", "gains": {"adaptation": adaptation}}
        return {"job": job, "result": {"judged": judged, "hand_max": hand}}

    chosen = safe_id_runs.choose_gains([entry(2e-3, 0.8, 20.0), entry(1e-3, 1.2, 60.0), entry(1.5e-3, 0.9, 40.0)])
    assert chosen == {"robust": {}, "pid": {}, "adaptive": {"adaptation": 40.0}}
    assert safe_id_runs.choose_gains([entry(2e-3, 3.0, 20.0)])["adaptive"] == {"adaptation": 20.0}


def test_fourier_and_random_motions_keep_what_they_know_of():
    robot, posture = safe_id.experiment_robot(), build_task("a").start
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


JUDGED = {"collides": False, "clearance": 0.1, "position_limit": False, "velocity": 0.5, "torque": 0.9}
BAD = JUDGED | {"torque": 1.1}


def entry_of(kind, result, **job):
    return {"job": {"kind": kind, "profile": "published", "dumbbell": DUMBBELLS[0], "seed": 0} | job, "result": result}


def task_entry(experiment="a", method="ours", dumbbell=DUMBBELLS[0], seed=0, **changes):
    result = {"failure": "", "judged": JUDGED, "placed": 0.07, "hand_max": 0.1, "energy": 10.0} | changes
    return entry_of("task", result, method=method, experiment=experiment, dumbbell=dumbbell, seed=seed)


def test_what_counts_as_a_failure():
    good = [entry_of("identify", {"judged": JUDGED}, way="ours")]
    assert safe_id_report.failure_of(task_entry(), good) == "" == safe_id_report.failure_of(task_entry("c"), good)
    assert safe_id_report.failure_of(task_entry(placed=0.08), good) == "misplaced"
    assert safe_id_report.failure_of(task_entry("c", placed=0.08), good) == ""
    assert safe_id_report.failure_of(task_entry(judged=BAD), good) == "torque"
    assert safe_id_report.failure_of(task_entry(failure="nothing"), good) == "no model"
    bad = [entry_of("identify", {"judged": BAD}, way="ours")]
    assert safe_id_report.failure_of(task_entry(), bad) == "torque while it identified"
    # An adaptive law moves so itself: its own motion counts.
    assert safe_id_report.failure_of(task_entry(method="adap-1-excit", before=JUDGED), bad) == ""
    assert "identified" in safe_id_report.failure_of(task_entry(method="adap-1-excit", before=BAD), good)


def test_outcomes_are_in_the_words_of_the_paper():
    good = [entry_of("identify", {"judged": JUDGED}, way="ours")]
    tasks = [
        task_entry(method="wrong", dumbbell=held, seed=seed, placed=0.08 if k > 2 or (k == 2 and seed == 0) else 0.0)
        for k, held in enumerate(DUMBBELLS)
        for seed in range(3)
    ]
    words, share = safe_id_report.outcome(tasks, good)
    assert words == "fail at 7lb" and share.startswith("8 of 15") and share.endswith("misplaced")
    assert safe_id_report.outcome(tasks[:9], good)[0] == "success"
    hit = task_entry("c", "wrong", DUMBBELLS[-1], judged=JUDGED | {"collides": True})
    assert safe_id_report.outcome([hit], good)[0] == "collide"


def test_the_first_sentences_name_what_differs():
    ones = np.ones(10)

    def identify(way, widths, condition):
        upper = np.array(widths)
        result = {"judged": JUDGED, "lower": -upper, "upper": upper, "condition": condition, "inside": True}
        return entry_of("identify", result, way=way)

    runs = [identify("ours", ones, 10.0), identify("random", [0.5, *(2.0 * ones[1:])], 400.0)]
    text = safe_id_report.verdict([*runs, task_entry(), task_entry(method="wrong", dumbbell=DUMBBELLS[-1])])
    assert "1 of 2 cells of Table III agree; others: wrong (a)." in text
    assert "Ours does 1 of 1 tasks" in text and "in 1 of 1 runs, with the truth inside all bounds in 1" in text
    assert "is 10, 400 after random plans, whose bounds are narrower for m (2.00 times)." in text


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
    assert identified["inside"] and len(identified["plans"]) == 4 and identified["seconds"] < 30.0  # in two chains
    assert safe_id_runs.is_safe(identified["judged"])
    tasks = {one["job"]["method"]: one["result"] for one in entries if one["job"]["kind"] == "task"}
    assert set(tasks) == {"ours", "conservative"}
    assert tasks["ours"]["hand_max"] < 5e-3 and safe_id_runs.is_safe(tasks["ours"]["judged"])
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
