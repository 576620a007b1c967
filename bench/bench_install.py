"""Sizes of `pip install sysid_ros` and its extras.

``python bench/bench_install.py [--extras sim view ...]``. Sizes are those of the files that each distribution lists, in
MB of 10^6 bytes, without compiled Python files; the packages come from the registry that pip is set to.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from _table import print_table

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("sim", "planning", "view", "meshes", "ros")
LARGEST = 12
"""Distributions that are listed by name."""
LIST = """
import importlib.metadata as metadata, json
from pathlib import Path
found = {}
for one in metadata.distributions():
    files = [(str(path), path.locate()) for path in one.files or () if not str(path).endswith(".pyc")]
    sizes = {name: path.stat().st_size for name, path in files if path.is_file()}
    headers = sum(size for name, size in sizes.items() if "/include/" in name)
    found[one.metadata["Name"]] = (sum(sizes.values()), headers)
print(json.dumps(found))
"""
WORKS = """
import sysid_ros as sr
from sysid_ros.cli.main import main
sr.load_robot("ur5e")
for command in ("offline", "import", "new-robot", "report", "verify", "calibrate", "identifiability"):
    try:
        main([command, "--help"])
    except SystemExit as end:
        assert end.code == 0, command
"""


def main() -> int:
    """Install, look, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extras", nargs="*", default=list(EXTRAS), choices=EXTRAS)
    extras = parser.parse_args().extras
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.mkdir()
        files = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x"], cwd=source, input=files, check=True)
        plain = install(Path(folder) / "plain", source, "")
        check_works(Path(folder) / "plain")
        total, headers = (sum(sizes[k] for sizes in plain.values()) for k in range(2))
        rows = [(name, size / 1e6, of / 1e6) for name, (size, of) in sorted(plain.items(), key=lambda one: -one[1][0])]
        rest = rows[LARGEST:]
        rows = [*rows[:LARGEST], (f"{len(rest)} others", *(sum(row[k] for row in rest) for k in (1, 2)))]
        title = "pip install sysid_ros: size by distribution"
        columns = ("distribution", "MB", "of it C++ headers, never read here, MB")
        print_table(columns, [*rows, ("all", total / 1e6, headers / 1e6)], title)
        added = []
        for extra in extras:
            found = install(Path(folder) / extra, source, f"[{extra}]")
            size = sum(size for size, _ in found.values())
            added.append((extra, size / 1e6, (size - total) / 1e6))
        print_table(("extra", "all, MB", "more than without, MB"), added, "With an extra")
    return 0


def install(where: Path, source: Path, extra: str) -> dict[str, tuple[int, int]]:
    """Install into a new environment; return size and headers of every distribution but pip [bytes]."""
    venv.create(where, with_pip=True)
    python = str(where / "bin" / "python")
    words = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{source}{extra}"]
    subprocess.run(words, check=True)
    told = subprocess.run([python, "-I", "-c", LIST], capture_output=True, text=True, check=True).stdout
    found = json.loads(told.splitlines()[-1])
    return {name: tuple(sizes) for name, sizes in found.items() if name not in ("pip", "setuptools")}


def check_works(where: Path) -> None:
    """Check that without extras what needs none works: a size without that would mean nothing."""
    subprocess.run([str(where / "bin" / "python"), "-I", "-c", WORKS], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
