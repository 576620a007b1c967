"""Many independent trials: in several processes, with a file of results that a later run goes on from.

Files of results have one JSON object per line; those whose names end in ``.gz`` are compressed.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import lru_cache
from inspect import signature
from pathlib import Path
from typing import IO

from _table import describe_commit

from sysid_ros.executor import open_executor

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
    """Entries of a file of results; none where there is no file."""
    if not path or not Path(path).is_file():
        return []
    with _open(path, "rt") as file:
        return [json.loads(line) for line in file]


def write_result(path: str, entry: dict) -> dict:
    """Append an entry with date and commit to a file of results, if there is to be one; numpy numbers become plain.

    Returns:
        The entry with date and commit.
    """
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    entry = {"date": now, "commit": _commit(), **entry}
    if path:
        with _open(path, "at") as file:
            file.write(json.dumps(entry, default=float) + "\n")
    return entry


def describe_results(path: str) -> str:
    """Say when and from which commits the entries of a file of results are."""
    entries = read_results(path)
    dates = sorted(entry["date"] for entry in entries if "date" in entry)
    commits = ", ".join(f"{commit} ({count})" for commit, count in Counter(e.get("commit") for e in entries).items())
    return f"{len(entries)} results, {dates[0]} to {dates[-1]}, of commits {commits}" if dates else "no dated results"


def _open(path: str, mode: str) -> IO[str]:
    return gzip.open(path, mode) if path.endswith(".gz") else open(path, mode)


@lru_cache(maxsize=1)
def _commit() -> str:
    return describe_commit()
