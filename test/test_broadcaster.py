"""The broadcaster for ros2_control, compiled with a stand-in of ros2_control and the real messages."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "sysid_broadcaster"
HEADERS = (
    "controller_interface/controller_interface.hpp", "hardware_interface/types/hardware_interface_type_values.hpp",
    "pluginlib/class_list_macros.hpp", "rclcpp/logging.hpp", "rclcpp/qos.hpp", "rclcpp_lifecycle/state.hpp",
    "realtime_tools/realtime_publisher.hpp",
)  # fmt: skip
"""Headers of ros2_control and rclcpp for which there is the stand-in."""
PROGRAM = """
#include "SOURCE"

// Updates of a controller manager: time [ns], and what fails: the publisher is busy, or a measurement is lost.
int main(int count, char** arguments) {
  auto controller = make_controller();
  controller->on_init();
  auto& parameters = controller->get_node()->parameters;
  parameters["joints"] = std::vector<std::string>{"b", "a"};
  parameters["batch_size"] = std::atoi(arguments[1]);
  parameters["has_velocities"] = std::string(arguments[2]) == "yes";
  const auto configured = controller->on_configure({});
  if (configured != controller_interface::CallbackReturn::SUCCESS) return 1;
  std::printf("{\\"wanted\\": [");
  const auto wanted = controller->state_interface_configuration().names;
  for (std::size_t k = 0; k < wanted.size(); ++k) std::printf("%s\\"%s\\"", k ? ", " : "", wanted[k].c_str());
  std::printf("], \\"commands\\": %d", controller->command_interface_configuration().type !=
                                         controller_interface::interface_configuration_type::NONE);
  std::vector<double> values(wanted.size());
  for (std::size_t k = wanted.size(); k-- > 0;) {  // in another order than asked for
    const auto slash = wanted[k].find('/');
    controller->state_interfaces_.emplace_back(wanted[k].substr(0, slash), wanted[k].substr(slash + 1), &values[k]);
  }
  const auto activated = controller->on_activate({});
  std::printf(", \\"activated\\": %d", activated == controller_interface::CallbackReturn::SUCCESS);
  typedef realtime_tools::RealtimePublisher<sysid_msgs::msg::SampleBatch> Publisher;
  for (int at = 3; at + 1 < count; at += 2) {
    Publisher::is_free = std::string(arguments[at + 1]) != "busy";
    for (std::size_t k = 0; k < values.size(); ++k) values[k] = 100.0 * k + (at - 3) / 2;
    if (std::string(arguments[at + 1]) == "lost") values[0] = NAN;
    controller->update(rclcpp::Time(std::atoll(arguments[at])), {});
  }
  std::printf(", \\"batches\\": [");
  const char* comma = "";
  for (const auto& one : Publisher::published) {
    std::printf("%s{\\"first\\": %lld, \\"dropped\\": %lld, \\"session\\": \\"%s\\", \\"stamp\\": [%d, %u], "
                "\\"frame\\": \\"%s\\", \\"joints\\": \\"%s %s\\"", comma, (long long)one.first_sequence,
                (long long)one.dropped, one.session.c_str(), one.header.stamp.sec, one.header.stamp.nanosec,
                one.header.frame_id.c_str(), one.joint_names[0].c_str(), one.joint_names[1].c_str());
    const auto list = [](const char* name, const auto& values) {
      std::printf(", \\"%s\\": [", name);
      for (std::size_t k = 0; k < values.size(); ++k) {
        const double value = double(values[k]);
        value == value ? std::printf("%s%.17g", k ? ", " : "", value) : std::printf("%sNaN", k ? ", " : "");
      }
      std::printf("]");
    };
    list("stamps", one.stamps), list("valid", one.valid), list("modes", one.modes);
    list("positions", one.positions), list("velocities", one.velocities), list("efforts", one.efforts);
    list("commanded", one.commanded_efforts);
    std::printf("}");
    comma = ", ";
  }
  std::printf("]}\\n");
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broadcaster")
    for header in HEADERS:
        (folder / header).parent.mkdir(parents=True, exist_ok=True)
        (folder / header).write_text(f'#include "{ROOT / "test/standins/ros2_control.hpp"}"\n')
    (folder / "main.cpp").write_text(PROGRAM.replace("SOURCE", str(PACKAGE / "src" / "sample_broadcaster.cpp")))
    messages = [f"-I{one}" for one in (Path(sys.prefix) / "include").iterdir() if one.is_dir()]
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-error=deprecated-declarations"]
    given = [f"-I{folder}", f"-I{PACKAGE / 'include'}", *messages, str(folder / "main.cpp"), "-o", str(folder / "main")]
    done = subprocess.run([*command, *given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "main"


def run(program, size, updates, velocities="yes"):
    words = [str(word) for update in updates for word in update]
    done = subprocess.run([program, str(size), velocities, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_batches_have_all_samples_by_joint_in_the_order_of_the_arm(program):
    found = run(program, 2, [(10**9 + k, "free") for k in range(5)])
    assert found["activated"] == 1 and found["commands"] == 0
    assert found["wanted"] == [f"{joint}/{kind}" for joint in "ba" for kind in ("position", "effort", "velocity")]
    first, second = found["batches"]  # the fifth sample waits for its batch
    assert (first["joints"], first["frame"], first["stamp"]) == ("b a", "base_link", [1, 1])
    assert [first["first"], second["first"]] == [0, 2] and second["dropped"] == 0
    assert second["stamps"] == [10**9 + 2, 10**9 + 3] and second["valid"] == [1, 1] and second["modes"] == [0, 0]
    assert second["positions"] == [2, 302, 3, 303]
    assert second["efforts"] == [102, 402, 103, 403] and second["velocities"] == [202, 502, 203, 503]
    assert all(map(math.isnan, first["commanded"])) and len(first["commanded"]) == 4
    assert len(first["session"]) == 16 and first["session"] == second["session"]
    assert run(program, 2, [(1, "free"), (2, "free")])["batches"][0]["session"] != first["session"]


def test_samples_that_are_lost_are_counted_and_numbers_show_the_gap(program):
    states = ["free", "free", "busy", "busy", "free", "lost", "free", "free"]
    first, third, last = run(program, 2, [(k + 1, state) for k, state in enumerate(states)], "no")["batches"]
    assert [one["first"] for one in (first, third, last)] == [0, 4, 6]
    assert [one["dropped"] for one in (first, third, last)] == [0, 2, 2]
    assert third["valid"] == [1, 0] and last["valid"] == [1, 1]
    assert all(map(math.isnan, last["velocities"]))  # this hardware exports none; the driver computes them


def test_times_rise_within_a_batch_whatever_the_clock_does(program):
    stamps = [5, 5, 6, 2, 3, 4, 4, 5]
    batches = run(program, 3, [(stamp, "free") for stamp in stamps])["batches"]
    assert [one["stamps"] for one in batches] == [[2, 3, 4]]
    assert (batches[0]["first"], batches[0]["dropped"]) == (2, 2)
    unset = run(program, 2, [(stamp, "free") for stamp in (0, 0, 7, 8, 0, 3, 4)])["batches"]  # a simulation begins at 0
    assert [one["stamps"] for one in unset] == [[7, 8], [3, 4]] and unset[1]["dropped"] == 0


@pytest.mark.parametrize("size", [0, 1001, -1])
def test_a_batch_size_that_makes_no_sense_is_refused(program, size):
    done = subprocess.run([program, str(size), "yes"], capture_output=True, text=True)
    assert done.returncode == 1 and "batch_size, 1 to 1000" in done.stderr


def test_the_package_declares_what_it_includes():
    package = ElementTree.parse(PACKAGE / "package.xml").getroot()
    depends = {one.text for one in package.findall("depend")}
    cmake, plugin = (PACKAGE / "CMakeLists.txt").read_text(), ElementTree.parse(PACKAGE / "sysid_broadcaster.xml")
    source = (PACKAGE / "src" / "sample_broadcaster.cpp").read_text()
    used = {line.split('"')[1].split("/")[0] for line in source.splitlines() if line.startswith('#include "')}
    assert used - {"sysid_broadcaster"} == depends
    assert all(f"find_package({one} REQUIRED)" in cmake for one in depends)
    assert plugin.getroot().attrib["path"] == plugin.find("class").attrib["name"].split("/")[0] == "sysid_broadcaster"
    exported = f"PLUGINLIB_EXPORT_CLASS({plugin.find('class').attrib['type']}, "
    assert exported + plugin.find("class").attrib["base_class_type"] in source
