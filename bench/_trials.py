"""Many independent trials: in several processes, with a file of results that a later run goes on from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

Run = Callable[[Callable, Iterable[tuple]], Iterator]


@contextmanager
def open_workers(count: int) -> Iterator[Run]:
    """Gives a function that yields ``work(*job)`` for all jobs as they are done, in ``count`` processes.

    With one worker the jobs run in this process, in their order.
    """
    if count == 1:
        yield lambda work, jobs: (work(*job) for job in jobs)
        return
    with ProcessPoolExecutor(count) as pool:

        def run(work: Callable, jobs: Iterable[tuple]) -> Iterator:
            for future in as_completed([pool.submit(work, *job) for job in jobs]):
                yield future.result()

        yield run


def read_results(path: str) -> list[dict]:
    """Entries of a file of results, one JSON object per line; none where there is no file."""
    if not path or not Path(path).is_file():
        return []
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def write_result(path: str, entry: dict) -> None:
    """Appends an entry to a file of results, if there is to be one; numpy numbers become plain ones."""
    if path:
        with open(path, "a") as file:
            file.write(json.dumps(entry, default=float) + "\n")
