"""Runs a benchmark and writes what it printed as a page of the documentation.

    python bench/record.py bench_regressors [arguments of the benchmark]

The tables go to docs/measurements/<name>.json, with date, commit, machine, load and command, and the page
docs/measurements/<name>.md and the list of pages are made from these files. ``python bench/record.py --render`` makes
all pages again; ``python bench/record.py --all regressors`` prints a page with the tables that it leaves out.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import runpy
import shlex
import shutil
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from textwrap import shorten

import _conclusions
import _table

BENCH = Path(__file__).resolve().parent
PAGES = BENCH.parent / "docs" / "measurements"
TITLES = {
    "excite": "EXCITE: experiments", "sva": "SVA: experiments", "safe id": "SAFE-ID: experiments",
    "attacks": "Attacks and faults",
}  # fmt: skip
"""Titles of pages whose names do not say it."""

LEFT_OUT = {
    "closed_loop": (
        "Bounds and limits", "Distances and margins", "Condition number", "Final radius", "drawn", "how it ended",
        "why there was no plan", "What was broken",
    ),
    "attacks": ("All attacks",),
    "containment": ("Trials with all ten", "By sensor errors", "Median half width"),
    "elastic": ("Gains of the shipped arms",),
    "calibration": ("Arm known to 20 %",),
    "estimator": ("half width",),
    "excite": ("What a run costs", "Throughput"),
    "fault_campaign": ("The same under supervision", "A goal while a process", "Storms of messages", "A full disk"),
    "free_floating": ("RMS errors", "Relative errors"),
    "fri": ("Fault campaign", "FRI", "Taken over", "Random and mutated"),
    "kortex": ("Fault campaign", "Kortex", "Taken over", "Faults of the TCP", "Random and mutated"),
    "paper": ("Half widths", "Condition numbers of W"),
    "planner": ("Four plans",),
    "postures": ("Postures that cannot be held",),
    "payload_change": ("kuka",),
    "real_arm": ("The same below", "Parameters of the fits"),
    "safe_id": ("Half widths", "Correlation", "Condition number", "What a run costs", "Throughput"),
    "statistics": ("By data",),
    "sva": ("Leg online", "Regressor of a tree", "What a run costs", "Throughput"),
    "tracking_bound": ("Single motions", "Slowly varying", "Bounds that are proven"),
    "verifier": ("kinova_gen3_2f85, 40 plans", "Accepted plans", "At the edge"),
}  # fmt: skip
"""Tables that a page leaves to its data file, by the beginning of their title or first heading: a page is a screen."""

LEFT_COLUMNS = {
    "closed_loop": ("after, median", "alarm to brake"),
    "containment": ("nearest", "alarms", "stops", "data [s]", "estimation", "1st quartile"),
    "elastic": ("c [1/s]", "torque change"),
    "fault_campaign": ("later than", "median"),
    "free_flyer_excitation": ("evaluations", "CPU", "gap"),
    "payload_change": ("before it happens",),
    "safe_id": ("energy", "gains", "motion before"),
    "statistics": ("widest", "absent"),
    "verifier": ("for",),
    "whole_arm": ("starts", "with friction", "distance left"),
}
"""Columns that a page leaves out as well, by the beginning of their heading."""

_MOST_NOTES = 8
"""More lines are progress, as indented ones are: they stay in the data file, as do the ends of long lines."""


class Tee(io.TextIOBase):
    """Passes text on and keeps the lines."""

    def __init__(self, stream) -> None:
        self._stream = stream
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


def measure(script: str, arguments: list[str]) -> dict:
    """Run a benchmark and return its tables with everything that is needed to judge them."""
    path = BENCH / f"{script}.py"
    load, began = os.getloadavg()[0], time.monotonic()
    tables: list[dict] = []
    leads: list[str] = []
    figures: list[tuple[str, str]] = []
    _table.listeners.append(tables.append)
    _table.lead_listeners.append(leads.append)
    _table.figure_listeners.append(lambda path, caption: figures.append((path, caption)))
    sys.argv = [str(path), *arguments]
    tee = Tee(sys.stdout)
    with contextlib.redirect_stdout(tee):
        failed = run(path)
    printed = "\n".join(_table.format_table(**table) for table in tables).splitlines()
    printed += [*leads, *(f"{path}: {caption}" for path, caption in figures)]
    notes = [line for line in tee.text.splitlines() if line and line not in printed and not _is_machine(line)]
    return {
        "benchmark": script,
        "summary": (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].replace("\n", " "),
        "command": shlex.join(["python", f"bench/{script}.py", *map(_without_folder, arguments)]),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _table.describe_commit(),
        "machine": _table.describe_machine(),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "seconds": round(time.monotonic() - began),
        "lead": "\n\n".join(leads),
        "figures": [{"file": _keep_figure(path), "caption": caption} for path, caption in figures],
        "tables": tables,
        "notes": notes + ([f"The benchmark ended with exit status {failed}."] if failed else []),
    }


def run(path: Path) -> int:
    """Run a benchmark as a program and return its exit status; 0 where it ends without one."""
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as ended:
        if ended.code is not None and not isinstance(ended.code, int):
            raise
        return ended.code or 0
    return 0


def is_left_out(data: dict, table: dict) -> bool:
    """Return whether a table stays in the data file."""
    beginnings = LEFT_OUT.get(page_name(data), ())
    return (table["title"] or table["columns"][0]).startswith(beginnings)


def narrow(data: dict, table: dict) -> dict:
    """Return a table without the columns that its page leaves out."""
    beginnings = LEFT_COLUMNS.get(page_name(data), ())
    kept = [k for k, column in enumerate(table["columns"]) if not column.startswith(beginnings)]
    rows = [[row[k] for k in kept] for row in table["rows"]]
    return {**table, "columns": [table["columns"][k] for k in kept], "rows": rows}


def render(data: dict, shows_all: bool = False) -> str:
    """Return the page of a measurement, with or without the tables and lines that it leaves to its data file."""
    before, after = data["load"]
    shown = [table for table in data["tables"] if shows_all or not is_left_out(data, table)]
    notes = data["notes"] if shows_all else [note for note in dict.fromkeys(data["notes"]) if not note.startswith(" ")]
    notes = (
        notes if shows_all else [shorten(note, 200, placeholder=" ...") for note in notes if len(notes) <= _MOST_NOTES]
    )
    lead = data.get("lead") or _conclusions.conclude(page_name(data), data)
    parts = [f"# {title(data)}", *([lead] if lead else []), data["summary"]]
    parts += [_table.format_table(**(table if shows_all else narrow(data, table))) for table in shown]
    if len(shown) < len(data["tables"]) or (page_name(data) in LEFT_COLUMNS and not shows_all):
        parts.append("[More tables and columns](index.md)")
    parts += [f"![]({figure['file']})\n\n{figure['caption']}" for figure in data.get("figures", ())]
    parts += ["\n".join(f"    {line}" for line in notes)] if notes else []
    parts += [
        f"`{data['command']}`, {data['date']}, commit `{data['commit']}`, {data['seconds']} s. "
        f"{data['machine'].partition(', OMP')[0]}; load {before} to {after}.",
        "<!-- bench/record.py -->",
    ]
    return "\n\n".join(parts) + "\n"


def title(data: dict) -> str:
    """Return the title of a measurement."""
    name = page_name(data).replace("_", " ")
    name = TITLES.get(name, name)
    return f"{name[0].upper()}{name[1:]}"


def render_index(measured: list[dict]) -> str:
    """Return the list of all pages."""
    rows = []
    for data in sorted(measured, key=title):
        what = data["summary"].split(". ")[0].split(", from the runs")[0].rstrip(".")
        rows.append(f"| [{title(data)}]({page_name(data)}.md) | {what} |")
    return "\n".join([_INDEX, *rows, ""])


_INDEX = """# Measurements

Each page is written by the benchmark it is named after, from a data file beside it:

    python bench/record.py bench_regressors [arguments]

Some pages leave tables or columns out; `python bench/record.py --all regressors` prints all. Times depend on the
machine and its load.

| page | what is measured |
|---|---|"""


def page_name(data: dict) -> str:
    """Return the name of a measurement's files, without suffix."""
    return data["benchmark"].removeprefix("bench_")


def _keep_figure(path: str) -> str:
    """Copy a figure to the pages and return its place there."""
    (PAGES / "figures").mkdir(parents=True, exist_ok=True)
    shutil.copy(path, PAGES / "figures" / Path(path).name)
    return f"figures/{Path(path).name}"


def _without_folder(argument: str) -> str:
    """Return the name of a file or folder without the folders of this machine, and any other argument as it is."""
    return Path(argument).name if "/" in argument and Path(argument).exists() else argument


def _is_machine(line: str) -> bool:
    return _table.describe_machine() in line


def main() -> None:
    if sys.argv[1:] == ["--render"]:
        write_pages()
        return
    if sys.argv[1:2] == ["--all"] and len(sys.argv) == 3:
        print(render(json.loads((PAGES / f"{sys.argv[2]}.json").read_text()), shows_all=True))
        return
    if len(sys.argv) < 2 or not (BENCH / f"{sys.argv[1]}.py").is_file():
        raise SystemExit(__doc__)
    data = json.loads(json.dumps(measure(sys.argv[1], sys.argv[2:]), default=float))
    PAGES.mkdir(exist_ok=True)
    (PAGES / f"{page_name(data)}.json").write_text(json.dumps(data, indent=1) + "\n")
    write_pages()


def write_pages() -> None:
    """Write the page of every data file, and the list of them."""
    measured = [json.loads(path.read_text()) for path in PAGES.glob("*.json")]
    for data in measured:
        (PAGES / f"{page_name(data)}.md").write_text(render(data))
    (PAGES / "index.md").write_text(render_index(measured))


if __name__ == "__main__":
    main()
