// A ros2_control broadcaster of samples of an arm, every update of the controller manager, in batches.
#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "controller_interface/controller_interface.hpp"
#include "hardware_interface/types/hardware_interface_type_values.hpp"
#include "pluginlib/class_list_macros.hpp"
#include "rclcpp/logging.hpp"
#include "rclcpp/qos.hpp"
#include "rclcpp_lifecycle/state.hpp"
#include "realtime_tools/realtime_publisher.hpp"
#include "sysid_broadcaster/sample_batcher.hpp"
#include "sysid_msgs/msg/sample_batch.hpp"

namespace sysid_broadcaster {

using controller_interface::CallbackReturn;
using controller_interface::InterfaceConfiguration;
using controller_interface::interface_configuration_type;
using sysid_msgs::msg::SampleBatch;

class SampleBroadcaster : public controller_interface::ControllerInterface {
 public:
  CallbackReturn on_init() override {
    auto_declare<std::vector<std::string>>("joints", {});       // in the order of the arm
    auto_declare<std::string>("frame_id", "base_link");         // the arm's base frame
    auto_declare<int>("batch_size", 20);                        // samples in a message
    auto_declare<bool>("has_velocities", true);                 // whether the hardware exports velocities
    return CallbackReturn::SUCCESS;
  }

  InterfaceConfiguration command_interface_configuration() const override {
    return {interface_configuration_type::NONE, {}};
  }

  InterfaceConfiguration state_interface_configuration() const override {
    InterfaceConfiguration wanted{interface_configuration_type::INDIVIDUAL, {}};
    for (const std::string& joint : joints_)
      for (const std::string& kind : kinds_) wanted.names.push_back(joint + "/" + kind);
    return wanted;
  }

  CallbackReturn on_configure(const rclcpp_lifecycle::State&) override {
    joints_ = get_node()->get_parameter("joints").as_string_array();
    size_ = get_node()->get_parameter("batch_size").as_int();
    if (joints_.empty() || size_ < 1 || size_ > 1000) {
      RCLCPP_ERROR(get_node()->get_logger(), "expected parameters: joints, at least one; batch_size, 1 to 1000");
      return CallbackReturn::ERROR;
    }
    kinds_ = {hardware_interface::HW_IF_POSITION, hardware_interface::HW_IF_EFFORT};
    if (get_node()->get_parameter("has_velocities").as_bool()) kinds_.push_back(hardware_interface::HW_IF_VELOCITY);
    auto publisher = get_node()->create_publisher<SampleBatch>("~/samples", rclcpp::QoS(100).reliable());
    publisher_ = std::make_unique<realtime_tools::RealtimePublisher<SampleBatch>>(publisher);
    return CallbackReturn::SUCCESS;
  }

  CallbackReturn on_activate(const rclcpp_lifecycle::State&) override {
    std::random_device random;
    char session[17];
    std::snprintf(session, sizeof session, "%08x%08x", random(), random());
    batcher_.begin(joints_, get_node()->get_parameter("frame_id").as_string(), size_, session);
    const std::vector<double> unknown(joints_.size(), std::numeric_limits<double>::quiet_NaN());
    values_.assign(3, unknown);
    places_.clear();
    for (const auto& one : state_interfaces_) {
      for (std::size_t j = 0; j < joints_.size(); ++j)
        for (std::size_t k = 0; k < kinds_.size(); ++k)
          if (one.get_prefix_name() == joints_[j] && one.get_interface_name() == kinds_[k])
            places_.push_back(&values_[k][j]);
    }
    if (places_.size() == state_interfaces_.size() && places_.size() == joints_.size() * kinds_.size())
      return CallbackReturn::SUCCESS;
    RCLCPP_ERROR(get_node()->get_logger(), "the state interfaces are not those asked for: is a joint named twice?");
    return CallbackReturn::ERROR;
  }

  controller_interface::return_type update(const rclcpp::Time& time, const rclcpp::Duration&) override {
    for (std::size_t at = 0; at < places_.size(); ++at)
      *places_[at] = state_interfaces_[at].get_optional().value_or(std::numeric_limits<double>::quiet_NaN());
    if (batcher_.add(time.nanoseconds(), values_[0], values_[2], values_[1]))
      batcher_.next(publisher_->try_publish(batcher_.message()));
    return controller_interface::return_type::OK;
  }

 private:
  std::vector<std::string> joints_, kinds_;
  std::int64_t size_ = 1;
  std::vector<std::vector<double>> values_;  // positions, efforts, velocities, as in kinds_
  std::vector<double*> places_;              // of each state interface
  SampleBatcher<SampleBatch> batcher_;
  std::unique_ptr<realtime_tools::RealtimePublisher<SampleBatch>> publisher_;
};

}  // namespace sysid_broadcaster

PLUGINLIB_EXPORT_CLASS(sysid_broadcaster::SampleBroadcaster, controller_interface::ControllerInterface)
