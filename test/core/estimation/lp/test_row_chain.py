"""Cyclic reduction against dense Cholesky factors, and what the fast factorisation of the rows rests on."""

import numpy as np
import pytest

from sysid_ros.core.estimation.lp.row_chain import BlockChain


def random_chain(rng, count, windows, n):
    """Dense matrices of random block-tridiagonal chains with a gap, and their blocks."""
    below = rng.normal(size=(count, windows, n, n))
    below[:, 0] = np.nan  # does not count
    if windows > 3:
        below[:, 2] = 0.0
    dense = np.zeros((count, windows * n, windows * n))
    for k in range(1, windows):
        rows, before = slice(k * n, (k + 1) * n), slice((k - 1) * n, k * n)
        dense[:, rows, before] = below[:, k]
        dense[:, before, rows] = below[:, k].transpose(0, 2, 1)
    root = rng.normal(size=(count, windows, n, n))
    diagonal = root @ root.transpose(0, 1, 3, 2) + 6.0 * n * np.eye(n)
    for k in range(windows):
        rows = slice(k * n, (k + 1) * n)
        dense[:, rows, rows] = diagonal[:, k]
    return dense, diagonal, below


@pytest.mark.parametrize("windows", [1, 2, 3, 4, 5, 8, 13])
def test_solves_as_the_dense_matrix_does(windows):
    rng = np.random.default_rng(windows)
    count, n, k = 3, 4, 2
    dense, diagonal, below = random_chain(rng, count, windows, n)
    right = rng.normal(size=(count, windows, n, k))
    chain = BlockChain(diagonal, below)
    forward = np.empty_like(right)
    chain.forward(right, forward)
    found = chain.backward(forward).reshape(count, windows * n, k)
    flat = right.reshape(count, windows * n, k)
    np.testing.assert_allclose(found, np.linalg.solve(dense, flat), rtol=1e-10, atol=1e-12)
    # The factor is one of the matrix: products of forward solutions are those with its inverse.
    f = forward.reshape(count, windows * n, k)
    expected = flat.transpose(0, 2, 1) @ np.linalg.solve(dense, flat)
    np.testing.assert_allclose(f.transpose(0, 2, 1) @ f, expected, rtol=1e-10, atol=1e-12)


def test_an_indefinite_matrix_is_refused_and_a_singular_one_regularised():
    zero = np.zeros((1, 2, 3, 3))
    with pytest.raises(np.linalg.LinAlgError):
        BlockChain(np.broadcast_to(-np.eye(3), (1, 2, 3, 3)), zero)
    singular = np.ones((1, 2, 3, 3))
    found = np.full((1, 2, 3, 1), np.nan)
    BlockChain(singular, zero).forward(np.ones((1, 2, 3, 1)), found)
    assert np.all(np.isfinite(found))


def test_no_blocks_at_all():
    chain = BlockChain(np.zeros((2, 0, 3, 3)), np.zeros((2, 0, 3, 3)))
    nothing = np.zeros((2, 0, 3, 1))
    chain.forward(nothing, nothing)
    assert chain.backward(nothing).shape == (2, 0, 3, 1)
