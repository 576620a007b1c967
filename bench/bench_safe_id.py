"""Experiments of SAFE-ID section VI in simulation, from the runs of `sysid papers safe-id`: a Kinova Gen3 that picks up
dumbbells of 4 to 8 lb, identifies them or not, and places them among obstacles, by the paper's eleven methods and SVA's
online model. The arm's true parameters lie anywhere in their box, another arm for each seed. Not in the paper, and so
our choice: the obstacles, the postures, what success is, friction and sensors of the arm, gains (the best of a grid on
a run of its own with 6 lb), 1 kHz in place of 4 kHz, and what may be held: anything up to 4 kg at the fingers in place
of the box of Table I, with which nothing can be proven from 7 lb on. adap-2 is composite adaptation (Slotine and Li
1989): we do not have the text of the paper's [1]. Random plans and Fourier series keep the limits of positions and
velocities alone. Identification counts the second in which the arm is weighed at rest. Intervals are of 95 %: of shares
exact (Clopper and Pearson), of medians by order statistics, for few runs the whole range; after the comma is the
largest. They count every task as a run of its own, though tasks with one arm share its parameters. Experiment (c) is
made with the heaviest dumbbell alone, as in the paper.

``python bench/bench_safe_id.py [options of sysid papers safe-id]``. Runs that are not in the file yet are made.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import sys
from pathlib import Path

from _table import describe_machine, print_figure, print_lead, print_table

from sysid_ros.cli.papers_safe_id import collect_runs
from sysid_ros.cli.parse_others import safe_id_parser
from sysid_ros.papers import safe_id_report


def main() -> int:
    options = safe_id_parser().read()
    print(describe_machine(), flush=True)
    entries, failures = collect_runs(options)
    print_lead(safe_id_report.verdict(entries))
    for table in safe_id_report.tables(entries):
        print_table(table.columns, table.rows, table.title)
    for path, caption in safe_id_report.draw_figures(entries, Path(options.results)):
        print_figure(str(path), caption)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
