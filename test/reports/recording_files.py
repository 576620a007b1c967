"""Writes samples as every form of recording."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from sysid_ros.reports.recordings.mcap import SAMPLES
from sysid_ros.reports.recordings.recording import RecordingWriter, message_definition, share_directories

UNITS = "t=ns, q=rad, v=rad/s, tau=Nm"
ROOT = Path(__file__).parents[2]


def write_npz(path, robot, samples, units=UNITS, **changes):
    arrays = {"t": samples.stamps, "q": samples.q, "v": samples.v, "tau": samples.tau}
    arrays |= {"joints": np.array(robot.joint_names), "units": units} | changes
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


def save_npz(*what, **changes):
    """The file, as a command line names it."""
    return str(write_npz(*what, **changes))


def write_csv(path, robot, samples, units=UNITS, joints=None, header=None, edit=lambda text: text, names=None):
    names = names or ["t", *(f"{kind}_{joint}" for kind in ("q", "v", "tau") for joint in robot.joint_names)]
    lines = (
        header if header is not None else [f"# joints: {', '.join(joints or robot.joint_names)}", f"# units: {units}"]
    )
    lines = [*lines, "# made by a test", ",".join(names)]
    for k, stamp in enumerate(samples.stamps):
        numbers = np.concatenate([samples.q[k], samples.v[k], samples.tau[k]])
        lines.append(",".join([str(stamp), *(repr(float(number)) for number in numbers)]))
    path.write_text(edit("\n".join(lines) + "\n"))
    return path


def batches_of(robot, samples, size=20, **changes):
    names = changes.pop("joint_names", list(robot.joint_names))
    for first in range(0, len(samples), size):
        part = samples.slice(first, first + size)
        fields = {
            "header": SimpleNamespace(
                stamp=SimpleNamespace(sec=int(part.stamps[-1] // 10**9), nanosec=int(part.stamps[-1] % 10**9)),
                frame_id="base",
            ),
            "joint_names": names,
            "first_sequence": int(part.sequence[0]),
            "payload_epoch": 0,
            "stamps": part.stamps.tolist(),
            "positions": part.q.ravel().tolist(),
            "velocities": part.v.ravel().tolist(),
            "efforts": part.tau.ravel().tolist(),
            "reference_positions": (part.q + 1).ravel().tolist(),
            "reference_velocities": (part.v + 2).ravel().tolist(),
            "reference_accelerations": np.zeros(part.q.size).tolist(),
            "commanded_efforts": (part.tau + 3).ravel().tolist(),
            "valid": [True] * len(part),
            "modes": [1] * len(part),
            "dropped": 0,
        }
        yield SimpleNamespace(**(fields | changes))


def write_mcap(path, batches, topics=("/arm_driver/samples",)):
    definition = message_definition(SAMPLES, (ROOT, *share_directories()))
    with RecordingWriter(path, {"robot": "test"}, {SAMPLES: definition}) as writer:
        for batch in batches:
            for topic in topics:
                writer.write(topic, SAMPLES, batch, int(batch.stamps[-1]))
    return path
