"""Many independent runs: the same results whoever carries them out, failures, dead workers, going on from a file."""

import json

import executor_runs as runs
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.executor import DaskCluster, InProcess, LocalProcesses, ResultsFile, open_executor, run_all, throughput
from sysid_ros.papers.tables import cost_tables


def jobs(count):
    return [{"seed": seed} for seed in range(count)]


def results_of(executor, path=None):
    results = ResultsFile(path)
    assert run_all(runs.draw, jobs(5), results, executor) == []
    return results.results


def test_processes_give_the_same_results(tmp_path):
    alone = results_of(InProcess(), tmp_path / "alone.jsonl")
    assert results_of(LocalProcesses(2)) == alone and len(alone) == 5
    assert ResultsFile(tmp_path / "alone.jsonl").results == alone


def test_what_is_in_the_file_is_not_run_again(tmp_path):
    path, seen = tmp_path / "some" / "runs.jsonl", []
    run_all(runs.draw, jobs(3), ResultsFile(path))
    lines = path.read_text().splitlines()
    results = ResultsFile(path)
    run_all(runs.draw, [*jobs(4), {"seed": 0}], results, on_progress=seen.append)
    assert [one.completion.job for one in seen[1:]] == [{"seed": 3}]
    assert (seen[0].done, seen[0].total, seen[-1].done) == (3, 4, 4) and seen[-1].left == 0.0
    assert path.read_text().splitlines()[:3] == lines
    assert {"seed": 1} in results and {"seed": 1, "name": "b"} not in results


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_tells_how_far_it_is(workers):
    """And what has ended is not counted twice."""
    seen = []
    with open_executor(workers) as executor:
        assert run_all(runs.tell_quarters, jobs(2), ResultsFile(None), executor, seen.append) == []
    assert {0.25, 0.5, 0.75} <= {one.under_way % 1.0 for one in seen} and seen[0].left is None
    assert max(one.done + one.under_way for one in seen) <= 2.0
    assert [one.done + one.under_way for one in seen if one.completion is None] == sorted(
        one.done + one.under_way for one in seen if one.completion is None
    )
    assert seen[-1].under_way == 0.0 and seen[-1].left == 0.0
    count = len(seen)
    runs.tell_quarters(seed=0)  # once more, for nobody: it may be called outside of an executor, and after one
    assert len(seen) == count


def test_failures_are_told_and_tried_again(tmp_path):
    seen = []
    results = ResultsFile(None)
    failures = run_all(runs.fail_on_odd, jobs(4), results, on_progress=seen.append)
    assert [one.job["seed"] for one in failures] == [1, 3]
    assert "seed = 1" in failures[0].failure or "an even number" in failures[0].failure
    assert seen[-1].failed == 4 and seen[-1].done == 2 and len(results.results) == 2
    work = [{"folder": str(tmp_path), **job} for job in jobs(4)]
    assert run_all(runs.fail_once, work, ResultsFile(None), LocalProcesses(2)) == []


def test_a_worker_that_dies_takes_only_its_own_run_along(tmp_path):
    seen = []
    work = [{"folder": str(tmp_path), **job} for job in jobs(5)]
    results = ResultsFile(None)
    assert run_all(runs.die_once, work, results, LocalProcesses(2), seen.append) == []
    failed = [one.completion for one in seen if one.completion is not None and one.completion.failure is not None]
    assert [one.job["seed"] for one in failed] == [1] and "process died" in failed[0].failure
    assert sorted(results.results.values()) == [0, 1, 2, 3, 4]


def test_an_interrupt_loses_nothing_that_has_ended(tmp_path):
    path = tmp_path / "runs.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run_all(runs.interrupt, jobs(6), ResultsFile(path))
    assert len(ResultsFile(path).results) == 3


def test_what_a_file_cannot_keep_is_a_failure():
    (failure,) = run_all(runs.not_plain, jobs(2), ResultsFile(None))
    assert failure.job == {"seed": 1} and failure.result is None and "not plain" in failure.failure


def test_a_line_that_was_cut_short_is_run_again_and_a_wrong_one_is_named(tmp_path):
    path = tmp_path / "runs.jsonl"
    run_all(runs.draw, jobs(3), ResultsFile(path))
    text = path.read_text()
    path.write_text(text[:-30])
    results = ResultsFile(path)
    assert len(results.results) == 2 and path.read_text() == "".join(text.splitlines(keepends=True)[:2])
    path.write_text(text[:-1])  # whole, but for its end
    run_all(runs.draw, jobs(4), ResultsFile(path))
    assert len(ResultsFile(path).results) == 4
    path.write_text("{}\n" + text)
    with pytest.raises(SysidError, match=r"line 1 of .*runs.jsonl is no result"):
        ResultsFile(path)


def test_throughput_by_worker():
    entries = [{"worker": "b", "seconds": 2.0}, {"worker": "a", "seconds": 0.5}, {"worker": "b", "seconds": 2.0}]
    assert throughput(entries) == {"a": (1, 2.0), "b": (2, 0.5)}


def test_what_runs_have_cost_by_kind_and_by_worker(tmp_path):
    path = tmp_path / "runs.jsonl"
    run_all(runs.draw, jobs(3), ResultsFile(path))
    entries = ResultsFile(path).entries
    costs, workers = cost_tables(entries, lambda job: f"draw {job['seed'] % 2}")
    assert [row[:2] for row in costs.rows] == [("draw 0", 2), ("draw 1", 1)] and "-" not in costs.rows[0]
    assert [row[:2] for row in workers.rows] == [(1, 3)]  # a number, not the name of a machine
    del entries[0]["processor_seconds"]  # of an earlier version
    assert cost_tables(entries[:1], lambda job: "draw")[0].rows[0][3] == "-"
    assert cost_tables([{"job": {}, "result": None}], lambda job: "draw") == []


def test_no_worker_and_no_cluster_are_refused(monkeypatch):
    monkeypatch.setattr("sysid_ros.executor._CONNECT_TIMEOUT", 0.3)
    with pytest.raises(ParameterOutOfRange, match="workers"), open_executor(0):
        pass
    pytest.importorskip("distributed")
    with pytest.raises(SysidError, match="127.0.0.1:1"):
        DaskCluster("tcp://127.0.0.1:1")


@pytest.mark.processes
def test_a_cluster_gives_the_same_results_though_a_worker_is_killed(tmp_path):
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None, silence_logs=50
    )
    with cluster:
        with open_executor(scheduler=cluster.scheduler_address) as executor:
            assert executor.workers == 2
            work = [{"folder": str(tmp_path), **job} for job in jobs(8)]
            results = ResultsFile(tmp_path / "runs.jsonl")
            assert run_all(runs.wait_and_die, work, results, executor) == []
    assert (tmp_path / "died").exists()
    expected = [json.loads(json.dumps(runs.draw(seed), default=lambda value: value.tolist())) for seed in range(8)]
    assert [results[one] for one in work] == expected
    assert all(entry["worker"] and entry["seconds"] > 0.0 for entry in results.entries)
