"""A wall clock of their own for processes, which can be set while they run; steady time stays that of the machine.

libfaketime does the same, where it is installed and Python can sleep with it; this needs a compiler alone.
"""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("_shifted_clock.c")
FILE_VARIABLE = "SYSID_CLOCK_FILE"
"""Names the file with the shift; the library reads it."""


class ShiftedClock:
    """The wall clock of the processes that get its environment variables.

    Args:
        folder: For the library, which is compiled, and the file with the shift.

    Raises:
        subprocess.CalledProcessError: The compiler fails.
    """

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self._library, self._file, self._ahead_ns = folder / "shifted_clock.so", folder / "shift", 0
        compiler = os.environ.get("CXX", "c++")
        flags = ["-x", "c", "-O2", "-shared", "-fPIC", "-Wall", "-Werror"]
        subprocess.run([compiler, *flags, "-o", self._library, SOURCE, "-ldl"], check=True)
        self._file.write_bytes(bytes(8))

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables for processes that are to have this clock."""
        return {"LD_PRELOAD": str(self._library), FILE_VARIABLE: str(self._file)}

    def jump(self, seconds: float) -> None:
        """Set the clock forward, or back [s], at once."""
        self._ahead_ns += round(1e9 * seconds)
        with self._file.open("r+b", buffering=0) as file:  # one write to the page that the processes have mapped
            file.write(struct.pack("=q", self._ahead_ns))
