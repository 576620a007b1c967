"""Nothing of ROS leaves this machine, and nothing from outside is read."""

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.drivers.network import free_port
from sysid_ros.ros.environment import (
    DOMAIN_IDS,
    LOOPBACK_PROFILE,
    choose_domain_id,
    domain_ports,
    is_domain_in_use,
    loopback_environment,
)

LOOPBACK = "127.0.0.1"

NODE = """
import sys, rclpy
from std_msgs.msg import String
rclpy.init()
node = rclpy.create_node("quiet")
node.create_publisher(String, "words", 10)
print("ready", flush=True)
rclpy.spin_once(node, timeout_sec=0.5)
sys.stdin.readline()
"""


@pytest.fixture
def ros_process():
    """A process with one ROS node, in the environment the runner gives."""
    environment = {**os.environ, **loopback_environment()}
    process = subprocess.Popen(
        [sys.executable, "-c", NODE], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    yield process, int(environment["ROS_DOMAIN_ID"])
    process.stdin.close()
    process.wait(timeout=10)


def socket_inodes(pid):
    """Of all sockets of a process; it may close one meanwhile."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(link)
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    return inodes


def udp_sockets(pid):
    """(address, port, bytes waiting to be read) of the UDP sockets of a process."""
    inodes, found = socket_inodes(pid), []
    for line in Path("/proc/net/udp").read_text().splitlines()[1:]:
        columns = line.split()
        if columns[9] in inodes:
            address, port = columns[1].split(":")
            ip = socket.inet_ntoa(bytes.fromhex(address)[::-1])
            found.append((ip, int(port, 16), int(columns[4].split(":")[1], 16)))
    return found


def other_address():
    """An address of this machine that is not loopback; None where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: only asks the routing table
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if address.startswith("127.") else address


def test_every_socket_is_bound_to_loopback(ros_process):
    """The group of discovery is joined on loopback alone; a socket bound to it takes nothing else."""
    process, domain = ros_process
    sockets = udp_sockets(process.pid)
    assert any(ip == LOOPBACK and port in domain_ports(domain) for ip, port, _ in sockets), sockets
    assert {ip for ip, *_ in sockets} <= {LOOPBACK, "239.255.0.1"}, sockets


def test_ports_of_the_domain_are_closed_on_other_addresses(ros_process):
    process, domain = ros_process
    address = other_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    ports = [port for _, port, _ in udp_sockets(process.pid) if port in domain_ports(domain)]
    assert ports
    for port in ports:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.settimeout(0.3)
            sender.connect((address, port))
            sender.send(b"anybody there?")
            with pytest.raises(ConnectionRefusedError):
                sender.recv(10)


def test_no_shared_memory_of_fast_dds_whose_ports_others_delete_and_killed_processes_leave(ros_process):
    """A process that stands still for a second loses its port to whoever opens it then, and hears nobody any more."""
    process, _ = ros_process
    maps = Path(f"/proc/{process.pid}/maps").read_text()
    assert "libfastdds" in maps, "no Fast DDS, so nothing is tested"
    assert "/dev/shm/fastdds" not in maps


def test_no_listening_tcp_socket(ros_process):
    process, _ = ros_process
    inodes = socket_inodes(process.pid)
    assert inodes
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            assert line.split()[9] not in inodes


def test_environment_holds_what_keeps_ros_here():
    environment = loopback_environment(37)
    assert environment["ROS_DOMAIN_ID"] == "37"
    assert environment["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "SYSTEM_DEFAULT"
    assert environment["ROS_STATIC_PEERS"] == ""
    assert Path(environment["FASTDDS_DEFAULT_PROFILES_FILE"]) == LOOPBACK_PROFILE
    assert LOOPBACK_PROFILE.is_file()


@pytest.mark.parametrize("domain", [-1, 102, 1000])
def test_domain_out_of_range_is_refused(domain):
    with pytest.raises(ParameterOutOfRange, match="ROS_DOMAIN_ID .*: expected 0 to 101"):
        loopback_environment(domain)


@pytest.fixture
def reservations(monkeypatch):
    """Domains chosen here, free again in the end."""
    chosen = []
    monkeypatch.setattr("sysid_ros.ros.environment._reservations", chosen)
    yield chosen
    for one in chosen:
        one.close()


def test_a_chosen_domain_is_nobody_elses_before_its_nodes_have_ports(reservations):
    here = {choose_domain_id(random.Random(0)) for _ in range(5)}
    assert len(here) == len(reservations) == 5
    code = "import random; from sysid_ros.ros.environment import *; print(choose_domain_id(random.Random(0)))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(other) not in here


def test_a_domain_in_use_is_not_chosen(reservations):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((LOOPBACK, 0))
        generator = random.Random(0)
        for domain in range(102):
            first = domain_ports(domain)[0]
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
                one.bind((LOOPBACK, first + 3))
                assert all(choose_domain_id(generator) != domain for _ in range(3))


def test_others_on_a_domain_are_known(ros_process):
    _, domain = ros_process
    assert is_domain_in_use(domain)
    assert not is_domain_in_use(choose_domain_id())


def test_ports_of_domains_do_not_overlap():
    assert all(domain_ports(d)[-1] < domain_ports(d + 1)[0] for d in range(101))


def test_ports_for_others_are_nobodys():
    domains = set().union(*map(domain_ports, DOMAIN_IDS))
    handed_out_by_linux = range(32_768, 61_000)
    ports = {free_port() for _ in range(200)}
    assert ports.isdisjoint(domains.union(handed_out_by_linux))
    assert len(ports) > 150, "they are drawn, not counted: two programs would ask for the same"
