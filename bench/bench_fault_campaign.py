"""Killed, frozen and starved processes, storms, full disk, clock jumps.

``python bench/bench_fault_campaign.py [--trials N] [--only GROUP ...] [--results FILE]``. A simulated Gen3
holds a 4 lb dumbbell, all nodes run as processes on loopback, and every fault comes at a random moment of an
identification. Each trial asks: does the goal end with a reason that names what has gone, and how soon; does the arm
come to rest; and does a new goal identify the payload, with the truth inside its bounds, after nothing but the killed
process has been started again. Trials are made in rounds, one of each kind, so that all kinds are tried equally often
whenever it ends. With ``--results`` every trial is kept in a file, a later call goes on from it, and ``--minutes 0``
makes the tables of what is there.
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
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _shifted_clock import ShiftedClock
from _table import describe_machine, print_table
from _trials import describe_results, read_results, write_result

from sysid_ros.ros.environment import choose_domain_id, loopback_environment

DOMAIN = choose_domain_id()
os.environ.update(loopback_environment(DOMAIN))  # before anything of ROS is loaded

from _fault_rig import LONG, NAMES, PATIENCE, SHORT, Outcome, Rig, begin_ros  # noqa: E402
from _fault_storms import STORMS, Storm  # noqa: E402

NAMED_WITHIN = 5.0
"""A reason is wanted within this time [s]."""
FAULTS = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP}
OPTIONAL = ("identifiability", "monitor")
"""What no motion needs: a supervised suite goes on without."""
AGAIN_WITHIN = 10.0
"""An optional node that was killed so long before the end of its suite must have been started again [s]."""
HOGS = 8
"""Processes that compute without end where all cores are busy."""
STOPPED, RUNNING = 0.08, 0.02
"""A starved process stands still and runs in turns of this length [s]."""
DISK_SIZES = (0, 4096, 100_000, 1_000_000)
"""Largest size of a file where the disk is full [bytes]."""
CLOCK_JUMPS = (3600.0, -3600.0, 0.3)
"""How far the clock of the whole suite jumps [s]."""

BEGUN = "weighing at rest"
"""What the client says as soon as the goal has begun."""
ALL_BUSY = "all cores busy"
INVALID_GOAL = 11
"""Code of a goal that is refused before the arm moves, as where its folder cannot be used."""

Case = tuple[str, ...]
Entry = dict[str, Any]


class Campaign:
    """The suite under test, started when a trial needs it.

    Args:
        folder: For logs and results of the suite.

    Attributes:
        clock: Sets the clock of a suite.
        whole: Time an undisturbed goal takes [s].
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.clock = ShiftedClock(folder / "clock")
        self._rig: Rig | None = None
        self._rig_clock: ShiftedClock | None = None
        self.whole = 0.0

    def rig(self, clock: ShiftedClock | None = None) -> Rig:
        """Return the suite, running and ready; it is started anew where it is to have another clock."""
        if self._rig is None or self._rig_clock is not clock:
            self.close()
            self._rig_clock, self._rig = clock, Rig(self.folder / "suite", DOMAIN, clock=clock)
            self._rig.start()
            if not self._rig.is_ready():
                raise SystemExit("the suite does not start; see its logs")
            if self.whole:
                return self._rig
            # The first one takes longer, and others may load the machine so much that one fails.
            for fields in (SHORT, *[LONG] * 20):
                undisturbed = self._rig.identify(fields)
                print(f"undisturbed: {undisturbed}", file=sys.stderr, flush=True)
                if undisturbed.code == 0 and fields is LONG:
                    break
                time.sleep(3.0)
            else:
                raise SystemExit("no undisturbed goal succeeds: what follows would say nothing about faults")
            self.whole = undisturbed.seconds
        return self._rig

    def close(self) -> None:
        """End the suite."""
        if self._rig is not None:
            self._rig.close()
            self._rig = None

    def restore(self) -> None:
        """Start the whole suite anew, so that one failure does not spoil the trials after it."""
        if self._rig is not None:
            self._rig.stop()
            self._rig.start()
            self._rig.is_ready()

    def recover(self, rig: Rig) -> dict[str, bool]:
        """Return whether the arm came to rest, and whether a new goal then identifies what it holds."""
        is_at_rest = rig.come_to_rest()
        again = rig.identify(SHORT) if is_at_rest and rig.is_ready() else Outcome(None, "the arm does not rest", 0.0)
        is_identified = again.code == 0 and bool(again.contains_truth)
        if not is_identified:
            print(f"  again: {again}", file=sys.stderr, flush=True)
            self.restore()
        return {"rest": is_at_rest, "again": is_identified}


def describe(outcome: Outcome) -> Entry:
    """Return what a file of results keeps of an outcome."""
    identified = outcome.code == 0 and bool(outcome.contains_truth)
    return {
        "code": outcome.code,
        "text": outcome.text[:300],
        "seconds": round(outcome.seconds, 2),
        "identified": identified,
        "good": outcome.code is not None and outcome.contains_truth is not False,
    }


# Processes killed and frozen


def try_process(campaign: Campaign, case: Case, rng: np.random.Generator) -> Entry:
    """A process killed or frozen at a random moment of a goal."""
    name, fault = case
    rig = campaign.rig()
    result = rig.send(LONG)
    if result is None:
        return {**describe(Outcome(None, "the goal was not answered", 0.0)), **campaign.recover(rig)}
    moment = time.monotonic() + rng.uniform(0.0, 0.6 * campaign.whole)
    rig.spin_until(lambda: time.monotonic() >= moment or result.done())
    was_running = not result.done()
    since = time.monotonic()
    rig.signal(name, FAULTS[fault])
    outcome = rig.wait(result, since)
    gone = f"{rig.prefix}{name}"
    if fault == "frozen":
        rig.signal(name, signal.SIGCONT)
        rig.spin_until(lambda: not rig.peers.is_gone(gone))
        rig.spin_until(result.done)  # a goal whose own node stood still may go on: another one would be refused
    else:
        rig.spin_until(lambda: rig.peers.is_gone(gone))  # a goal sent before would only be interrupted
        rig.restart(name)
    entry = describe(outcome)
    named = outcome.code != 0 and name in outcome.text
    good = named or bool(entry["identified"])
    return {**entry, "was_running": was_running, "named": named, "good": good, **campaign.recover(rig)}


def show_processes(entries: dict[Case, list[Entry]]) -> None:
    """Print the table of processes killed and frozen."""
    columns = ["process", "fault", "trials", "goal ended and named it", "goal succeeded", "median [s]", "longest [s]"]
    columns += [f"later than {NAMED_WITHIN:g} s", "at rest", "identified again"]
    rows = []
    for case, trials in entries.items():
        seconds = [one["seconds"] for one in trials if one["named"]]
        late = sum(one > NAMED_WITHIN for one in seconds)
        times = [f"{value:.1f}" for value in (np.median(seconds), max(seconds))] if seconds else ["-", "-"]
        counts = [count(trials, "identified"), *times, late, count(trials, "rest"), count(trials, "again")]
        rows.append([*case, len(trials), len(seconds), *counts])
    print_table(columns, rows, "A process killed or frozen at a random moment: time until the goal's result names it")


# The same under supervision


def try_supervised(campaign: Campaign, case: Case, rng: np.random.Generator) -> Entry:
    """The command ``sysid identify``, which supervises as the launch file does, with one of its nodes disturbed."""
    campaign.close()
    (name, fault), domain = case, choose_domain_id()
    before = _suite_pids(domain)
    results = tempfile.mkdtemp(dir=campaign.folder)
    words = [
        "--max-motion-time",
        "4.5",
        "--trajectories",
        "2",
        "--results",
        f"{results}/files",
        "--domain-id",
        str(domain),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", "sysid_ros.cli.main", "identify", *words]
    runner = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    started = time.monotonic()
    assert runner.stdout is not None
    lines = list[str]()
    reader = threading.Thread(target=lines.extend, args=(iter(runner.stdout.readline, ""),), daemon=True)
    reader.start()
    # All nodes have found each other then: one that is disturbed while it starts is another fault.
    while not any(BEGUN in line for line in list(lines)) and time.monotonic() - started < PATIENCE:
        time.sleep(0.2)
    time.sleep(rng.uniform(0.0, 6.0))
    for pid, node in _suite_pids(domain).items():
        if node == name and pid not in before:
            os.kill(pid, FAULTS[fault])
    since, disturbed = time.monotonic(), set(_suite_pids(domain))
    is_again = False
    while fault == "killed" and name in OPTIONAL and not is_again and runner.poll() is None:
        time.sleep(0.2)
        is_again = name in [node for pid, node in _suite_pids(domain).items() if pid not in disturbed]
    with contextlib.suppress(subprocess.TimeoutExpired):
        runner.wait(PATIENCE)
    if runner.poll() is None:
        runner.kill()
        runner.wait()
    took, status = time.monotonic() - since, runner.returncode
    left = [pid for pid in _suite_pids(domain) if pid not in before]
    reader.join(2.0)  # what is left has the pipe, too
    said = "".join(lines)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    named = f"{name} {'was ended by SIGKILL' if fault == 'killed' else 'stands still'}" in said
    if fault == "frozen":  # nothing waits for a node whose work is done, such as a planner of the last motion
        good = status == 0 or (named and name not in OPTIONAL)
    else:
        good = named and (status == 0) == (name in OPTIONAL)
        good = good and is_again == (name in OPTIONAL and (is_again or took > AGAIN_WITHIN))
    print(said[-300:] if not good else "", file=sys.stderr, end="", flush=True)
    text = " ".join(said.split())[-300:]
    outcome = {"code": status, "text": text, "seconds": round(took, 2), "named": named, "left": len(left)}
    outcome["started_again"] = is_again
    return {**outcome, "good": good and not left}


def show_supervised(entries: dict[Case, list[Entry]]) -> None:
    """Print the table of the supervised suite."""
    columns = ["process", "fault", "trials", "named", "ended or went on as it should", "started again", "exit status"]
    rows = []
    for case, trials in entries.items():
        shown = ", ".join(f"{status}" for status in sorted({one["code"] for one in trials}))
        longest = "-" if case[0] in OPTIONAL else f"{max(one['seconds'] for one in trials):.1f}"
        left = sum(one["left"] for one in trials)
        noted = [one["started_again"] for one in trials if "started_again" in one]  # older results do not say
        again = f"{sum(noted)} of {len(noted)}" if noted and case[0] in OPTIONAL and case[1] == "killed" else "-"
        rows.append([*case, len(trials), count(trials, "named"), count(trials, "good"), again, shown])
        rows[-1] += [longest, left]
    title = "The same under supervision: a node of sysid identify killed or frozen"
    print_table([*columns, "longest until all ended [s]", "processes left"], rows, title)


def _suite_pids(domain: int) -> dict[int, str]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                is_ours = f"ROS_DOMAIN_ID={domain}\0" in (entry / "environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
            module = next((word for word in words if word.startswith("sysid_ros.") and ".nodes." in word), "")
            if module and is_ours:
                found[int(entry.name)] = module.rpartition(".")[2]
    return found


# Goals while something goes on all the time


def try_starved(campaign: Campaign, case: Case, _: np.random.Generator) -> Entry:
    """A goal while processes hardly get to run."""
    rig = campaign.rig()
    if case[0] == ALL_BUSY:
        pids = []
    else:
        pids = [rig.groups[case[0]].pid] if case[0] in NAMES else rig.loop_pids()
    rig.bound_used = 0.0
    with Starving(pids):
        outcome = rig.identify(LONG)
        used = rig.bound_used
    entry = describe(outcome)
    entry["good"] = entry["good"] and used <= 1.0
    return {**entry, "used": round(used, 4), **campaign.recover(rig)}


def show_starved(entries: dict[Case, list[Entry]]) -> None:
    """Print the table of starved processes."""
    rows = []
    for case, trials in entries.items():
        longest, used = max(one["seconds"] for one in trials), max(one["used"] for one in trials)
        rows.append([*case, len(trials), ends(trials), longest, used, count(trials, "rest"), count(trials, "again")])
    columns = ["starved", "trials", "goal", "longest until it ended [s]", "largest tracking error / bound", "at rest"]
    title = "A goal while a process runs for a fifth of the time, or all cores are busy"
    print_table([*columns, "identified again"], rows, title)


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


class Blowing:
    """A storm, from a process of its own."""

    def __init__(self, storm: Storm):
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


def try_storm(campaign: Campaign, case: Case, _: np.random.Generator) -> Entry:
    """A goal while another process sends messages that nobody should send."""
    rig, storm = campaign.rig(), next(one for one in STORMS if one.name == case[0])
    with Blowing(storm) as blowing:
        outcome = rig.identify(LONG)
    alive = all(group.returncode is None for group in rig.groups.values())
    return {**describe(outcome), "sent": blowing.sent, "alive": alive, **campaign.recover(rig)}


def show_storms(entries: dict[Case, list[Entry]]) -> None:
    """Print the table of storms."""
    rows = []
    for case, trials in entries.items():
        sent, alive = max(one["sent"] for one in trials), count(trials, "alive")
        rows.append([*case, len(trials), sent, ends(trials), alive, count(trials, "rest"), count(trials, "again")])
    columns = ["storm", "trials", "messages, at most", "goal in the storm", "all nodes alive", "at rest"]
    title = "Storms of messages from another process while a goal runs"
    print_table([*columns, "identified again"], rows, title)


def try_disk(campaign: Campaign, case: Case, _: np.random.Generator) -> Entry:
    """No room for the files of a goal."""
    rig, size = campaign.rig(), int(case[0])
    rig.limit_file_size("identification", size)
    folder = f"disk_{size}_{time.monotonic_ns()}"
    outcome = rig.identify({**SHORT, "results_directory": folder})
    rig.limit_file_size("identification", -1)
    entry = {**describe(outcome), "moved": outcome.code != INVALID_GOAL and bool(outcome.text)}
    entry["text"] = re.sub(r"\S*/", "", outcome.text).replace(folder, "...")
    return {**entry, **campaign.recover(rig)}


def show_disk(entries: dict[Case, list[Entry]]) -> None:
    """Print the table of full disks."""
    columns = ["largest file [bytes]", "trials", "goal", "what it says", "moved", "at rest", "identified again"]
    rows = [
        [*case, len(trials), ends(trials), trials[0]["text"][:90].replace("|", "/"), *counts]
        for case, trials in entries.items()
        for counts in [[count(trials, "moved"), count(trials, "rest"), count(trials, "again")]]
    ]
    print_table(columns, rows, "A full disk: the files of identification may not grow beyond a size")


def try_clock(campaign: Campaign, case: Case, rng: np.random.Generator) -> Entry:
    """The clock of all processes jumps at a random moment of a goal."""
    clock = campaign.clock
    rig = campaign.rig(clock)
    moment = time.monotonic() + rng.uniform(0.0, 0.6 * campaign.whole)
    timer = threading.Timer(moment - time.monotonic(), lambda: clock.jump(float(case[0])))
    timer.start()
    outcome = rig.identify(LONG)
    timer.join()
    return {**describe(outcome), **campaign.recover(rig)}


def try_suites(campaign: Campaign, _: Case, __: np.random.Generator) -> Entry:
    """A second suite with the same names on the same domain."""
    rig = campaign.rig()
    other = Rig(Path(tempfile.mkdtemp(dir=campaign.folder)), DOMAIN)
    other.start()
    time.sleep(15.0)
    outcome = rig.identify(SHORT)
    other.close()
    time.sleep(10.0)  # until the middleware has forgotten the second one
    return {**describe(outcome), **campaign.recover(rig)}


def show_goals(title: str, first: str) -> Callable[[dict[Case, list[Entry]]], None]:
    """Return what prints a table of how goals ended."""

    def show(entries: dict[Case, list[Entry]]) -> None:
        columns = [first, "trials", "goal", "what it says", "longest until it ended [s]", "at rest", "identified again"]
        rows = []
        for case, trials in entries.items():
            says = "; ".join(sorted({re.sub(r"[0-9a-f]{32}", "...", one["text"])[:60] for one in trials} - {""}))
            longest = max(one["seconds"] for one in trials)
            counts = [longest, count(trials, "rest"), count(trials, "again")]
            rows.append([*case, len(trials), ends(trials), says.replace("|", "/") or "-", *counts])
        print_table(columns, rows, title)

    return show


# All of them


def count(trials: list[Entry], key: str) -> int:
    """Count the trials of which something is true."""
    return sum(bool(one[key]) for one in trials)


def ends(trials: list[Entry]) -> str:
    """Say how the goals of trials ended."""
    named = ["identified" if one["code"] == 0 else f"code {one['code']}" for one in trials]
    return ", ".join(f"{named.count(one)} x {one}" for one in sorted(set(named)))


@dataclass(frozen=True)
class Group:
    """One kind of fault.

    Attributes:
        cases: What is tried.
        run: Makes one trial.
        show: Prints the table of all trials.
    """

    cases: tuple[Case, ...]
    run: Callable[[Campaign, Case, np.random.Generator], Entry]
    show: Callable[[dict[Case, list[Entry]]], None]


_PROCESSES = tuple((name, fault) for name in NAMES for fault in FAULTS)
GROUPS = {
    "supervised": Group(_PROCESSES, try_supervised, show_supervised),
    "processes": Group(_PROCESSES, try_process, show_processes),
    "starved": Group(tuple((one,) for one in (ALL_BUSY, *NAMES, "torque loop and proof")), try_starved, show_starved),
    "storms": Group(tuple((storm.name,) for storm in STORMS), try_storm, show_storms),
    "disk": Group(tuple((str(size),) for size in DISK_SIZES), try_disk, show_disk),
    "suites": Group(
        (("same names",),), try_suites, show_goals("A second suite on the same domain while a goal is sent", "suites")
    ),
    "clock": Group(
        tuple((f"{jump:+g}",) for jump in CLOCK_JUMPS),
        try_clock,
        show_goals("The clock of all processes jumps at a random moment of a goal", "jump [s]"),
    ),
}


def missing(groups: list[str], trials: int, entries: list[Entry]) -> Iterator[tuple[str, Case, int]]:
    """Yield the trials that are still to be made, in rounds of one of each kind."""
    done = Counter((entry["group"], tuple(entry["case"])) for entry in entries)
    for number in range(trials):
        for group in groups:
            for case in GROUPS[group].cases:
                if done[group, case] <= number:
                    yield group, case, number


def try_all(arguments: argparse.Namespace, entries: list[Entry]) -> None:
    """Make the trials that are missing until the time is over."""
    end = time.monotonic() + 60.0 * arguments.minutes
    begin_ros()
    with tempfile.TemporaryDirectory() as name:
        campaign = Campaign(Path(name))
        try:
            for group, case, number in missing(arguments.only, arguments.trials, entries):
                if time.monotonic() > end:
                    break
                began = time.monotonic()
                rng = np.random.default_rng([arguments.seed, number, zlib.crc32(repr((group, case)).encode())])
                entry = GROUPS[group].run(campaign, case, rng)
                whole = {"load": round(os.getloadavg()[0], 1), "whole": round(time.monotonic() - began, 1)}
                entry = {"group": group, "case": case, **whole, **entry}
                entries.append(write_result(arguments.results, entry))
                print(f"  {'' if is_good(entry) else 'WRONG '}{tell(entry)}", file=sys.stderr, flush=True)
        finally:
            campaign.close()


def is_good(entry: Entry) -> bool:
    """Return whether nothing is wrong with a trial."""
    return all(entry.get(key, True) for key in ("good", "rest", "again", "alive"))


def tell(entry: Entry) -> str:
    """Describe a trial in one line."""
    shown = f"{entry['group']}, {', '.join(entry['case'])}: code {entry['code']} after {entry['seconds']:.1f} s"
    lost = [key for key in ("rest", "again", "alive") if not entry.get(key, True)]
    text = re.sub(r"\S*/", "", entry["text"])  # paths are of no use elsewhere
    return f"{shown}, {text[:110]!r}" + (f"; not {', '.join(lost)}" if lost else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20, help="trials of each kind")
    parser.add_argument("--only", nargs="*", default=list(GROUPS), choices=list(GROUPS), help="groups of faults")
    parser.add_argument("--minutes", type=float, default=600.0, help="no trial begins later than that")
    parser.add_argument("--results", default="", help="file of results; a later call goes on from it")
    parser.add_argument("--beside", default="", help="what else the machine did meanwhile, for the page")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(describe_machine())
    entries = read_results(arguments.results)
    if arguments.minutes > 0.0:
        try_all(arguments, entries)
    for name, group in GROUPS.items():
        tried = {case: [e for e in entries if e["group"] == name and tuple(e["case"]) == case] for case in group.cases}
        tried = {case: trials for case, trials in tried.items() if trials}
        if tried:
            group.show(tried)
    wrong = [f"{tell(entry)} (commit {entry['commit']})" for entry in entries if not is_good(entry)]
    print(f"{len(wrong)} findings in {len(entries)} trials" + "".join(f"\n{text}" for text in wrong))
    if entries:
        loads = [entry["load"] for entry in entries]
        beside = f" Beside the campaign: {arguments.beside}." if arguments.beside else ""
        spread = f"median {np.median(loads):.1f}, {min(loads)} to {max(loads)}"
        print(f"Load of the machine after a trial: {spread}.{beside}")
    if arguments.results:
        print(describe_results(arguments.results))


if __name__ == "__main__":
    main()
