import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from driver_doubles import (
    build_loop,
    build_loop_paced_by_its_arm,
    build_nothing,
    build_reporting_loop,
    make_certificate,
    make_move,
)

from sysid_ros.core.common.errors import SysidError
from sysid_ros.drivers.arm import InjectedFaults
from sysid_ros.drivers.child import ChildProcessFailed
from sysid_ros.drivers.loop_types import LoopCode, LoopMode, LoopModel, LoopRefusal, LoopSettings
from sysid_ros.drivers.process import LoopProcess

PATIENCE = 60.0
REPOSITORY = Path(__file__).parents[2]


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        time.sleep(0.02)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def require_nameless_memory(pid):
    """The shared memory is mapped, but under no name in a file system, so that nothing can be left behind."""
    if sys.platform.startswith("linux"):
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert "memfd:sysid_ros_samples" in maps and "/dev/shm" not in maps


PATIENT = LoopSettings(heartbeat_timeout=10.0, late_limit=10.0)
"""For tests that are about something else than time."""


def boxes(robot):
    model = LoopModel.nominal(robot)
    return model.theta_box, model.payload_box


def start_move(process, robot, **options):
    wait_until(lambda: not process.status().is_taking_over, "the end of the takeover")
    plan = make_move(process.status().reference, **options)
    process.execute(plan, make_certificate(boxes(robot), plan, bound=0.08, now=time.time()))
    return plan


@pytest.fixture
def process():
    with LoopProcess(partial(build_loop, settings=PATIENT), 7) as process:
        yield process


def test_a_whole_life(robot):
    process = LoopProcess(partial(build_loop, settings=PATIENT), 7)
    with pytest.raises(ChildProcessFailed, match="not running; call start"):
        process.status()
    with pytest.raises(ChildProcessFailed, match="never started"):
        process.read_samples()
    process.start()
    assert process.is_alive and os.getsid(process.pid) != os.getsid(0)  # no Ctrl-C of our terminal reaches it
    assert process.scheduling.text.startswith("SCHED_FIFO" if process.scheduling.has_priority else "normal")
    with pytest.raises(ChildProcessFailed, match="runs already"):
        process.start()
    plan = start_move(process, robot, duration=3.0)  # long enough to be asked in, on a busy machine
    with pytest.raises(LoopRefusal, match="the loop is in TRACK"):
        process.execute(plan, make_certificate(boxes(robot), plan, now=time.time()))
    collected = []
    while process.status().is_moving:
        process.heartbeat()
        time.sleep(0.02)
        collected.append(process.read_samples())
    status = process.status()
    assert status.mode is LoopMode.HOLD and status.code is LoopCode.OK, status.reason
    np.testing.assert_allclose(status.reference, plan.end, atol=1e-9)
    np.testing.assert_allclose(process.truth().q, plan.end, atol=0.02)
    sequence = np.concatenate([part.block.sequence for part in collected])
    np.testing.assert_array_equal(np.diff(sequence), 1)
    assert collected[-1].dropped == 0
    stamps = np.concatenate([part.block.stamps for part in collected])
    assert abs(stamps[-1] * 1e-9 - time.time()) < PATIENCE  # real time since the epoch
    assert {LoopMode.TRACK} <= set(np.concatenate([part.modes for part in collected]))
    timing = process.timing()
    assert timing.cycles == 1000 and 0.0 < timing.compute_p50 <= timing.compute_p99 <= timing.compute_max
    require_nameless_memory(process.pid)
    process.stop()
    assert not process.is_alive and not is_running(process.pid)
    process.stop()
    assert len(process.read_samples().block) > 0
    with pytest.raises(ChildProcessFailed):
        process.status()


def test_refusals_and_simulation_services_go_through_the_pipe(process, robot):
    plan = make_move(process.status().reference)
    with pytest.raises(LoopRefusal, match="no certificate"):
        process.execute(plan, None)
    with pytest.raises(LoopRefusal, match="joint_9"):
        process.inject(InjectedFaults(nan_torques=("joint_9",)))
    impossible = robot.payload_prior.nominal.copy()
    impossible[0] = -9.0
    with pytest.raises(LoopRefusal, match="set_payload refused: .*not physically consistent"):
        process.set_payload(impossible)
    before = process.status().cycles
    assert before <= process.set_payload(None) <= process.status().cycles
    assert process.truth().payload is None
    model = LoopModel.nominal(robot)
    with pytest.raises(LoopRefusal, match="parameters are needed"):
        process.set_model(LoopModel(model.theta[:5], model.theta_box, model.payload, model.payload_box))
    process.set_model(model)
    process.inject(InjectedFaults(power_loss=True))
    wait_until(lambda: process.status().mode is LoopMode.FAULT, "the fault")
    assert process.status().code is LoopCode.HARDWARE
    process.reconnect()
    assert process.status().mode is LoopMode.HOLD
    with pytest.raises(LoopRefusal, match="connect refused"):
        process.reconnect()


def test_silence_brakes(robot):
    with LoopProcess(partial(build_loop, settings=LoopSettings(late_limit=10.0)), 7) as process:
        start_move(process, robot, duration=3.0)
        wait_until(lambda: not process.status().is_moving, "the brake")
        assert process.status().code is LoopCode.STALE


def test_an_arm_can_pace_the_loop():
    """As FRI does: read() blocks; when the arm is lost, the loop paces itself instead of spinning."""
    with LoopProcess(build_loop_paced_by_its_arm, 7) as process:
        wait_until(lambda: process.status().cycles > 1000, "1000 cycles")
        assert 0.0005 < process.timing(200).period_p50 < 0.1
        process.inject(InjectedFaults(power_loss=True))
        wait_until(lambda: process.status().mode is LoopMode.FAULT, "the fault")
        process.reconnect()
        cycles = process.status().cycles
        wait_until(lambda: process.status().cycles > cycles + 100, "more cycles")


def test_an_arm_that_cannot_be_built_says_why():
    process = LoopProcess(build_nothing, 7)
    with pytest.raises(SysidError, match="there is no arm today"):
        process.start()
    assert not process.is_alive
    process = LoopProcess(build_loop, 6)
    with pytest.raises(SysidError, match="the arm has 7 joints, 6 were expected"):
        process.start()
    assert not process.is_alive


def test_the_loop_process_ignores_sigint_and_obeys_sigterm(robot, tmp_path):
    report = tmp_path / "report"
    process = LoopProcess(partial(build_reporting_loop, report), 7)
    process.start()
    start_move(process, robot, duration=3.0)
    os.kill(process.pid, signal.SIGINT)
    process.heartbeat()
    assert process.status().is_moving
    os.kill(process.pid, signal.SIGTERM)
    wait_until(lambda: not process.is_alive, "its end")
    speed, reason, story = report.read_text().splitlines()
    assert float(speed) < 0.01 and reason == "SIGTERM" and "BRAKE:SIGTERM" in story
    with pytest.raises(ChildProcessFailed):
        process.status()
    process.stop()


def test_a_killed_loop_process_is_reported_and_leaves_nothing():
    process = LoopProcess(build_loop, 7)
    process.start()
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(ChildProcessFailed, match="exit status -9"):
        while True:
            process.status()
    process.stop()
    assert not process.is_alive


HELPERS = [str(folder) for folder in Path(__file__).parents[:2]]
PARENT = """
    import sys, time
    sys.path[:0] = {helpers!r}
    from functools import partial
    from driver_doubles import build_loop, build_reporting_loop, make_certificate, make_move
    from sysid_ros.drivers.process import LoopProcess
    process = LoopProcess(partial(build_reporting_loop, {report!r}), 7)
    process.start()
    while process.status().is_taking_over:
        time.sleep(0.02)
    plan = make_move(process.status().reference, duration=20.0)
    process.execute(plan, make_certificate(build_loop().boxes_of(None), plan, bound=0.08, now=time.time()))
    print(process.pid, flush=True)
    while True:
        process.heartbeat()
        time.sleep(0.02)
"""


def test_when_its_parent_is_killed_it_brakes_and_ends(tmp_path):
    report = tmp_path / "report"
    script = textwrap.dedent(PARENT).format(helpers=HELPERS, report=str(report))
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as parent:
        try:
            pid = int(parent.stdout.readline())
            time.sleep(0.3)
            assert is_running(pid)
            require_nameless_memory(pid)
        finally:
            parent.kill()
    wait_until(lambda: not is_running(pid), "the end of the loop process")
    speed, reason, story = report.read_text().splitlines()
    assert float(speed) < 0.01 and reason.startswith("the commanding process")
    assert "|BRAKE:the commanding process" in story and "|HOLD:at rest after braking" in story
