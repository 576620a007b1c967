"""The executables: one file per node, wiring only."""

import signal
import sys

if sys.argv[:1] == ["-m"]:
    # Python is about to run one of these modules: Ctrl-C while it still loads is an end, not an error to be shown.
    signal.signal(signal.SIGINT, lambda *_: sys.exit(128 + signal.SIGINT))
