"""Carry out many independent runs: in this process, in processes of this machine, or on a dask cluster.

A run is a function of plain values, its *job*, and returns plain values; seeds belong to the job. So a run gives the
same result wherever it is carried out, and its job is the key under which a file of results keeps it: runs
of the file are not repeated. Every result is written as soon as it is there; Ctrl-C loses only runs that are under way.

A worker that dies takes down the run it is busy with, and no other. Runs that fail are repeated after all others.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError

Job = Mapping[str, Any]
"""Arguments of a run by name: strings, numbers, booleans, None, lists and mappings of these."""
Work = Callable[..., Any]
"""A function of a module, called with the job as keyword arguments; returns what JSON can hold."""
ATTEMPTS = 2
"""How often a run that fails is tried."""
_CONNECT_TIMEOUT = 10.0
"""How long the scheduler of a cluster is looked for [s]."""


@dataclass(frozen=True)
class Completion:
    """How a run ended.

    Attributes:
        job: The run.
        result: What it returned; None where it failed.
        failure: Why it failed, in words; None where it did not.
        worker: Who carried it out.
        seconds: Wall time it took [s]; NaN where it failed with its worker.
        processor_seconds: Processor time it took [s], which other programs on the machine hardly change; the same.
    """

    job: Job
    result: Any
    failure: str | None
    worker: str
    seconds: float
    processor_seconds: float = float("nan")


_listener: Callable[[float], object] = bool
"""Of this process: takes the share of its run that is done."""


def tell_share(share: float) -> None:
    """Tell which share of the run that this process carries out is done, 0..1; for the functions of runs."""
    _listener(share)


def _listen(listener: Callable[[float], object]) -> None:
    global _listener  # noqa: PLW0603 - a process carries out one run at a time
    _listener = listener


def carry_out(work: Work, job: Job) -> Completion:
    """Carry out one run here, and note how it ended."""
    begin, worker = (time.monotonic(), time.process_time()), f"{os.uname().nodename}:{os.getpid()}"
    try:
        result, failure = work(**job), None
    except Exception as error:  # noqa: BLE001 - whatever a run raises is its failure, and no end of the others
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        where = " > ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
        result, failure = None, f"{type(error).__name__}: {error} ({where})"
    return Completion(job, result, failure, worker, time.monotonic() - begin[0], time.process_time() - begin[1])


class Executor(ABC):
    """Carries out runs.

    Attributes:
        workers: Runs at a time.
        on_share: Called with a run and the share of it that is done, if it reports any (:func:`tell_share`) and is
            carried out on this machine.
    """

    workers = 1
    on_share: Callable[[Job, float], object] = staticmethod(lambda job, share: None)

    @abstractmethod
    def run(self, work: Work, jobs: Sequence[Job]) -> Iterator[Completion]:
        """Carry out all jobs, and yield each as it ends, in any order; a failure ends no other run."""


class InProcess(Executor):
    """Runs one after the other in this process, in their order."""

    def run(self, work: Work, jobs: Sequence[Job]) -> Iterator[Completion]:
        """See :class:`Executor`."""
        for job in jobs:
            _listen(partial(self.on_share, job))
            try:
                completion = carry_out(work, job)
            finally:
                _listen(bool)
            yield completion


class LocalProcesses(Executor):
    """Runs in processes of this machine, one at a time in each.

    Args:
        workers: Number of processes.

    Raises:
        ParameterOutOfRange: There is to be less than one.
    """

    def __init__(self, workers: int):
        if workers < 1:
            raise ParameterOutOfRange("workers", workers, "1 or more")
        self.workers = workers

    def run(self, work: Work, jobs: Sequence[Job]) -> Iterator[Completion]:
        """See :class:`Executor`."""
        waiting, idle = deque(jobs), [_Worker() for _ in range(min(self.workers, len(jobs)))]
        busy: dict[Any, tuple[_Worker, Job]] = {}
        try:
            while waiting or busy:
                while waiting and idle:
                    worker, job = idle.pop(), waiting.popleft()
                    worker.pipe.send((work, job))
                    busy[worker.pipe] = worker, job
                pipe: Any
                for pipe in connection.wait(busy):
                    worker, job = busy[pipe]
                    try:
                        message: Any = pipe.recv()
                    except (EOFError, OSError):
                        failure = "its process died: killed, or out of memory"
                        worker, message = _Worker(), Completion(job, None, failure, "", float("nan"))
                    if isinstance(message, Completion):
                        del busy[pipe]
                        idle.append(worker)
                        yield message
                    else:
                        self.on_share(job, message)
        finally:
            for worker in (*idle, *(worker for worker, _ in busy.values())):
                worker.process.kill()


class _Worker:
    """A process that carries out runs, and the pipe to it: runs there, shares and completions back."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,))
        self.process.start()
        theirs.close()


def _work(pipe: Any) -> None:
    """Carry out runs until the other end of the pipe is closed; Ctrl-C is for the process there."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _listen(pipe.send)
    with suppress(EOFError, OSError):
        while True:
            completion = carry_out(*pipe.recv())
            try:
                pipe.send(completion)
            except (AttributeError, TypeError, pickle.PicklingError) as error:
                pipe.send(replace(completion, result=None, failure=repr(error)))


class DaskCluster(Executor):
    """Runs on the workers of a dask cluster, which have this package installed.

    The cluster itself repeats runs whose worker is lost, on another one.

    Args:
        address: Of its scheduler, as ``tcp://host:8786``.

    Raises:
        SysidError: ``distributed`` is not installed, no scheduler answers, or there are no workers.
    """

    def __init__(self, address: str):
        try:
            from distributed import Client
        except ImportError as error:
            raise SysidError(f"no cluster at '{address}'", "install sysid_ros with its extra [cluster]") from error
        try:
            self._client = Client(address, timeout=_CONNECT_TIMEOUT, set_as_default=False)
        except (OSError, ValueError, TimeoutError, AssertionError) as error:  # the last of an invalid address
            raise SysidError(f"no cluster at '{address}'", f"{type(error).__name__}: {error}") from error
        self.workers = len(self._client.scheduler_info(n_workers=-1)["workers"])
        if not self.workers:
            self.close()
            raise SysidError(
                f"no cluster at '{address}'", "its scheduler has no workers; start them with 'dask worker'"
            )

    def run(self, work: Work, jobs: Sequence[Job]) -> Iterator[Completion]:
        """See :class:`Executor`."""
        from distributed import as_completed

        futures = {self._client.submit(carry_out, work, job, pure=False): job for job in jobs}
        try:
            for future in as_completed(list(futures), loop=self._client.loop):
                error = future.exception()
                if error is None:
                    yield future.result()
                else:  # the cluster gave up: a run that has killed several workers, or results that were lost
                    yield Completion(futures[future], None, f"{type(error).__name__}: {error}", "", float("nan"))
        finally:
            self._client.cancel(list(futures), force=True)

    def close(self) -> None:
        """Leave the cluster."""
        self._client.close()


@contextmanager
def open_executor(workers: int = 1, scheduler: str = "") -> Iterator[Executor]:
    """Give what carries out runs, for the options ``--workers`` and ``--scheduler``.

    Args:
        workers: Processes of this machine; with one, runs are carried out in this process.
        scheduler: Address of the scheduler of a dask cluster; empty for this machine.

    Raises:
        SysidError: There is no such cluster.
        ParameterOutOfRange: There are to be less than one worker.
    """
    if scheduler:
        with closing(DaskCluster(scheduler)) as cluster:
            yield cluster
    elif workers == 1:
        yield InProcess()
    else:
        yield LocalProcesses(workers)


@dataclass
class ResultsFile:
    """Results of runs, one JSON object per line, each appended as soon as its run has ended.

    Args:
        path: The file; made with the first result. None keeps results in memory alone.

    Attributes:
        results: Results by key of their job.

    Raises:
        SysidError: A line is no result. A last line that was cut short is dropped: its run is repeated.
    """

    path: Path | None
    results: dict[str, Any] = field(default_factory=dict, init=False)
    entries: list[dict[str, Any]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.path is None or not self.path.is_file():
            return
        text = self.path.read_text(encoding="utf-8")
        if not text:
            return
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                entry = json.loads(line)
                self.results[key_of(entry["job"])] = entry["result"]
                self.entries.append(entry)
            except (ValueError, TypeError, KeyError) as error:
                if number <= text.count("\n"):
                    raise SysidError(
                        f"line {number} of {self.path} is no result of a run",
                        "expected an object with 'job' and 'result'; take another file, or remove the line",
                    ) from error
        if not text.endswith("\n"):  # the machine stopped while the last line was written
            whole = len(text.splitlines()) == len(self.entries)
            self.path.write_text(text + "\n" if whole else text[: text.rfind("\n") + 1], encoding="utf-8")

    def __contains__(self, job: Job) -> bool:
        return key_of(job) in self.results

    def __getitem__(self, job: Job) -> Any:
        return self.results[key_of(job)]

    def add(self, completion: Completion) -> None:
        """Append a run that has ended well."""
        now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        spent = {name: round(getattr(completion, name), 3) for name in ("seconds", "processor_seconds")}
        how = {"date": now, "worker": completion.worker, **spent}
        entry = {"job": json.loads(key_of(completion.job)), "result": completion.result, **how}
        self.results[key_of(completion.job)] = entry["result"]
        self.entries.append(entry)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")


def key_of(job: Job) -> str:
    """Return the key of a run: its job as JSON, in alphabetical order."""
    return json.dumps(dict(job), sort_keys=True, default=plain)


def plain(value: Any) -> Any:
    """Return numbers and arrays of numpy as plain Python ones, for JSON."""
    return value.tolist()


@dataclass(frozen=True)
class Progress:
    """How far many runs have come.

    Attributes:
        done: Runs that have ended, earlier calls included.
        total: All of them.
        failed: Failures so far; a run that is repeated can have several.
        elapsed: Time since the start [s].
        left: Expected time until the end [s]; None before the first run has ended.
        completion: The run that has just ended; None at the start and on the way.
        under_way: What is done of runs that have not ended, in runs.
    """

    done: int
    total: int
    failed: int
    elapsed: float
    left: float | None
    completion: Completion | None
    under_way: float = 0.0


def run_all(
    work: Work,
    jobs: Sequence[Job],
    results: ResultsFile,
    executor: Executor | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> list[Completion]:
    """Carry out all runs that are not among the results yet.

    Args:
        work: The function of a run.
        jobs: All runs; a job that comes twice is run once.
        results: Results so far; the runs add theirs.
        executor: Who carries them out; this process if None.
        on_progress: Called at the start, with every run that ends, and with every report of a run.

    Returns:
        What failed :data:`ATTEMPTS` times; empty where there are results of all.
    """
    executor, begin = executor or InProcess(), time.monotonic()
    wanted = {key_of(job): job for job in jobs}
    pending = [job for job in wanted.values() if job not in results]
    before, ended, failed = len(wanted) - len(pending), 0, 0
    failures: list[Completion] = []
    shares: dict[str, float] = {}

    def tell(completion: Completion | None = None) -> None:
        count, elapsed = ended + failed + sum(shares.values()), time.monotonic() - begin
        left = elapsed * ((len(wanted) - before + failed) / count - 1.0) if count else None
        on_progress(Progress(before + ended, len(wanted), failed, elapsed, left, completion, sum(shares.values())))

    def note(job: Job, share: float) -> None:
        shares[key_of(job)] = share
        tell()

    executor.on_share = note
    tell()
    for _ in range(ATTEMPTS):
        failures = []
        for completion in map(_plain_result, executor.run(work, pending)):
            if completion.failure is None:
                results.add(completion)
                ended += 1
            else:
                failures.append(completion)
                failed += 1
            shares.pop(key_of(completion.job), None)
            tell(completion)
        pending = [completion.job for completion in failures]
        if not pending:
            break
    return failures


def _plain_result(completion: Completion) -> Completion:
    """Return the run as a file of results keeps it: with lists for tuples and arrays; a failure where none can."""
    try:
        return replace(completion, result=json.loads(json.dumps(completion.result, default=plain)))
    except (AttributeError, TypeError, ValueError) as error:
        return replace(completion, result=None, failure=f"its result is not plain: {error}")


def throughput(entries: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, float]]:
    """Return by worker how many runs it has carried out, and how many of them in a second of its own time."""
    found: dict[str, list[float]] = {}
    for entry in entries:
        found.setdefault(entry["worker"], []).append(entry["seconds"])
    return {worker: (len(times), len(times) / max(sum(times), 1e-9)) for worker, times in sorted(found.items())}
