"""Experiments of SAFE-ID section VI in simulation, from the runs of `sysid papers safe-id`: a Kinova Gen3 that picks up
dumbbells of 4 to 8 lb and places them among obstacles, by the paper's eleven methods and SVA's online model. Each seed
draws another arm from its box. Our choice, as the paper does not say: obstacles, postures, criterion of success,
friction, sensors, gains (best of a grid with 6 lb), 1 kHz instead of 4 kHz, and a prior of up to 4 kg at the fingers
instead of Table I, with which nothing can be proven from 7 lb on. adap-2 is composite adaptation (Slotine and Li 1989),
for lack of the paper's [1]. Random plans and Fourier series respect only position and velocity limits. Intervals of
95 %: exact for shares (Clopper and Pearson), order statistics for medians; after the comma the largest. Tasks with one
arm count as independent. Experiment (c): the heaviest dumbbell alone, as in the paper.

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
