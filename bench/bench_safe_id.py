"""Experiments of SAFE-ID section VI in simulation, from the runs of `sysid papers safe-id`: a Kinova Gen3 that places
dumbbells of 4 to 8 lb, by the paper's eleven methods and SVA's online model. Motions, limits, gains, friction and
rotors of the profile `published` are those that the authors have published, obstacles are ours, the adaptive laws have
the stiffness of the authors' PID and the best adaptation of a grid, and Experiment (c) is (b) in slower legs. adap-2 is
composite adaptation (Slotine and Li 1989), for lack of the paper's [1]. Each seed draws another arm from its box. Why
outcomes differ: the published law bounds errors through V_max, far below the height of a dumbbell with these rotors,
and no torque comes near its limit; the reason why the robust and adaptive laws of the paper fail with the heaviest
dumbbell is not in their published settings. The adaptive laws follow certified plans, which are for our law, less
exactly than the certificates allow. The PID carries the published rotors and swings into the stop of joint 6; in the
profile `hardware` its errors are its static sag, in which joints 4 and 6 count as well as joint 2. Random plans in the
authors' range are slow, so friction and rotors, known within a share, matter less than in exciting ones: they bound the
mass better, and first and second moments worse.

``python bench/bench_safe_id.py [options of sysid papers safe-id]``. Runs that are not in the file yet are made.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import sys

from _table import print_report

from sysid_ros.cli.papers import collect_safe_id
from sysid_ros.cli.parse_others import safe_id_parser
from sysid_ros.papers import safe_id_report


def main() -> int:
    options = safe_id_parser().read()
    return print_report(safe_id_report, *collect_safe_id(options), options.results)


if __name__ == "__main__":
    sys.exit(main())
