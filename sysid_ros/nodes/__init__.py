"""The executables: one file per node, wiring only."""

import sys
from pathlib import Path

from sysid_ros.core.common.interrupts import hold_signals

# Python is about to run one of these modules, as a module of the package or by its installed script.
if sys.argv[:1] == ["-m"] or (Path(__file__).parent / f"{Path(sys.argv[0]).name}.py").is_file():
    hold_signals()
