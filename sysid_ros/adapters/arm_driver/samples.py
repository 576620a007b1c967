"""From the samples of the loop to those of a batch: which payload they belong to, and where a batch must end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.drivers.channel import LoopSamples
from sysid_ros.ros.conversions import Samples


class PayloadEpochs:
    """Which payload each sample belongs to, by number; the number rises whenever a change is announced."""

    def __init__(self) -> None:
        self._first_epoch = -1
        self._starts = [0]

    @property
    def present(self) -> int:
        """Number of the present payload."""
        return max(0, self._first_epoch + len(self._starts) - 1)

    def restart(self) -> None:
        """Count samples from the beginning again, with another payload than the last."""
        self._first_epoch, self._starts = self._first_epoch + len(self._starts), [0]

    def begin(self, sequence: int) -> None:
        """Begin the next payload with the sample of this number."""
        self._starts.append(sequence)

    def of(self, sequence: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the payload of each sample, (N,), by the samples' own numbers, (N,)."""
        return self._first_epoch + np.searchsorted(self._starts, sequence, side="right") - 1


def split_samples(samples: LoopSamples, payload_epochs: PayloadEpochs) -> list[Samples]:
    """Cuts samples of the loop where cycles are missing and where the payload changed: a batch has one of each.

    Args:
        samples: Samples of the loop, all of them usable.
        payload_epochs: Which payload each sample belongs to.
    """
    sequence = samples.block.sequence
    epochs = payload_epochs.of(sequence)
    is_cut = (np.diff(sequence) != 1) | (np.diff(epochs) != 0)
    cuts = [0, *(np.flatnonzero(is_cut) + 1), len(sequence)]
    return [
        _part(samples, slice(first, last), int(epochs[first]))
        for first, last in zip(cuts[:-1], cuts[1:], strict=True)
        if first < last
    ]


def _part(samples: LoopSamples, part: slice, epoch: int) -> Samples:
    block = samples.block
    return Samples(
        stamps=block.stamps[part],
        sequence=block.sequence[part],
        q=block.q[part],
        v=block.v[part],
        tau=block.tau[part],
        q_d=samples.q_d[part],
        v_d=samples.v_d[part],
        a_d=samples.a_d[part],
        tau_command=samples.tau_command[part],
        valid=np.ones(block.stamps[part].size, dtype=bool),
        mode=samples.modes[part].astype(np.uint8),
        payload_epoch=epoch,
        dropped=samples.dropped,
    )
