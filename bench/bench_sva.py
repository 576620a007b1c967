"""Experiments of SVA section VI in simulation, from the runs of `sysid papers sva`. Robots, motions, noise and gains
are ours, as the paper gives none: bodies a third denser than drawn, friction within 20 %, torques within 1 % and
0.1 Nm, velocities within 0.005 rad/s at 1 kHz. "Other motion": not used for the fit, compared without noise. Intervals
of 95 % by order statistics (few runs: the whole range); after the comma the worst.

``python bench/bench_sva.py [--seeds N] [--scale S] [--results FOLDER] [--workers N]``. Runs that are not in the
folder's file yet are made.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
from pathlib import Path

from _table import print_report

from sysid_ros.cli.many_runs import carry_out_runs
from sysid_ros.papers import sva, sva_report
from sysid_ros.papers.names import SVA_EXPERIMENTS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="runs with other parameters and noise")
    parser.add_argument("--scale", type=float, default=1.0, help="durations over those of the experiments")
    parser.add_argument("--results", default="results/sva", help="folder of runs.jsonl and figures")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    arguments = parser.parse_args()
    jobs = sva.jobs(SVA_EXPERIMENTS, arguments.seeds, arguments.scale)
    path = Path(arguments.results) / "runs.jsonl"
    entries, failures = carry_out_runs(sva.run, jobs, path, (arguments.workers, ""))
    return print_report(sva_report, entries, failures, arguments.results)


if __name__ == "__main__":
    sys.exit(main())
