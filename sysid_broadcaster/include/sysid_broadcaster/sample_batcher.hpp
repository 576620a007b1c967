// Collects samples of joints into batches: sysid_msgs/SampleBatch, or any message with these fields. After begin() nothing
// here allocates, so samples may come from a real-time loop.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace sysid_broadcaster {

template <class Message>
class SampleBatcher {
 public:
  // Begins with the first sample of a session, in batches of `size` samples; the session's name tells it from others.
  void begin(const std::vector<std::string>& joints, const std::string& frame, std::size_t size,
             const std::string& session) {
    message_ = Message();
    message_.joint_names = joints;
    message_.header.frame_id = frame;
    message_.session = session;
    size_ = size, count_ = 0, last_ = std::numeric_limits<std::int64_t>::min();
    message_.stamps.resize(size);
    message_.valid.assign(size, false);
    message_.modes.assign(size, 0);  // MODE_IDLE: this controller moves nothing
    const double unknown = std::numeric_limits<double>::quiet_NaN();
    for (auto* values : {&message_.positions, &message_.velocities, &message_.efforts, &message_.reference_positions,
                         &message_.reference_velocities, &message_.reference_accelerations,
                         &message_.commanded_efforts})
      values->assign(size * joints.size(), unknown);
  }

  // Adds a sample with its time [ns]; returns whether the batch is complete, and is to be published before the next.
  // A repeated time is ignored, and zero, which a simulation's clock shows before it starts. Where the clock was set
  // back, the unfinished batch is dropped: times rise within one.
  bool add(std::int64_t stamp, const std::vector<double>& position, const std::vector<double>& velocity,
           const std::vector<double>& effort) {
    if (stamp == last_ || stamp <= 0) return false;
    if (stamp < last_) {
      message_.dropped += count_;
      message_.first_sequence += count_;
      count_ = 0;
    }
    const std::size_t joints = message_.joint_names.size(), first = count_ * joints;
    last_ = message_.stamps[count_] = stamp;
    bool is_valid = true;
    for (std::size_t j = 0; j < joints; ++j) {
      message_.positions[first + j] = position[j];
      message_.velocities[first + j] = velocity[j];
      message_.efforts[first + j] = effort[j];
      is_valid = is_valid && std::isfinite(position[j]) && std::isfinite(effort[j]);
    }
    message_.valid[count_] = is_valid;
    if (++count_ < size_) return false;
    message_.header.stamp.sec = static_cast<std::int32_t>(stamp / 1000000000);
    message_.header.stamp.nanosec = static_cast<std::uint32_t>(stamp % 1000000000);
    return true;
  }

  // The complete batch.
  const Message& message() const { return message_; }

  // Begins the next batch; samples of one that could not be published count as dropped.
  void next(bool was_published) {
    message_.dropped += was_published ? 0 : count_;
    message_.first_sequence += count_;
    count_ = 0;
  }

 private:
  Message message_;
  std::size_t size_ = 1, count_ = 0;
  std::int64_t last_ = 0;
};

}  // namespace sysid_broadcaster
