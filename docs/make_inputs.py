"""Writes docs/howto/bad_inputs.md by running every bad input: ``python docs/make_inputs.py``; a test compares it."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pinocchio as pin
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from sysid_ros.cli.main import main as sysid
from sysid_ros.core.model.loader import load_robot

PATH = Path(__file__).with_name("howto") / "bad_inputs.md"
MODEL = "xarm7"
DEGREES = "t=s, q=deg, v=rad/s, tau=Nm"
COUNT, RATE = 1500, 500
"""Samples of the recording that the cases spoil, and samples per second."""

HEADER = """# When an input is refused

Command, answer (its beginning, `...` where it goes on) and cure, made by running every case (`docs/make_inputs.py`).
[Exit status](../reference/files.md#the-results-folder) 5 would be a fault of the program, which belongs into a report.
"""

_WORDS, _LINES = 24, 3
"""How much of an answer the page shows."""


@dataclass(frozen=True)
class Case:
    """A bad input.

    Attributes:
        title: What is wrong.
        make: Makes the file in a folder from a good recording, and returns the words of the command.
        cure: What to do.
    """

    title: str
    make: Callable[[Path, dict[str, np.ndarray]], list[str]]
    cure: str


def good_recording() -> dict[str, np.ndarray]:
    """Return a motion of all joints with the torques against gravity: t [s], q, v, tau."""
    robot = load_robot(MODEL)
    t = np.arange(COUNT) / RATE
    phase = np.outer(2.0 * np.pi * t, np.linspace(0.3, 0.6, robot.n))
    q, v = robot.home + 0.4 * np.sin(phase), 0.8 * np.pi * np.linspace(0.3, 0.6, robot.n) * np.cos(phase)
    data = robot.pin_model.createData()
    a = -0.4 * (2.0 * np.pi * np.linspace(0.3, 0.6, robot.n)) ** 2 * np.sin(phase)
    tau = np.array([pin.rnea(robot.pin_model, data, *row) for row in zip(q, v, a, strict=True)])
    return {"t": t, "q": q, "v": v, "tau": tau}


def save(folder: Path, data: dict[str, np.ndarray], command: str = "offline", **changes: object) -> list[str]:
    """Write ``log.npz`` with changes (None leaves an array out), and return the words of a command."""
    names = list(load_robot(MODEL).joint_names)
    known = {**data, "joints": names, "units": "t=s, q=rad, v=rad/s, tau=Nm", **changes}
    np.savez(folder / "log.npz", **{name: array for name, array in known.items() if array is not None})
    output = ["--output", ""] if command == "offline" else ["--output", str(folder / "table.npz")]
    return [command, str(folder / "log.npz"), "--model", MODEL, *output]


def wrong_file(folder: Path, data: dict[str, np.ndarray]) -> list[str]:
    """Write a text with the ending of a table."""
    (folder / "log.npz").write_text("these are notes\n")
    return ["offline", str(folder / "log.npz"), "--model", MODEL]


def empty_file(folder: Path, data: dict[str, np.ndarray]) -> list[str]:
    """Write an empty file."""
    (folder / "log.csv").write_text("")
    return ["offline", str(folder / "log.csv"), "--model", MODEL]


def missing_column(folder: Path, data: dict[str, np.ndarray]) -> list[str]:
    """Write a table without the torques of a joint."""
    names = load_robot(MODEL).joint_names
    columns = ["t", *(f"q_{name}" for name in names), *(f"tau_{name}" for name in names[:-1])]
    rows = np.column_stack([data["t"], data["q"], data["tau"][:, :-1]])[:20]
    lines = [f"# joints: {', '.join(names)}", "# units: t=s, q=rad, tau=Nm", ",".join(columns)]
    lines += [",".join(f"{value:.6f}" for value in row) for row in rows]
    (folder / "log.csv").write_text("\n".join(lines) + "\n")
    return ["offline", str(folder / "log.csv"), "--model", MODEL]


def not_a_number(folder: Path, data: dict[str, np.ndarray]) -> list[str]:
    """Spoil one torque."""
    tau = data["tau"].copy()
    tau[17, 2] = np.nan
    return save(folder, data, "import", tau=tau)


def with_gaps(folder: Path, data: dict[str, np.ndarray]) -> list[str]:
    """Leave out some samples."""
    kept = np.ones(COUNT, dtype=bool)
    kept[300:340] = kept[700:705] = False
    return save(folder, {name: array[kept] for name, array in data.items()}, "import")


def repeated(folder: Path, data: dict[str, np.ndarray]) -> list[str]:
    """Repeat some samples."""
    order = np.sort(np.append(np.arange(COUNT), [100, 100, 400]))
    return save(folder, {name: array[order] for name, array in data.items()}, "import")


def without_gravity(folder: Path, data: dict[str, np.ndarray]) -> list[str]:
    """Take the arm's gravity off the torques, of an arm that holds 1.5 kg."""
    robot = load_robot(MODEL)
    empty, model = robot.pin_model, robot.pin_model.copy()
    model.inertias[robot.n] += pin.Inertia(1.5, np.array([0.0, 0.0, 0.15]), 0.005 * np.eye(3))
    a = np.gradient(data["v"], data["t"], axis=0)
    rows = zip(data["q"], data["v"], a, strict=True)
    whole = np.array([pin.rnea(model, model.createData(), *row) for row in rows])
    weight = np.array([pin.computeGeneralizedGravity(empty, empty.createData(), row) for row in data["q"]])
    return save(folder, data, tau=whole - weight)


def slow_source(folder: Path, data: dict[str, np.ndarray]) -> list[str]:
    """Hold every fourth sample for four."""
    held = np.arange(COUNT) // 4 * 4
    return save(folder, data, "import", **{name: data[name][held] for name in ("q", "v", "tau")})


def urdf_case(change: Callable[[str], str]) -> Callable[[Path, dict[str, np.ndarray]], list[str]]:
    """Return a case with a spoilt URDF."""

    def make(folder: Path, data: dict[str, np.ndarray]) -> list[str]:
        (folder / "my_arm.urdf").write_text(change(load_robot(MODEL).urdf))
        return ["new-robot", str(folder / "my_arm.urdf"), "--output", str(folder / "my_arm.yaml")]

    return make


def write_bag(folder: Path, data: dict[str, np.ndarray], names: list[str]) -> Path:
    """Write a bag of joint states and return its file."""
    store = get_typestore(Stores.LATEST)
    state, header, time = (
        store.types[name]
        for name in ("sensor_msgs/msg/JointState", "std_msgs/msg/Header", "builtin_interfaces/msg/Time")
    )
    with Writer(folder / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection("/joint_states", state.__msgtype__, typestore=store)
        for k, seconds in enumerate(data["t"]):
            stamp = 10**9 + round(1e9 * float(seconds))
            place = header(time(stamp // 10**9, stamp % 10**9), "")
            message = state(place, names, data["q"][k], data["v"][k], data["tau"][k])
            writer.write(connection, stamp, store.serialize_cdr(message, state.__msgtype__))
    return next((folder / "bag").glob("*.mcap"))


def cut_bag(folder: Path, data: dict[str, np.ndarray]) -> list[str]:
    """Cut a bag off, as a recorder that was killed does."""
    file = write_bag(folder, data, list(load_robot(MODEL).joint_names))
    content = file.read_bytes()
    (folder / "cut.mcap").write_bytes(content[:-400])  # index and end are gone
    return ["import", str(folder / "cut.mcap"), "--model", MODEL, "--output", str(folder / "table.npz")]


def foreign_bag(folder: Path, data: dict[str, np.ndarray]) -> list[str]:
    """Write the bag of another arm."""
    some = {name: array[:50] for name, array in data.items()}
    file = write_bag(folder, some, [f"panda_joint{k}" for k in range(1, 8)])
    return ["offline", str(file.rename(folder / "bag.mcap")), "--model", MODEL]


CASES = (
    Case("Wrong file", wrong_file, "Give a bag, a `.csv` or an `.npz`; [forms](../reference/files.md#offline-use)."),
    Case(
        "Empty file",
        empty_file,
        "Record again: a table has a line of column names and one line per sample.",
    ),
    Case(
        "Wrong joints",
        lambda folder, data: save(folder, data, joints=[f"axis_{k}" for k in range(1, 8)]),
        "Say which is which: `--map axis_1=joint1`, once for each joint, or name the columns as the joints are named.",
    ),
    Case(
        "Degrees",
        lambda folder, data: save(folder, data, q=np.degrees(data["q"])),
        "Name the unit: `--units 'q=deg'`, or in the header of a table.",
    ),
    Case(
        "Flipped sign of the torques",
        lambda folder, data: save(folder, data, tau=-data["tau"]),
        "Say `--effort-sign -1`: torques count in joint direction.",
    ),
    Case(
        "Currents in place of torques",
        lambda folder, data: save(folder, data, tau=data["tau"] / 11.0),
        "Say what one unit is in Nm, of all joints or of each: `--effort-scale 11`, gear ratio times torque constant. "
        "The numbers that gravity suggests contain the unknown payload; they show the cause and are no calibration.",
    ),
    Case(
        "Gravity taken off already",
        without_gravity,
        "Log the torques that the sensors measure, before the controller takes gravity off (not external torques).",
    ),
    Case(
        "Angles from 0 to 360 degrees",
        lambda folder, data: save(folder, data, "import", q=np.degrees(data["q"]) % 360.0, units=DEGREES),
        "Nothing: jumps of a turn are taken out, and angles are read within the limits of the joint.",
    ),
    Case(
        "A slow source, published fast",
        slow_source,
        "Record the source itself. Repeats are left out, but the stamps are not those of the measurements.",
    ),
    Case(
        "Missing column", missing_column, "Without measured torques of every joint no payload can be known: log them."
    ),
    Case(
        "Not a number",
        not_a_number,
        "Nothing, if they are few: samples in which a number is missing are left out, of tables as of bags.",
    ),
    Case(
        "Gaps",
        with_gaps,
        "Nothing, if the rest suffices: windows are cut there. Otherwise look for what delays the recorder.",
    ),
    Case("Repeated stamps", repeated, "Nothing: repeated and late samples are left out, up to a tenth of all."),
    Case("Cut file", cut_bag, "Nothing: what comes before the cut is read, by every command."),
    Case("Bag of another arm", foreign_bag, "Choose the arm with `--model`, or rename joints with `--map`."),
    Case(
        "Unknown model",
        lambda folder, data: ["offline", str(folder / "log.npz"), "--model", "ur5"],
        "Choose one of the names, or write settings of your own arm: `sysid new-robot my_arm.urdf`.",
    ),
    Case(
        "Unknown option",
        lambda folder, data: ["offline", "log.npz", "--model", MODEL, "--windw", "0.2"],
        "`sysid offline --help` lists them.",
    ),
    Case(
        "Unreadable URDF",
        urdf_case(lambda text: text.replace("</robot>", "")),
        "Mend the XML; of a xacro file make a URDF first: `xacro my_arm.urdf.xacro > my_arm.urdf`.",
    ),
    Case(
        "Inertias in another unit",
        urdf_case(lambda text: re.sub(r'(i[xyz]{2})="([^"]+)"', lambda m: f'{m[1]}="{float(m[2]) * 1e9:g}"', text)),
        "Write `<inertia>` in kg m^2. Above 1 m a radius of gyration is asked about, above 3 m it is refused.",
    ),
    Case(
        "Missing inertia",
        urdf_case(lambda text: re.sub(r"<inertial>.*?</inertial>", "", text, flags=re.S)),
        "Take the description of the vendor that has inertias, or type the mass of the data sheet: `--total-mass`.",
    ),
)


def run(case: Case, folder: Path) -> tuple[str, int, str]:
    """Run a case; return the command, its exit status and what it said, without the folder."""
    words = case.make(folder, good_recording())
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            status = int(sysid(words))
        except SystemExit as ended:  # of argparse
            status = int(ended.code or 0)
    shown = [word.replace(f"{folder}/", "") for word in words]
    while "--output" in shown:
        place = shown.index("--output")
        del shown[place : place + 2]
    text = told.getvalue().replace(f"{folder}/", "")
    lines = [line for line in text.partition("\nerror: ")[0].splitlines() if _is_message(line)]
    if "\nerror: " in f"\n{text}":  # may have several lines
        lines = ["error: " + f"\n{text}".partition("\nerror: ")[2].strip()]
    return shlex.join(["sysid", *shown]), status, "\n".join(lines)


def _is_message(line: str) -> bool:
    """Return whether a line is about the input, not about what the command does otherwise."""
    return line.startswith(("note: ", "not guaranteed: ")) or "error: " in line or "samples in" in line


def _shorten(text: str) -> str:
    """Return the beginning of an answer."""
    lines = text.splitlines()
    shown = [line if len(line.split()) <= _WORDS else " ".join(line.split(" ")[:_WORDS]) + " ..." for line in lines]
    return "\n".join(shown[:_LINES] + ["..."] * (len(shown) > _LINES))


def build_page() -> str:
    """Return the page."""
    parts = [HEADER]
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            command, status, told = run(case, Path(folder))
        told = _shorten(told)
        parts.append(
            f"## {case.title}\n\n```\n$ {command}\n{told}\n```\n\nExit status {status}. **Cure:** {case.cure}\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    PATH.write_text(build_page(), encoding="utf-8")
