"""Finding and removing shared-memory files, without touching those of others."""

import mmap
import os
from pathlib import Path

import pytest

from sysid_ros.ros.environment import SHARED_MEMORY, existing_files, files_in_use, files_of_domain, remove_unused


@pytest.fixture
def files():
    """Files named as Fast DDS names them, of a port of domain 99 and of a segment."""
    names = ["fastdds_port32200", "fastdds_port32200_el", "sem.fastdds_port32200_mutex", "fastdds_0123456789abcdef"]
    paths = [SHARED_MEMORY / name for name in names]
    for path in paths:
        path.write_bytes(b"x" * 4096)
    yield paths
    for path in paths:
        path.unlink(missing_ok=True)


def test_files_are_found_by_domain(files):
    assert files_of_domain(99) >= set(files[:3])
    assert files[3] not in files_of_domain(99)
    assert files_of_domain(98).isdisjoint(files)
    assert existing_files() >= set(files)


def test_open_and_mapped_files_are_in_use_and_stay(files):
    with files[3].open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 4096)
    assert files_in_use([os.getpid()]) >= {files[3]}
    assert set(remove_unused(files)) == set(files[:3])
    mapped.close()
    assert remove_unused(files) == [files[3]]
    assert not any(path.exists() for path in files)


def test_lock_and_semaphore_of_a_port_in_use_stay(files):
    with files[0].open("rb"):
        assert remove_unused(files[:3]) == []
        assert set(remove_unused(files[:3], ignored_pids=[os.getpid()])) == set(files[:3])


def test_files_of_other_programs_are_not_ours():
    other = SHARED_MEMORY / "psm_of_somebody_else"
    other.write_bytes(b"x")
    try:
        with other.open("rb"):
            assert other not in files_in_use([os.getpid()])
        assert other not in existing_files()
    finally:
        other.unlink()


def test_processes_that_are_gone_use_nothing():
    assert files_in_use([2**22 + 1]) == set()
    assert remove_unused([Path("/dev/shm/fastdds_that_is_not_there")]) == []
