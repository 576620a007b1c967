"""Attack: Ctrl-C as ``ros2 launch`` delivers it, several times at any moment of a process's life.

The terminal sends SIGINT to all processes of the group, launch sends another to each, and people press twice. No node
and no client may end by the signal itself, show a traceback, or need more than ``STOP_TIMEOUT``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from sysid_ros.processes import EMULATED, IDENTIFY, SPACE, STOP_TIMEOUT, key_variables, resolve
from sysid_ros.ros.environment import choose_domain_id, loopback_environment

CLIENTS = (
    "sysid_ros.nodes.identify_client",
    "sysid_ros.nodes.calibrate_client",
    "sysid_ros.space.nodes.free_flyer_client",
)
FIRST_SIGNAL = (0.4, 8.0)
"""After the start of the process: while it loads, while its node comes up, and when it runs [s]."""
GAP = 0.6
"""Longest time between two signals [s]."""
MODEL = "kinova_gen3"


def run(trials: int, seed: int = 1) -> list[dict]:
    """Return what came of so many processes, over all executables in turn."""
    generator = random.Random(seed)
    with TemporaryDirectory() as folder:
        commands = _commands(Path(folder))
        bad: list[str] = []
        for number in range(trials):
            name = sorted(commands)[number % len(commands)]
            if fault := _attack(commands[name], Path(folder), generator):
                bad.append(f"{name}: {fault}")
    row = {"point": "1", "attack": f"2 to 4 SIGINT at random moments, {len(commands)} executables", "trials": trials}
    return [{**row, "failed": len(bad), "note": "; ".join(bad)}]


def _commands(folder: Path) -> dict[str, list[str]]:
    """Return the command of every executable, started by a script as colcon and pip install them."""
    given = {one.process.executable: one for one in resolve({"model": MODEL, "mode": "mock"})}
    commands = {}
    for module in (*(one.module for one in (*IDENTIFY, *EMULATED, *SPACE)), *CLIENTS):
        name = module.rpartition(".")[2]
        script = folder / name
        script.write_text(f"import sys\nfrom {module} import main\nsys.exit(main())\n")
        words = [sys.executable, str(script)]
        if name in given:
            words += ["--ros-args", *_parameters(given[name].parameters)]
            words += [word for path in given[name].parameter_files for word in ("--params-file", str(path))]
        elif name == "arm_emulator":
            words += ["--ros-args", *_parameters({"model": MODEL, "mode": "emulated"})]
        commands[name] = words
    return commands


def _parameters(values: dict) -> list[str]:
    return [word for name, value in values.items() for word in ("-p", f"{name}:={json.dumps(value)}")]


def _attack(command: list[str], folder: Path, generator: random.Random) -> str:
    """Run a process, interrupt it again and again, and return what was wrong with its end; empty for nothing."""
    environment = os.environ | loopback_environment(choose_domain_id(random.SystemRandom()))
    environment |= key_variables(resolve({"model": MODEL})) | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with (folder / "output").open("w+") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
        begin = time.monotonic()
        delays = [
            generator.uniform(*FIRST_SIGNAL),
            *(generator.uniform(0.0, GAP) for _ in range(generator.randint(1, 3))),
        ]
        try:
            for delay in delays:
                try:
                    process.wait(delay)
                    break
                except subprocess.TimeoutExpired:
                    process.send_signal(2)
            code = process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"did not end within {STOP_TIMEOUT} s of {[round(one, 2) for one in delays]}"
        output.seek(0)
        said = output.read()
    when = f"signals at {[round(one, 2) for one in delays]}, {time.monotonic() - begin:.1f} s in all"
    if "Traceback" in said:
        return f"exit code {code} and a traceback ({said.strip().splitlines()[-1]}), {when}"
    return f"exit code {code}, {when}" if code < 0 else ""


def main() -> None:
    """Print the rows as lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=36)
    for row in run(parser.parse_args().trials):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
