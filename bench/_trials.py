"""Many independent trials: in several processes, with a file of results that a later run goes on from."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import lru_cache
from inspect import signature
from pathlib import Path

from _table import describe_commit

from sysid_ros.experiments.executor import open_executor

Run = Callable[[Callable, Iterable[tuple]], Iterator]


@contextmanager
def open_workers(count: int) -> Iterator[Run]:
    """Gives a function that yields ``work(*job)`` for all jobs as they are done, in ``count`` processes.

    With one worker the jobs run in this process, in their order. A run that fails ends the benchmark.
    """
    with open_executor(count) as executor:

        def run(work: Callable, jobs: Iterable[tuple]) -> Iterator:
            named = [dict(signature(work).bind(*job).arguments) for job in jobs]
            for completion in executor.run(work, named):
                if completion.failure is not None:
                    raise RuntimeError(completion.failure)
                yield completion.result

        yield run


def read_results(path: str) -> list[dict]:
    """Entries of a file of results, one JSON object per line; none where there is no file."""
    if not path or not Path(path).is_file():
        return []
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def write_result(path: str, entry: dict) -> dict:
    """Append an entry with date and commit to a file of results, if there is to be one; numpy numbers become plain.

    Returns:
        The entry with date and commit.
    """
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    entry = {"date": now, "commit": _commit(), **entry}
    if path:
        with open(path, "a") as file:
            file.write(json.dumps(entry, default=float) + "\n")
    return entry


def describe_results(path: str) -> str:
    """Say when and from which commits the entries of a file of results are."""
    entries = read_results(path)
    dates = sorted(entry["date"] for entry in entries if "date" in entry)
    commits = ", ".join(f"{commit} ({count})" for commit, count in Counter(e.get("commit") for e in entries).items())
    return f"{len(entries)} results, {dates[0]} to {dates[-1]}, of commits {commits}" if dates else "no dated results"


@lru_cache(maxsize=1)
def _commit() -> str:
    return describe_commit()
