"""The command ``sysid``: every command is there and named so; what is unknown is refused before anything is loaded."""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros import start_check
from sysid_ros.cli import main as door
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.main import COMMANDS, EMULATORS, PAPERS
from sysid_ros.core.model.loader import load_robot
from sysid_ros.reports.recordings.files import read_recording

ROOT = Path(__file__).parents[1]
GROUPS = {"": COMMANDS, "emulate ": EMULATORS, "papers ": PAPERS}
LEAVES = {f"{group}{name}": one for group, of in GROUPS.items() for name, one in of.items() if one.module}


def parsers(parser):
    """A parser and those of its own commands."""
    found = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found += [inner for one in action.choices.values() for inner in parsers(one)]
    return found


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_a_help_with_examples_that_it_takes(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    build = LEAVES[name].parser
    assert build().prog == f"sysid {name}"
    with pytest.raises(SystemExit) as ended:
        door.main([*name.split(), "--help"])
    assert ended.value.code == 0 and f"usage: sysid {name}" in capsys.readouterr().out
    for parser in parsers(build()):
        text = parser.format_help()
        assert "exit status:\n  0    " in text and "\n  2    an " in text and len(parser.examples) >= 1
        assert all(len(line) <= 80 for line in text.splitlines()), text
        for example in parser.examples:
            assert all(f"  {line.strip()}" in text for line in example.splitlines())
            words = shlex.split(example.replace("\\\n", " ").partition(" > ")[0])
            assert words[: len(name.split()) + 1] == ["sysid", *name.split()]
            assert door.build_parser(words).parse_args(words[1:]).module == LEAVES[name].module


@pytest.mark.parametrize(
    ("name", "number"),
    [("identifiability", 0), ("import", 1), ("new-robot", 0), ("papers safe-id", 1), ("completion", 0), ("report", 0)],
)
def test_cheap_examples_run(name, number, tmp_path, monkeypatch, capsys):
    """In a folder with the files that they name; what is refused there is refused for a reason of the data."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "urdf" / "ur5e.urdf", tmp_path)
    robot = load_robot("xarm7")
    columns = [f"{kind}_{joint}" for kind in ("q", "v", "tau") for joint in robot.joint_names]
    turned = np.degrees(robot.home)
    rows = [",".join(map(str, [0.001 * k, *turned, *np.zeros(robot.n), *np.ones(robot.n)])) for k in range(100)]
    header = [f"# joints: {', '.join(robot.joint_names)}", "# units: t=s, q=deg, v=rad/s, tau=Nm", "# effort_sign: 1"]
    (tmp_path / "log.csv").write_text("\n".join([*header, "t," + ",".join(columns), *rows]))
    example = LEAVES[name].parser().examples[number]
    status = door.main(shlex.split(example.partition(" > ")[0])[1:])
    told = capsys.readouterr()
    if name == "report":  # there is no such folder here
        assert status == ExitStatus.BAD_INPUT and "the folder or file is missing" in told.err
    else:
        assert status == ExitStatus.OK, told


def complete(line, folder):
    """What a shell offers for the last word of a line."""
    answer = folder / "answer"
    variables = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    environment = {**os.environ, **variables, "_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "sysid_ros.cli.main"]
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)
    words = [word.strip() for word in answer.read_text().split("\n") if word.strip()]
    answer.unlink()
    return words


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("sysid o", ["offline"]),
        ("sysid calibrate ", ["arm", "run", "sensors"]),
        ("sysid emulate k", ["kortex"]),
        ("sysid demo --ta", ["--tare"]),
        ("sysid identify --mode emulated_m", ["emulated_monitor_only"]),
        ("sysid offline --model ur", ["ur10e", "ur16e", "ur3e", "ur5e"]),
        ("sysid identify --payload dumbbell_4", ["dumbbell_4lb"]),
        ("sysid space --model ser", ["servicer"]),
        ("sysid verify lo", ["log.mcap"]),
        ("sysid calibrate sensors log.mcap --model my", ["my_arm.yaml"]),
    ],
)
def test_a_shell_completes_commands_options_models_payloads_and_files(line, offered, tmp_path):
    for name in ("my_arm.yaml", "log.mcap", "my_arm.txt"):
        (tmp_path / name).touch()
    found = complete(line, tmp_path)
    if line.endswith(" "):
        found = [word for word in found if not word.startswith("-")]
    assert found == offered


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_for_a_shell_completes_sysid(shell, tmp_path, capsys):
    assert door.main(["completion", shell]) == ExitStatus.OK
    script = tmp_path / "sysid"
    script.write_text(capsys.readouterr().out)
    if shell == "bash":
        told = subprocess.run(["bash", "-c", f"source {script}; complete -p sysid"], capture_output=True, text=True)
        assert "_python_argcomplete" in told.stdout and not told.stderr
    assert "sysid" in script.read_text()


def refused(words, capsys):
    """What is told of a command line that argparse refuses."""
    with pytest.raises(SystemExit) as ended:
        door.main(words)
    assert ended.value.code == ExitStatus.BAD_INPUT
    return capsys.readouterr().err


def test_help_lists_commands_and_exit_status(capsys):
    for group, of in GROUPS.items():
        with pytest.raises(SystemExit) as ended:
            door.main([*group.split(), "--help"])
        text = " ".join(capsys.readouterr().out.split())
        assert ended.value.code == 0 and all(f" {name} {one.summary}" in text for name, one in of.items())
    with pytest.raises(SystemExit):
        door.main(["--help"])
    assert "4    data are consistent, but" in capsys.readouterr().out
    assert door.main(["--version"]) == 0
    assert capsys.readouterr().out == f"sysid_ros {version('sysid_ros')}\n"


def test_without_arguments_five_things_are_shown_that_the_parsers_take(capsys):
    assert door.main([]) == ExitStatus.BAD_INPUT
    text = capsys.readouterr().out
    examples = [line.split("  ")[1] for line in text.splitlines() if line.startswith("  sysid ")]
    assert len(examples) == 5 and "`sysid --help` lists all commands" in text
    for example in examples:
        door.build_parser().parse_args(example.split()[1:])


def test_unknown_commands_and_options_are_refused_with_the_nearest_one(capsys):
    told = refused(["ofline"], capsys)
    assert "invalid choice: 'ofline' (choose from" in told and "(did you mean offline?)" in told
    assert "sysid emulate: error: argument COMMAND: invalid choice: 'korte'" in refused(["emulate", "korte"], capsys)
    assert "(did you mean --weight?)" in refused(["calibrate", "run", "--weigth", "2"], capsys)
    assert "required: COMMAND" in refused(["papers"], capsys)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("calibrate arm log.csv --model ur5e --serial 1 --output none/c.yaml", "--output 'none/c.yaml': expected a"),
        ("calibrate arm log.csv --model ur5e --serial 1 --valid-days -3", "--valid-days -3: expected 0 or more"),
        ("calibrate run --serial 1 --motion-time nan", "--motion-time nan: expected 0 or more"),
        ("emulate fri --port x", "invalid port 'x': expected 0 to 65535"),
        ("emulate kortex --port 99999999", "invalid port '99999999'"),
        ("emulate ur --script-port -5", "invalid port '-5'"),
        ("identify --domain-id 102", "invalid ROS domain '102': expected 0 to 101"),
        ("papers safe-id --seeds 0", "--seeds 0: expected 1 or more"),
        ("papers sva --scale nan", "--scale nan: expected 0.01 or more"),
        ("papers sva --seeds -1", "--seeds -1: expected 1 or more"),
        ("space --momentum -1 0", "linear_momentum [kg m/s] -1.0"),
        ("space --parts -2", "--parts -2: expected 0 or more"),
        (f"new-robot {ROOT}/urdf/ur5e.urdf --joints ''", "--joints '': expected names of joints"),
        ("identifiability --model ''", "robot '' is unknown; known are"),
        ("papers sva --experiment regressor --results /proc/none", "cannot make the folder /proc/none"),
        ("import x.npz --model ur5e --output /nowhere/x.npz", "its folder is missing (/nowhere)"),
    ],
)
def test_numbers_words_and_places_are_refused_before_any_work(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        status = door.main(shlex.split(words))
    except SystemExit as ended:  # of argparse
        status = ended.code
    assert status == ExitStatus.BAD_INPUT and message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_faults_of_the_program_are_told_in_a_sentence(monkeypatch, capsys):
    def fail(words):
        raise ZeroDivisionError("by hand")

    monkeypatch.setattr(door, "_run", fail)
    monkeypatch.delenv(door.TRACEBACK, raising=False)
    assert door.main(["offline"]) == ExitStatus.FAULT
    told = capsys.readouterr().err
    assert (
        "a fault of sysid_ros itself, ZeroDivisionError in test_commands.py, line" in told and "Traceback" not in told
    )
    monkeypatch.setenv(door.TRACEBACK, "1")
    with pytest.raises(ZeroDivisionError):
        door.main(["offline"])


def test_a_missing_extra_is_named(monkeypatch, capsys):
    def need(words):
        raise ModuleNotFoundError("No module named 'mujoco'", name="mujoco")

    monkeypatch.setattr(door, "_run", need)
    assert door.main(["identify"]) == ExitStatus.BAD_INPUT
    assert "install it with: pip install 'sysid_ros[sim]'" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["demo", "identify --mode emulated", "space", "calibrate run --serial 1"])
@pytest.mark.parametrize(("module", "extra"), [("rclpy", "ros"), ("mujoco", "sim"), ("casadi", "planning")])
def test_without_an_extra_nothing_is_started(words, module, extra, tmp_path, monkeypatch, capfd):
    def start(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(start_check, "find_spec", lambda name: None if name == module else object())
    if words == "space" and module == "casadi":
        pytest.skip("a free-flying robot needs no certified plans")
    status = door.main([*words.split(), "--results", str(tmp_path / "results")])
    assert status == ExitStatus.BAD_INPUT and not (tmp_path / "results").exists()
    assert f"{module} is not installed, which this takes; install it with: pip install 'sysid_ros[{extra}]'" in (
        capfd.readouterr().err
    )


def test_experiments_that_lack_a_package_begin_no_run(tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    folder = tmp_path / "results"
    assert door.main(["papers", "sva", "--seeds", "1", "--results", str(folder)]) == ExitStatus.BAD_INPUT
    told = capfd.readouterr().err
    assert not folder.exists() and told.count("mujoco is not installed") == 1


SLOW = {"numpy", "scipy", "pinocchio", "matplotlib", "rclpy", "mujoco", "casadi", "rich", "jinja2"}
"""What help, and what is refused, must not load."""
REFUSED = [
    *(f"{name} --no-such-option" for name in LEAVES),
    "no-such-command",
    "offline none.npz --model xarm7",
    "offline log.npz --model no_such_arm",
    "offline log.npz --model none.yaml",
    "offline log.npz --model xarm7 --prior ghost",
    "offline log.npz --model xarm7 --set torque_lag=fast",
    "offline log.npz --model xarm7 --units q=miles",
    "offline log.npz --model xarm7 --calibration none.yaml",
    "offline log.npz --model xarm7 --output log.npz/results",
    "report none",
    "apply ur none --robot-ip 127.0.0.1",
    "import none.npz --model xarm7",
    "import log.npz --model xarm7 --output log.csv",
    "new-robot none.urdf",
    "calibrate arm none.npz --model xarm7 --serial 1",
    "calibrate arm log.npz=heavy --model xarm7 --serial 1",
    "calibrate arm log.npz --model xarm7 --serial 1 --known-within 2",
    "calibrate sensors none.npz --model xarm7",
    "calibrate run --serial 1 --model no_such_arm",
    "identifiability --urdf none.urdf",
    "identifiability --model no_such_arm",
    "verify none.mcap",
    "demo --model no_such_arm",
    "identify --model no_such_arm",
    "identify --mode hardware",
    "identify --seed -1",
    "space --parts 2 --recording none.mcap",
    "papers sva --seeds 0",
    "papers safe-id --seeds 0",
]


def loaded_by(words, folder):
    """Exit status of a command in a process of its own, and which slow packages it has loaded."""
    code = (
        "import sys\nfrom sysid_ros.cli.main import main\n"
        "try:\n    status = main(sys.argv[1:])\nexcept SystemExit as end:\n    status = end.code\n"
        f"print('loaded:', int(status), *sorted({SLOW!r} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, env=environment)
    _, status, *found = done.stdout.splitlines()[-1].split()
    return int(status), found, done.stderr


@pytest.mark.parametrize("name", ["", *LEAVES, *(f"calibrate {one}" for one in ("run", "arm", "sensors"))])
def test_help_loads_nothing_that_takes_long(name, tmp_path):
    assert loaded_by([*name.split(), "--help"], tmp_path)[:2] == (0, [])


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused_is_refused_before_anything_that_takes_long_is_loaded(words, tmp_path):
    (tmp_path / "log.npz").touch()
    status, found, told = loaded_by(words.split(), tmp_path)
    assert (status, found) == (2, []) and "error" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.npz"]


def test_a_report_needs_neither_plots_nor_filters_of_others():
    code = "import sys, sysid_ros.cli.offline, sysid_ros.reports.report; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"matplotlib", "scipy.signal", "scipy.stats", "scipy.optimize", "rclpy", "mujoco", "casadi"}
    assert not heavy & set(done.stdout.split())
    assert not [name for name in done.stdout.split() if name.startswith("sysid_ros.core.tracking_bound")]


def test_a_recording_becomes_a_table_that_reads_the_same(tmp_path, capsys):
    robot, rng = load_robot("kinova_gen3_2f85"), np.random.default_rng(1)
    t = 10**18 + 1_000_000 * np.arange(200)
    q = robot.home + 0.1 * np.sin(np.outer(np.arange(200), 0.001 * np.arange(1, robot.n + 1)))
    names = list(reversed(robot.joint_names))
    weight = [pin.computeGeneralizedGravity(robot.pin_model, robot.pin_model.createData(), row) for row in q]
    tau = np.array(weight) + 0.1 * rng.normal(size=q.shape)
    source = tmp_path / "log.npz"
    units = "t=ns, q=deg, v=rad/s, tau=mNm"
    turned = {"q": np.degrees(q[:, ::-1]), "v": 0.0 * q, "tau": -1e3 * tau[:, ::-1]}
    np.savez(source, t=t, joints=names, units=units, effort_sign="-1", **turned)
    words = ["import", str(source), "--model", robot.name, "--output", str(tmp_path / "table.npz")]
    assert door.main(words) == 0
    text = capsys.readouterr().out
    assert "200 samples in 0.199 s, usually every 1 ms" in text
    before, after = (read_recording(tmp_path / name, robot).samples for name in ("log.npz", "table.npz"))
    for name in ("stamps", "q", "v", "tau"):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
    np.testing.assert_allclose(after.tau, tau, rtol=1e-12)
    assert door.main(words) == 2 and "the file is there already" in capsys.readouterr().err
    words[-1] = str(tmp_path / "table.csv")
    assert door.main(words) == 2 and "the ending is '.csv'; expected .npz" in capsys.readouterr().err
