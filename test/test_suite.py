"""The suite of processes with stand-ins for the nodes: start, end, crash, Ctrl-C; nothing may stay behind."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.suite import Suite, suite_environment
from sysid_ros.core.certification.authentication import KEY_FILE_VARIABLE, create_key_file, load_key
from sysid_ros.processes import Process, StartedProcess, resolve

STANDINS = Path(__file__).parent / "standins"


@dataclass(frozen=True)
class Standin(Process):
    """A process whose behaviour is one of ``standins/standin.py``."""

    @property
    def module(self) -> str:
        return "standin"


def started(*names):
    return [StartedProcess(Standin(name, "stands in"), "", (), {"model": f"model of {name}"}) for name in names]


@pytest.fixture
def environment(tmp_path, request):
    conftest = request.config.pluginmanager.get_plugin(str(Path(__file__).parents[1] / "conftest.py"))
    environment = suite_environment(tmp_path / "log", conftest._choose_domain())
    environment["PYTHONPATH"] += os.pathsep + str(STANDINS)
    environment["STANDIN_FOLDER"] = str(tmp_path)
    return environment


@pytest.fixture
def make_suite(monkeypatch, tmp_path, environment):
    """A suite whose node commands name the behaviour, because the module is the same for all."""
    from sysid_ros.cli import suite as module

    original = module.node_command

    def command(one, path):
        words = original(one, path)
        return [*words[:3], one.process.executable, *words[3:]]

    monkeypatch.setattr(module, "node_command", command)

    def make(nodes, client=None):
        words = None if client is None else [sys.executable, "-m", "standin", client]
        environment["STANDIN_AWAITED"] = " ".join(nodes)
        return Suite(started(*nodes), words, tmp_path / "log", environment)

    return make


def notes(folder):
    path = Path(folder) / "notes"
    return path.read_text().splitlines() if path.exists() else []


def noted_pids(folder):
    return [int(line.split()[-1]) for line in notes(folder) if " pid " in line]


def is_running(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


def assert_nothing_left(folder):
    end = time.monotonic() + 5.0
    while time.monotonic() < end and any(is_running(pid) for pid in noted_pids(folder)):
        time.sleep(0.1)
    assert [pid for pid in noted_pids(folder) if is_running(pid)] == []


def test_status_of_the_client_is_that_of_the_run(make_suite, tmp_path, environment):
    environment["STANDIN_STATUS"] = "5"
    assert make_suite(["driver", "orphaning"], "client_done").run() == 5
    assert {"driver stopped", "orphaning stopped"} <= set(notes(tmp_path))
    assert len(noted_pids(tmp_path)) == 3
    assert_nothing_left(tmp_path)


def test_crash_of_a_node_shows_the_end_of_its_log(make_suite, tmp_path, capfd):
    assert make_suite(["driver", "crashing"], "client_waiting").run() == ExitStatus.NODE_DIED
    shown = capfd.readouterr().err
    assert "crashing ended with exit status 1 before the end" in shown
    assert "    RuntimeError: the cable is loose" in shown
    assert "client arm at rest" in notes(tmp_path)
    assert_nothing_left(tmp_path)


def test_a_node_that_nothing_needs_is_started_again(make_suite, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("sysid_ros.cli.suite.RESPAWN_DELAY", 0.2)
    suite = make_suite(["driver", "crashing_once"], "client_done")
    suite._processes[1] = replace(suite._processes[1], process=Standin("crashing_once", "x", is_required=False))
    assert suite.run() == 0  # the client waits for both
    shown = capfd.readouterr().err
    assert "crashing_once ended with exit status 1" in shown and "RuntimeError: no display" in shown
    assert "nothing that moves needs crashing_once; it is started again in 0.2 s" in shown
    assert {"driver stopped", "crashing_once stopped"} <= set(notes(tmp_path))
    assert_nothing_left(tmp_path)


def test_the_key_is_for_those_alone_that_need_it(tmp_path, environment, monkeypatch):
    monkeypatch.delenv(KEY_FILE_VARIABLE, raising=False)
    started = resolve({})
    suite = Suite(started, None, tmp_path / "log", environment)
    files = {one.process.executable: suite.environment_of(one).get(KEY_FILE_VARIABLE) for one in started}
    with_key = {name for name, path in files.items() if path}
    assert with_key == {"arm_driver", "safe_planner", "estimator", "identification"}
    assert len({files[name] for name in with_key}) == 1
    assert load_key(Path(files["arm_driver"]))
    own = create_key_file(tmp_path / "own")
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(own))
    suite = Suite(started, None, tmp_path / "log", {**environment, KEY_FILE_VARIABLE: str(own)})
    assert KEY_FILE_VARIABLE not in suite.environment_of(started[1])
    assert suite.environment_of(started[0])[KEY_FILE_VARIABLE] == str(own)


def test_what_ignores_signals_is_killed_with_its_children(make_suite, tmp_path, monkeypatch):
    monkeypatch.setattr("sysid_ros.cli.suite.stop_groups.__defaults__", (0.5, 0.5))
    assert make_suite(["stubborn"], "client_done").run() == 0
    assert len(noted_pids(tmp_path)) == 2
    assert_nothing_left(tmp_path)


def test_a_node_that_stands_still_is_named_and_goes_on_to_end_in_order(make_suite, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("sysid_ros.cli.suite._STILL_SECONDS", 0.0)
    assert make_suite(["frozen"], "client_done_later").run() == 0
    assert "frozen stopped" in notes(tmp_path)
    (pid,) = noted_pids(tmp_path)
    assert capfd.readouterr().err.count(f"frozen stands still: a signal has stopped it; kill -CONT {pid} lets") == 1
    assert_nothing_left(tmp_path)


def test_real_nodes_get_their_parameters_and_end_in_order(make_suite, tmp_path):
    suite = make_suite(["talking"], "client_waiting")
    signal_later(tmp_path, "talking pid", signal.SIGINT)
    assert suite.run() == 130
    assert "talking model model of talking" in notes(tmp_path)
    assert_nothing_left(tmp_path)


def test_a_killed_node_is_named_with_its_signal(make_suite, tmp_path, capfd):
    assert make_suite(["killed"], "client_waiting").run() == ExitStatus.NODE_DIED
    assert "killed was ended by SIGKILL" in capfd.readouterr().err
    assert_nothing_left(tmp_path)


def signal_later(folder, awaited, number, pid=None, seconds=30.0):
    """Has another process send a signal to this one as soon as a note is there (and, in ours, nobody waits for it)."""
    code = (
        "import os, sys, time\n"
        "path, awaited, pid, number = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])\n"
        f"end = time.monotonic() + {seconds}\n"
        "while time.monotonic() < end and not (os.path.exists(path) and awaited in open(path).read()):\n"
        "    time.sleep(0.05)\n"
        "time.sleep(0.7)\n"
        "os.kill(pid, number)\n"
    )
    arguments = [str(Path(folder) / "notes"), awaited, str(pid or os.getpid()), str(int(number))]
    return subprocess.Popen([sys.executable, "-c", code, *arguments])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_the_arm_before_the_nodes(make_suite, tmp_path, number):
    signal_later(tmp_path, "client pid", number)
    assert make_suite(["driver", "orphaning"], "client_waiting").run() == 128 + number
    order = [line for line in notes(tmp_path) if " pid " not in line]
    assert order[0] == "client arm at rest"
    assert set(order[1:]) == {"driver stopped", "orphaning stopped"}
    assert_nothing_left(tmp_path)


def test_what_others_need_until_their_end_ends_last(make_suite, tmp_path):
    """An emulated controller takes the arm back from its driver."""
    suite = make_suite(["driver", "braking"], "client_done")
    controller, driver = suite._processes
    suite._processes = [replace(controller, process=replace(controller.process, ends_last=True)), driver]
    assert suite.run() == 0
    assert [line for line in notes(tmp_path) if "stopped" in line] == ["braking stopped", "driver stopped"]
    assert_nothing_left(tmp_path)


def test_client_that_does_not_stop_is_not_waited_for_forever(make_suite, tmp_path, monkeypatch):
    monkeypatch.setattr("sysid_ros.cli.suite._CLIENT_STOP_SECONDS", 1.0)
    signal_later(tmp_path, "client pid", signal.SIGINT)
    assert make_suite(["driver"], "client_stuck").run() == 130
    assert_nothing_left(tmp_path)


def test_nodes_without_client_run_until_a_signal(make_suite, tmp_path):
    signal_later(tmp_path, "driver pid", signal.SIGTERM)
    assert make_suite(["driver"]).run() == 143
    assert "driver stopped" in notes(tmp_path)
    assert_nothing_left(tmp_path)


def test_killed_runner_takes_its_nodes_along(tmp_path, environment):
    """Nobody is left to end them: the kernel interrupts them when their parent dies."""
    code = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from sysid_ros.cli.suite import ProcessGroup\n"
        "group = ProcessGroup('driver', [sys.executable, '-m', 'standin', 'driver'], os.environ)\n"
        "time.sleep(600)\n"
    )
    runner = subprocess.Popen([sys.executable, "-c", code], env=environment)
    end = time.monotonic() + 20
    while not noted_pids(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    runner.kill()
    runner.wait(timeout=5)
    assert noted_pids(tmp_path)
    assert_nothing_left(tmp_path)
    assert "driver stopped" in notes(tmp_path)
