"""Extremes over the vertices of the payload's set, against every vertex one by one."""

from __future__ import annotations

import numpy as np
import pytest

from sysid_ros.core.tracking_bound.inertia_columns import largest_of_any
from sysid_ros.core.tracking_bound.uncertainty import Vertices

SAMPLES, N = 5, 7


@pytest.fixture(params=[1, 2, 60])
def offsets(request):
    """Of one vertex (which is its own center), of two, and of many, some of which are the same."""
    rng = np.random.default_rng(request.param)
    values = rng.normal(size=(request.param, 10)) * np.logspace(0, -4, 10)
    values[::7] = values[0]
    values[:, 3] = 0.0
    return values - values.mean(axis=0)


@pytest.mark.parametrize("several", [1, 4])
def test_largest_norm_is_that_of_the_worst_vertex(offsets, several):
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(SAMPLES, 10, several, N, N))
    # The center nearly balances some vertices, as a nominal payload does; one sample has nothing at all.
    center = 0.1 * rng.normal(size=(SAMPLES, several, N, N)) - np.tensordot(parts, offsets[0], (1, 0))
    center[2], parts[2] = 0.0, 0.0
    found = Vertices(offsets).largest_norm(center, parts)
    matrices = center[:, None] + np.einsum("kl,slxab->skxab", offsets, parts)
    sides = matrices.transpose(0, 1, 3, 2, 4).reshape(SAMPLES, len(offsets), N, -1)  # the norm of [X_1, X_2, ...]
    np.testing.assert_allclose(found, np.linalg.norm(sides, 2, axis=(-2, -1)).max(axis=1), rtol=1e-10)
    assert found[2] == 0.0


def test_lengths_and_entries_are_those_of_the_worst_vertex(offsets):
    rng = np.random.default_rng(1)
    parts, root = rng.normal(size=(SAMPLES, N, 10)), rng.normal(size=(SAMPLES, N, N))
    center, metric = rng.normal(size=(SAMPLES, N)), root @ root.swapaxes(1, 2)
    vectors = center[:, None] + np.einsum("kl,tal->tka", offsets, parts)
    lengths = np.sqrt(np.einsum("tka,tab,tkb->tk", vectors, metric, vectors))
    vertices = Vertices(offsets)
    np.testing.assert_allclose(vertices.largest_length(center, parts, metric), lengths.max(axis=1), rtol=1e-10)
    np.testing.assert_allclose(vertices.largest_entries(center, parts), np.abs(vectors).max(axis=1), rtol=1e-10)


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_largest_of_any_leaves_out_no_matrix_that_counts(size):
    """Nearly equal ones, very different ones, ones of a single direction, and multiples of the identity."""
    rng = np.random.default_rng(2)
    root = rng.normal(size=(40, 30, N, N))
    root[::4] *= 1.0 + 1e-6 * rng.normal(size=(10, 30, 1, 1))
    root[1::4] *= np.logspace(0, -200, 30)[:, None, None]
    root[2::4, ::2, :, 1:] = 0.0
    matrices = root @ root.swapaxes(2, 3)
    matrices[3::4] = np.eye(N) * rng.uniform(0.9999, 1.0, size=(10, 30, 1, 1))
    expected = np.linalg.eigvalsh(matrices).max(axis=(1, 2))
    np.testing.assert_allclose(largest_of_any(size * matrices), size * expected, rtol=1e-12)
