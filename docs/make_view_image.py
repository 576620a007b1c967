"""Draws docs/images/view.png: the view in a browser, of a simulated recording: ``python docs/make_view_image.py``.

It needs Chromium, as the tests of what people see do.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "test")]
from browser import open_page  # noqa: E402
from simulate import dumbbell, simulate  # noqa: E402

import sysid_ros as sr  # noqa: E402
from sysid_ros.core.collision.scene import Obstacle, Scene  # noqa: E402
from sysid_ros.view.replay import Replay, Story  # noqa: E402
from sysid_ros.view.scene import ArmView  # noqa: E402

PATH = Path(__file__).with_name("images") / "view.png"
SHOWN_AT = 4.6
"""Time of the recording that is shown [s]."""


def draw(file: Path) -> None:
    """Identify from a simulated recording, replay it and write what is seen."""
    robot = sr.load_robot("kinova_gen3_2f85")
    result = sr.identify(simulate(robot, dumbbell(robot=robot), seconds=5.0), robot)
    samples, history = result.samples, result.history
    table = Obstacle("table", [0.55, 0.05, 0.08], [0.15, 0.3, 0.08], np.eye(3))
    bounds = np.stack([history.lower, history.values, history.upper], axis=1)
    story = Story(samples.seconds, samples.q, history.time, bounds, result.estimate, scene=Scene(obstacles=(table,)))
    view = ArmView(robot)
    try:
        replay = Replay(view, robot, story)
        replay._play.value = False
        with tempfile.TemporaryDirectory() as folder, open_page(view.url, Path(folder), 1280, 660) as page:
            page.wait_for("document.body.innerText.includes('play')")
            replay._slider.value = SHOWN_AT
            page.wait_for("document.body.innerText.includes('centre of mass within')")
            page.evaluate("document.querySelectorAll('.mantine-Notification-closeButton').forEach(e => e.click())")
            time.sleep(8.0)  # the scene fades in
            page.screenshot(file)
    finally:
        view.close()


if __name__ == "__main__":
    draw(PATH)
    sys.stdout.write(f"{PATH} written, {PATH.stat().st_size} bytes\n")
