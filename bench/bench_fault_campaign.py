"""Faults of the running suite: killed, frozen and starved processes, storms of messages, a full disk, two suites.

``python bench/bench_fault_campaign.py [--trials N] [--only GROUP ...]``. A simulated Gen3 holds a 4 lb dumbbell, all
nodes run as processes on loopback, and every fault comes at a random moment of an identification. Each trial asks: does
the goal end with a reason that names what has gone, and how soon; does the arm come to rest; and does a new goal
identify the payload, with the truth inside its bounds, after nothing but the killed process has been started again.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import contextlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from _table import describe_machine, print_table

from sysid_ros.ros.environment import choose_domain_id, existing_files, loopback_environment, remove_unused

DOMAIN = choose_domain_id()
os.environ.update(loopback_environment(DOMAIN))  # before anything of ROS is loaded

from _fault_rig import LONG, NAMES, PATIENCE, SHORT, Outcome, Rig, begin_ros  # noqa: E402
from _fault_storms import STORMS, Storm  # noqa: E402

NAMED_WITHIN = 5.0
"""A reason is wanted within this time [s]."""
FAULTS = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP}
OPTIONAL = ("identifiability", "monitor")
"""What no motion needs: a supervised suite goes on without."""
GROUPS = ("processes", "supervised", "starved", "storms", "disk", "suites")
HOGS = 8
"""Processes that compute without end where all cores are busy."""
STOPPED, RUNNING = 0.08, 0.02
"""A starved process stands still and runs in turns of this length [s]."""


class Log:
    """Prints every trial, and keeps what went wrong for the end."""

    def __init__(self, minutes: float) -> None:
        self.wrong: list[str] = []
        self._end = time.monotonic() + 60.0 * minutes

    @property
    def is_time_over(self) -> bool:
        """Whether no further trial is to begin."""
        return time.monotonic() > self._end

    def trial(self, what: str, outcome: Outcome, is_good: bool) -> None:
        """Print one trial."""
        text = f"{what}: code {outcome.code} after {outcome.seconds:.1f} s, {outcome.text[:110]!r}"
        print(f"  {'' if is_good else 'WRONG '}{text}", file=sys.stderr, flush=True)
        if not is_good:
            self.wrong.append(text)


def recover(rig: Rig) -> tuple[bool, bool]:
    """Return whether the arm came to rest, and whether a new goal then identifies what it holds."""
    is_at_rest = rig.come_to_rest()
    again = rig.identify(SHORT) if is_at_rest and rig.is_ready() else Outcome(None, "the arm does not rest", 0.0)
    if again.code != 0 or not again.contains_truth:
        print(f"  again: {again}", file=sys.stderr, flush=True)
    return is_at_rest, again.code == 0 and bool(again.contains_truth)


def disturb_process(rig: Rig, name: str, fault: str, rng: np.random.Generator, duration: float) -> tuple[Outcome, bool]:
    """Kill or freeze a process at a random moment of a goal; return how the goal ended, and whether it was running."""
    result = rig.send(LONG)
    if result is None:
        return Outcome(None, "the goal was not answered", 0.0), False
    moment = time.monotonic() + rng.uniform(0.0, duration)
    rig.spin_until(lambda: time.monotonic() >= moment or result.done())
    was_running = not result.done()
    since = time.monotonic()
    rig.signal(name, FAULTS[fault])
    outcome = rig.wait(result, since)
    if fault == "frozen":
        rig.signal(name, signal.SIGCONT)
        gone = f"{rig.prefix}{name}"
        rig.spin_until(lambda: not rig.peers.is_gone(gone))
    else:
        rig.spin_until(lambda: rig.peers.is_gone(f"{rig.prefix}{name}"))  # a goal sent before would only be interrupted
        rig.restart(name)
    return outcome, was_running


def run_processes(rig: Rig, trials: int, rng: np.random.Generator, log: Log) -> None:
    """Every process killed and frozen, in rounds, until the time is over."""
    rig.identify(SHORT)  # the first one takes longer
    whole = rig.identify(LONG)
    print(f"undisturbed: {whole}", file=sys.stderr, flush=True)
    faults = [(name, fault) for name in NAMES for fault in FAULTS]
    tallies = {one: Tally() for one in faults}
    for name, fault in faults * trials:
        if log.is_time_over:
            break
        outcome, was_running = disturb_process(rig, name, fault, rng, 0.6 * whole.seconds)
        went_on = outcome.code == 0 and bool(outcome.contains_truth)
        is_named = outcome.code != 0 and name in outcome.text
        log.trial(f"{name} {fault}{'' if was_running else ' (too late)'}", outcome, is_named or went_on)
        is_at_rest, is_identified = recover(rig)
        tallies[name, fault].add(outcome.seconds if is_named else None, went_on, is_at_rest, is_identified)
        if not is_identified:
            log.wrong.append(f"{name} {fault}: not identified again")
            restore(rig)
    columns = ["process", "fault", "trials", "goal ended and named it", "goal succeeded", "median [s]", "longest [s]"]
    columns += [f"later than {NAMED_WITHIN:g} s", "at rest", "identified again"]
    rows = [[*one, *tally.row()] for one, tally in tallies.items() if tally.trials]
    print_table(columns, rows, "A process killed or frozen at a random moment: time until the goal's result names it")


class Tally:
    """What became of the trials of one fault."""

    def __init__(self) -> None:
        self.trials = self.went_on = self.rest = self.again = 0
        self.seconds: list[float] = []

    def add(self, seconds: float | None, went_on: bool, is_at_rest: bool, is_identified: bool) -> None:
        """Count a trial; ``seconds`` until the process was named [s], None where it was not."""
        self.trials += 1
        self.went_on += went_on
        self.rest += is_at_rest
        self.again += is_identified
        self.seconds += [] if seconds is None else [seconds]

    def row(self) -> list[object]:
        """Return the numbers of the table."""
        seconds = self.seconds
        median = f"{np.median(seconds):.1f}" if seconds else "-"
        longest = f"{max(seconds):.1f}" if seconds else "-"
        late = sum(one > NAMED_WITHIN for one in seconds)
        return [self.trials, len(seconds), self.went_on, median, longest, late, self.rest, self.again]


def restore(rig: Rig) -> None:
    """Start the whole suite anew, so that one failure does not spoil the trials after it."""
    rig.stop()
    rig.start()
    rig.is_ready()


def run_supervised(trials: int, rng: np.random.Generator, log: Log, folder: Path) -> None:
    """The command ``sysid identify``, which supervises as the launch file does, with one of its nodes killed."""
    rows, domain = [], choose_domain_id()
    for name in NAMES:
        if log.is_time_over:
            break
        ended, seconds, left, statuses = 0, [], 0, set()
        for number in range(trials):
            before = _suite_pids(domain)
            words = [
                "--max-motion-time",
                "6",
                "--results",
                str(folder / f"{name}_{number}"),
                "--domain-id",
                str(domain),
            ]
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
            command = [sys.executable, "-m", "sysid_ros.cli.identify", *words]
            runner = subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            started = time.monotonic()
            while name not in _suite_pids(domain).values() and time.monotonic() - started < PATIENCE:
                time.sleep(0.5)
            time.sleep(rng.uniform(4.0, 14.0))
            killed = [pid for pid, node in _suite_pids(domain).items() if node == name and pid not in before]
            since = time.monotonic()
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            try:
                _, said = runner.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                runner.kill()
                _, said = runner.communicate()
            took = time.monotonic() - since
            is_named = f"{name} was ended by SIGKILL" in said
            wanted = 0 if name in OPTIONAL else 3
            statuses.add(runner.returncode)
            is_good = is_named and runner.returncode == wanted
            ended += is_good
            if name not in OPTIONAL:
                seconds.append(took)
            left += len([pid for pid in _suite_pids(domain) if pid not in before])
            log.trial(f"supervised, {name} killed", Outcome(runner.returncode, said[-110:], took), is_good)
        shown = ", ".join(map(str, sorted(statuses)))
        rows.append([name, trials, ended, shown, float(max(seconds, default=np.nan)), left])
    columns = [
        "process",
        "trials",
        "named, and ended or went on as it should",
        "exit status",
        "longest until all ended [s]",
    ]
    print_table([*columns, "processes left"], rows, "The same under supervision: a node of sysid identify killed")


def _suite_pids(domain: int) -> dict[int, str]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                is_ours = f"ROS_DOMAIN_ID={domain}\0" in (entry / "environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
            module = next((word for word in words if word.startswith("sysid_ros.nodes.")), "")
            if module and is_ours:
                found[int(entry.name)] = module.removeprefix("sysid_ros.nodes.")
    return found


class Starving:
    """Other processes that take the processor, or one that stands still most of the time."""

    def __init__(self, pids: list[int]):
        self._pids = pids
        self._hogs: list[subprocess.Popen] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._alternate)

    def __enter__(self) -> Starving:
        if self._pids:
            self._thread.start()
        else:
            self._hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(HOGS)]
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._pids:
            self._thread.join()
        for hog in self._hogs:
            hog.kill()
            hog.wait()

    def _alternate(self) -> None:
        while not self._over.is_set():
            for number, seconds in ((signal.SIGSTOP, STOPPED), (signal.SIGCONT, RUNNING)):
                for pid in self._pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                self._over.wait(seconds)
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def run_starved(rig: Rig, trials: int, log: Log) -> None:
    """A goal while processes hardly get to run."""
    rows = []
    for case in ("all cores busy", *NAMES, "torque loop and proof"):
        if log.is_time_over:
            break
        ends, seconds, rested, again, used = [], [], 0, 0, 0.0
        for _ in range(trials):
            nobody = case == "all cores busy"
            pids = [] if nobody else [rig.groups[case].pid] if case in NAMES else rig.loop_pids()
            rig.bound_used = 0.0
            with Starving(pids):
                since = time.monotonic()
                result = rig.send(LONG)
                outcome = Outcome(None, "the goal was not answered", 0.0) if result is None else rig.wait(result, since)
                used = max(used, rig.bound_used)
            is_good = outcome.code is not None and outcome.contains_truth is not False and rig.bound_used <= 1.0
            log.trial(f"starved, {case}", outcome, is_good)
            ends.append("identified" if outcome.code == 0 else f"code {outcome.code}")
            seconds.append(outcome.seconds)
            is_at_rest, is_identified = recover(rig)
            rested += is_at_rest
            again += is_identified
            if not is_identified:
                log.wrong.append(f"starved, {case}: not identified again")
                restore(rig)
        shown = ", ".join(f"{ends.count(one)} x {one}" for one in sorted(set(ends)))
        rows.append([case, trials, shown, max(seconds), used, rested, again])
    columns = ["starved", "trials", "goal", "longest until it ended [s]", "largest tracking error / bound", "at rest"]
    title = "A goal while a process runs for a fifth of the time, or all cores are busy"
    print_table([*columns, "identified again"], rows, title)


def run_storms(rig: Rig, trials: int, log: Log) -> None:
    """Messages nobody should send, while a goal runs."""
    rows = []
    for storm in STORMS:
        if log.is_time_over:
            break
        ends, rested, again, alive = [], 0, 0, 0
        for _ in range(trials):
            with Blowing(rig, storm) as blowing:
                since = time.monotonic()
                result = rig.send(LONG)
                outcome = Outcome(None, "the goal was not answered", 0.0) if result is None else rig.wait(result, since)
            is_good = outcome.code is not None and outcome.contains_truth is not False
            log.trial(f"storm, {storm.name} ({blowing.sent} sent)", outcome, is_good)
            ends.append("identified" if outcome.code == 0 else f"code {outcome.code}")
            is_at_rest, is_identified = recover(rig)
            rested += is_at_rest
            again += is_identified
            alive += all(group.returncode is None for group in rig.groups.values())
            if not is_identified:
                log.wrong.append(f"storm, {storm.name}: not identified again")
                restore(rig)
        shown = ", ".join(f"{ends.count(one)} x {one}" for one in sorted(set(ends)))
        rows.append([storm.name, trials, shown, alive, rested, again])
    if not rows:
        return
    columns = ["storm", "trials", "goal in the storm", "all nodes alive", "at rest", "identified again"]
    print_table(columns, rows, "Storms of messages from another process while a goal runs")


class Blowing:
    """A storm, from a process of its own."""

    def __init__(self, rig: Rig, storm: Storm):
        self._command = [sys.executable, str(Path(__file__).with_name("_fault_storms.py")), storm.name]
        self.sent = 0

    def __enter__(self) -> Blowing:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        timer = threading.Timer(20.0, self._process.kill)
        timer.start()
        out, _ = self._process.communicate()
        timer.cancel()
        self.sent = int(out.split()[-1]) if out.split() else 0


def run_disk(rig: Rig, log: Log) -> None:
    """No room for the files of a goal."""
    rows = []
    for size in (0, 4096, 100_000, 1_000_000):
        if log.is_time_over:
            break
        rig.limit_file_size("identification", size)
        outcome = rig.identify({**SHORT, "results_directory": f"disk_{size}"})
        rig.limit_file_size("identification", -1)
        keeps = outcome.code != 11 and bool(outcome.text)
        log.trial(f"disk full after {size} bytes", outcome, outcome.code is not None)
        is_at_rest, is_identified = recover(rig)
        rows.append([size, outcome.code, re.sub(r"\S*/", "", outcome.text)[:90], keeps, is_at_rest, is_identified])
        if not is_identified:
            log.wrong.append(f"disk full after {size} bytes: not identified again")
    columns = ["largest file [bytes]", "code", "what the goal says", "moved", "at rest", "identified again"]
    print_table(columns, rows, "A full disk: the files of identification may not grow beyond a size")


def run_suites(rig: Rig, trials: int, log: Log, folder: Path) -> None:
    """A second suite with the same names on the same domain."""
    refused, again, texts = 0, 0, set()
    for number in range(trials):
        other = Rig(folder / f"second_{number}", DOMAIN)
        other.start()
        time.sleep(15.0)
        outcome = rig.identify(SHORT)
        other.close()
        is_good = outcome.code is not None and outcome.contains_truth is not False
        log.trial("two suites", outcome, is_good)
        refused += outcome.code not in (0, None)
        texts.add(outcome.text[:60])
        time.sleep(10.0)  # until the middleware has forgotten the second one
        _, is_identified = recover(rig)
        again += is_identified
        if not is_identified:
            log.wrong.append("two suites: not identified again")
            restore(rig)
    rows = [[trials, refused, "; ".join(sorted(texts)), again]]
    print_table(
        ["trials", "goals refused", "why", "identified again, the second ended"], rows, "Two suites, same names"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20, help="trials of each process and fault")
    parser.add_argument("--few", type=int, default=2, help="trials of everything else")
    parser.add_argument("--only", nargs="*", default=GROUPS, choices=GROUPS, help="groups of faults")
    parser.add_argument("--minutes", type=float, default=600.0, help="no trial begins later than that")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng, log, before = np.random.default_rng(arguments.seed), Log(arguments.minutes), existing_files()
    print(describe_machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begin_ros()
        rig = Rig(folder / "suite", DOMAIN)
        rig.start()
        groups: dict[str, Callable[[], None]] = {
            "supervised": lambda: run_supervised(arguments.few, rng, log, folder / "supervised"),
            "processes": lambda: run_processes(rig, arguments.trials, rng, log),
            "starved": lambda: run_starved(rig, arguments.few, log),
            "storms": lambda: run_storms(rig, arguments.few, log),
            "disk": lambda: run_disk(rig, log),
            "suites": lambda: run_suites(rig, arguments.few, log, folder),
        }
        try:
            if not rig.is_ready():
                raise SystemExit("the suite does not start; see its logs")
            for group in arguments.only:
                try:
                    groups[group]()
                except Exception as error:  # noqa: BLE001 - the other groups still tell something
                    log.wrong.append(f"the group {group} broke off: {error!r}")
        finally:
            rig.close()
            remove_unused(existing_files() - before)
    print(f"{len(log.wrong)} findings" + "".join(f"\n{text}" for text in log.wrong))
    print("Clock jumps are not among the faults: the clock of this machine cannot be set here.")


if __name__ == "__main__":
    main()
