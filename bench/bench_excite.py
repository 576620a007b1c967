"""Experiments of EXCITE section V, from the runs of `sysid papers excite`: motions of 10 s for a Med7 with a tool of
0.8 kg, searched for in equal processor time, torques of a real Med7, and a simulated arm that a simulated person
guides. The paper's searches are repeated with our gradients in place of CasADi and Ipopt, spheres in place of
ellipsoids, and differential evolution with a local search in place of its memetic algorithm; they start from the
straight arm within (9d) to (9g), which bound sums of amplitudes; ours starts from home within the limits themselves.
Models of the guided arm err as the vendor's model of a longer recording of a Med7, or as our fit below 3 Hz on the half
that was not fitted; these errors are mostly constant torques, the rest of them from inertial parameters.

``python bench/bench_excite.py [options of sysid papers excite]``. Runs that are not in the file yet are made.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import sys

from _table import print_report

from sysid_ros.cli.papers import collect_excite
from sysid_ros.cli.parse_others import excite_parser
from sysid_ros.papers import excite_report

if __name__ == "__main__":
    options = excite_parser().read()
    sys.exit(print_report(excite_report, *collect_excite(options), options.results))
