"""An emulated controller in a thread of the tests."""

import threading
import time

from sysid_ros.ros.other_nodes import wait_until


class EmulatorThread:
    """Runs the server of an emulator in a thread.

    Its time stands still while the client computes, until its patience is at an end. By default that is longer than any
    computer pauses, so nothing depends on time but what a test makes depend on it with ``server.patience``.
    """

    PATIENCE = 60.0

    def start(self, server, pause=0.0):
        """``pause`` [s] after each cycle lets the thread of the client have the interpreter."""
        self.server, self._pause, self.running = server, pause, True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while self.running:
            self.server.cycle()
            if self._pause:
                time.sleep(self._pause)

    def stop(self):
        self.running, self.server.patience = False, 0.0
        self._thread.join()
        self.server.close()

    def __exit__(self, *_):
        if self.running:
            self.stop()

    def lose_patience(self):
        """The client has fallen silent for good; returns when that has been noticed."""
        self.server.patience = 0.001
        assert wait_until(lambda: not self.has_client, self.PATIENCE)
        self.server.patience = self.PATIENCE

    def now(self, action):
        """Does something to what is emulated, while its time stands still."""
        return self.server.between_cycles(action)
