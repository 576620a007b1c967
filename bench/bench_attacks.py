"""Attacks on certificates, messages and assumptions, repeated.

``python bench/bench_attacks.py [--trials N] [NAME ...]``. NAME is that of a file ``_attacks_NAME.py`` beside this one;
each runs alone, with as many trials as it wants by default. Rows are kept in ``docs/measurements/attacks.jsonl`` with
date and commit, so that long trials need not be repeated with the others: the table has the latest of each, and the
counts of commit 0e3a2270, which they were found in, where the trial was run there, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import date
from pathlib import Path

from _table import describe_commit, describe_machine, print_lead, print_table

BENCH = Path(__file__).resolve().parent
ROWS = BENCH.parent / "docs" / "measurements" / "attacks.jsonl"
BEFORE = "0e3a2270"


def measure(name: str, trials: int | None) -> list[dict]:
    """Run the trials of a file and return its rows, with date and commit."""
    command = [sys.executable, str(BENCH / f"_attacks_{name}.py"), *(["--trials", str(trials)] if trials else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    where = {"name": name, "commit": describe_commit(), "date": date.today().isoformat()}
    return [json.loads(line) | where for line in done.stdout.splitlines() if line.startswith("{")]


def read_rows() -> list[dict]:
    """Return the rows of earlier runs."""
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.is_file() else []


def keep(rows: list[dict], new: list[dict]) -> list[dict]:
    """Return the rows with new ones in place of those of the same attack, those of the first commit apart."""

    def key(row: dict) -> tuple[str, str, bool]:
        return row["point"], row["attack"], row["commit"].startswith(BEFORE)

    return sorted(
        [*({key(row): row for row in [*rows, *new]}.values())], key=lambda row: (len(row["point"]), *key(row))
    )


AREAS = {
    "doors": "forged and replayed estimates, smaller scenes, the key in other processes",
    "load": "time of a simulated arm",
    "share": "broken assumptions that leave the data consistent, and false warnings",
    "signals": "Ctrl-C several times at any moment",
    "stalls": "processes of an idle suite stopped for a while",
    "statistics": "statistical intervals that are false, too wide or missing",
    "verify": "forged certificates, fast deflections of gears, FRI modes",
}
"""What the trials of each file attack."""


def show(rows: list[dict]) -> None:
    """Print what still shows, one row per area, and all attacks."""
    now = [row for row in rows if not row["commit"].startswith(BEFORE)]
    shown = [row for row in now if row["failed"]]
    print_lead(f"{len(shown)} of {len(now)} attacks still succeed at times; none of the others did in any trial.")
    found = [[row["attack"], f"{row['failed']} of {row['trials']}", row["note"]] for row in shown]
    print_table(["still succeeds", "trials", "note"], found)
    areas = []
    for name in sorted({row["name"] for row in now}):
        part = [row for row in now if row["name"] == name]
        measured = ", ".join(sorted({f"{row['date']} ({row['commit']})" for row in part}))
        areas.append(
            [AREAS[name], len(part), *(sum(row[key] for row in part) for key in ("trials", "failed")), measured]
        )
    print_table(["attacked", "attacks", "trials", "succeeded", "measured"], areas)
    before = {(row["point"], row["attack"]): row for row in rows if row["commit"].startswith(BEFORE)}
    table = []
    for row in rows:
        if row["commit"].startswith(BEFORE):
            continue
        old = before.get((row["point"], row["attack"]))
        was = "not tried" if old is None else f"{old['failed']} of {old['trials']}"
        table.append([row["point"], row["attack"], was, f"{row['failed']} of {row['trials']}", row["note"],
                      f"{row['date']}, {row['commit']}"])  # fmt: skip
    print_table(["point", "attack or fault", f"shows in {BEFORE}", "shows", "note", "measured"], table, "All attacks")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(path.stem.removeprefix("_attacks_") for path in BENCH.glob("_attacks_*.py"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"trials to run: {', '.join(names)} (default: none)")
    parser.add_argument("--trials", type=int, help="trials of each attack (default: as each file has it)")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    print(describe_machine())
    rows = read_rows()
    for name in options.names:
        rows = keep(rows, measure(name, options.trials))
        ROWS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    show(rows)


if __name__ == "__main__":
    main()
