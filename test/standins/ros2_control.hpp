// A stand-in for what the broadcaster uses of ros2_control and rclcpp, and a controller manager of one controller.
// Names, arguments and results are those of ros2_control 4 (Jazzy) and later; published messages are kept.
#pragma once

#include <any>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rclcpp {
class Time {
 public:
  explicit Time(std::int64_t nanoseconds) : nanoseconds_(nanoseconds) {}
  std::int64_t nanoseconds() const { return nanoseconds_; }

 private:
  std::int64_t nanoseconds_;
};
class Duration {};
class QoS {
 public:
  explicit QoS(std::size_t) {}
  QoS& reliable() { return *this; }
};
class Parameter {
 public:
  explicit Parameter(std::any value) : value_(std::move(value)) {}
  std::vector<std::string> as_string_array() const { return std::any_cast<std::vector<std::string>>(value_); }
  std::string as_string() const { return std::any_cast<std::string>(value_); }
  std::int64_t as_int() const { return std::any_cast<int>(value_); }
  bool as_bool() const { return std::any_cast<bool>(value_); }

 private:
  std::any value_;
};
template <class Message>
struct Publisher {
  std::string topic;
};
}  // namespace rclcpp

#define RCLCPP_ERROR(logger, ...) ((void)(logger), std::fprintf(stderr, __VA_ARGS__))

namespace rclcpp_lifecycle {
class State {};
class LifecycleNode {
 public:
  std::map<std::string, std::any> parameters;

  rclcpp::Parameter get_parameter(const std::string& name) const { return rclcpp::Parameter(parameters.at(name)); }
  int get_logger() const { return 0; }
  template <class Message>
  std::shared_ptr<rclcpp::Publisher<Message>> create_publisher(const std::string& topic, const rclcpp::QoS&) {
    return std::make_shared<rclcpp::Publisher<Message>>(rclcpp::Publisher<Message>{topic});
  }
};
}  // namespace rclcpp_lifecycle

namespace hardware_interface {
constexpr char HW_IF_POSITION[] = "position", HW_IF_VELOCITY[] = "velocity", HW_IF_EFFORT[] = "effort";
class LoanedStateInterface {
 public:
  LoanedStateInterface(std::string prefix, std::string name, const double* value)
      : prefix_(std::move(prefix)), name_(std::move(name)), value_(value) {}
  const std::string& get_prefix_name() const { return prefix_; }
  const std::string& get_interface_name() const { return name_; }
  template <class T = double>
  std::optional<T> get_optional(unsigned = 10) const {
    return value_ == nullptr ? std::nullopt : std::optional<T>(*value_);
  }

 private:
  std::string prefix_, name_;
  const double* value_;
};
}  // namespace hardware_interface

namespace realtime_tools {
template <class Message>
class RealtimePublisher {
 public:
  static inline std::vector<Message> published;
  static inline bool is_free = true;  // whether the thread that publishes has sent the last message
  explicit RealtimePublisher(std::shared_ptr<rclcpp::Publisher<Message>> publisher) : publisher_(publisher) {}
  bool try_publish(const Message& message) {
    if (is_free) published.push_back(message);
    return is_free;
  }

 private:
  std::shared_ptr<rclcpp::Publisher<Message>> publisher_;
};
}  // namespace realtime_tools

namespace controller_interface {
enum class CallbackReturn { SUCCESS, FAILURE, ERROR };
enum class return_type { OK, ERROR };
enum class interface_configuration_type { ALL, INDIVIDUAL, NONE };
struct InterfaceConfiguration {
  interface_configuration_type type;
  std::vector<std::string> names;
};
class ControllerInterface {
 public:
  virtual ~ControllerInterface() = default;
  virtual InterfaceConfiguration command_interface_configuration() const = 0;
  virtual InterfaceConfiguration state_interface_configuration() const = 0;
  virtual CallbackReturn on_init() = 0;
  virtual CallbackReturn on_configure(const rclcpp_lifecycle::State&) = 0;
  virtual CallbackReturn on_activate(const rclcpp_lifecycle::State&) = 0;
  virtual return_type update(const rclcpp::Time&, const rclcpp::Duration&) = 0;
  std::shared_ptr<rclcpp_lifecycle::LifecycleNode> get_node() const { return node_; }
  template <class T>
  void auto_declare(const std::string& name, const T& value) {
    node_->parameters.emplace(name, value);
  }
  std::vector<hardware_interface::LoanedStateInterface> state_interfaces_;

 private:
  std::shared_ptr<rclcpp_lifecycle::LifecycleNode> node_ = std::make_shared<rclcpp_lifecycle::LifecycleNode>();
};
}  // namespace controller_interface

#define PLUGINLIB_EXPORT_CLASS(Class, Base) \
  std::unique_ptr<Base> make_controller() { return std::make_unique<Class>(); }
