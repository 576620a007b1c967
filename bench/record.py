"""Runs a benchmark and writes what it printed as a page of the documentation.

    python bench/record.py bench_regressors [arguments of the benchmark]

The tables go to docs/measurements/<name>.json, with date, commit, machine, load and command, and the page
docs/measurements/<name>.md and the list of pages are made from these files. ``python bench/record.py --render`` makes
all pages again.
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

import _table

BENCH = Path(__file__).resolve().parent
PAGES = BENCH.parent / "docs" / "measurements"
TITLES = {"sva": "SVA: experiments", "safe id": "SAFE-ID: experiments", "attacks": "Attacks and faults"}
"""Titles of pages whose names do not say it."""


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


def render(data: dict) -> str:
    """Return the page of a measurement."""
    before, after = data["load"]
    parts = [f"# {title(data)}", *([data["lead"]] if data.get("lead") else []), data["summary"]]
    parts += [_table.format_table(**table) for table in data["tables"]]
    parts += [f"![{figure['caption']}]({figure['file']})\n\n{figure['caption']}" for figure in data.get("figures", ())]
    parts += ["\n".join(f"    {line}" for line in data["notes"])] if data["notes"] else []
    parts += [
        f"`{data['command']}`, {data['date']}, commit `{data['commit']}`, {data['seconds']} s. "
        f"{data['machine']}; load {before} before and {after} after.",
        f"<!-- Made by bench/record.py from {page_name(data)}.json; run it again to change this page. -->",
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
        what = data["summary"].split(". ")[0].rstrip(".")
        rows.append(f"| [{title(data)}]({page_name(data)}.md) | {what}. | {data['date'][:10]} |")
    return "\n".join([_INDEX, *rows, ""])


_INDEX = """# Measurements

Every page here was written by the benchmark it is named after, from a data file beside it, with date, commit, machine
and load:

    python bench/record.py bench_regressors [arguments]

Numbers depend on the machine and on what else runs there.

| page | what is measured | date |
|---|---|---|"""


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
