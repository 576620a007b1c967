// Trees of joints, and the vectors that are passed on from body to body.
//
// Every body has a frame whose z axis is the axis of its joint. A motion is the velocity of the origin of such a frame
// and an angular velocity; a wrench is a force and a moment about the origin; all in the axes of the frame.
#pragma once

#include <vector>

#include "numbers.hpp"

namespace kernel {

template <class T>
struct Vec {
  T x, y, z;
};

template <class T>
KERNEL_INLINE Vec<T> operator+(const Vec<T>& a, const Vec<T>& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z};
}
template <class T>
KERNEL_INLINE Vec<T> operator-(const Vec<T>& a, const Vec<T>& b) {
  return {a.x - b.x, a.y - b.y, a.z - b.z};
}
template <class S, class T>
KERNEL_INLINE auto operator*(const S& a, const Vec<T>& b) -> Vec<decltype(a * b.x)> {
  return {a * b.x, a * b.y, a * b.z};
}
template <class S, class T>
KERNEL_INLINE auto dot(const Vec<S>& a, const Vec<T>& b) -> decltype(a.x * b.x) {
  return a.x * b.x + a.y * b.y + a.z * b.z;
}
template <class S, class T>
KERNEL_INLINE auto cross(const Vec<S>& a, const Vec<T>& b) -> Vec<decltype(a.x * b.x)> {
  return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}
template <class T>
KERNEL_INLINE Vec<T> constant(double x, double y, double z) {
  return {T(x), T(y), T(z)};
}

// A constant rotation, row by row.
struct Turn {
  double r[9];
  bool is_identity;

  template <class T>
  KERNEL_INLINE Vec<T> apply(const Vec<T>& v) const {
    return {r[0] * v.x + r[1] * v.y + r[2] * v.z, r[3] * v.x + r[4] * v.y + r[5] * v.z,
            r[6] * v.x + r[7] * v.y + r[8] * v.z};
  }
  template <class T>
  KERNEL_INLINE Vec<T> back(const Vec<T>& v) const {
    return {r[0] * v.x + r[3] * v.y + r[6] * v.z, r[1] * v.x + r[4] * v.y + r[7] * v.z,
            r[2] * v.x + r[5] * v.y + r[8] * v.z};
  }
};

template <class T>
struct Motion {
  Vec<T> linear, angular;

  KERNEL_INLINE Motion in(const Turn& frame) const { return {frame.apply(linear), frame.apply(angular)}; }
  KERNEL_INLINE Motion back(const Turn& frame) const { return {frame.back(linear), frame.back(angular)}; }
};

template <class T>
KERNEL_INLINE Motion<T> operator+(const Motion<T>& a, const Motion<T>& b) {
  return {a.linear + b.linear, a.angular + b.angular};
}
template <class T>
KERNEL_INLINE Motion<T> operator-(const Motion<T>& a, const Motion<T>& b) {
  return {a.linear - b.linear, a.angular - b.angular};
}
// Power of a wrench along a motion.
template <class S, class T>
KERNEL_INLINE auto dot(const Motion<S>& motion, const Motion<T>& wrench) -> decltype(motion.linear.x * wrench.linear.x) {
  return dot(motion.linear, wrench.linear) + dot(motion.angular, wrench.angular);
}
// Spatial cross product: the rate of the motion b, fixed in a body that moves with a.
template <class T>
KERNEL_INLINE Motion<T> cross(const Motion<T>& a, const Motion<T>& b) {
  return {cross(a.angular, b.linear) + cross(a.linear, b.angular), cross(a.angular, b.angular)};
}

// A joint and the body it moves.
struct Joint {
  int parent;         // body before it, -1 for the base
  int depth;          // number of joints between it and the base
  Turn turn;          // from the parent's frame to this one at position zero
  Vec<double> place;  // of its origin in the parent's frame at position zero [m]
  double spin;        // rotation about z per unit of its position, 1 or 0
  double pitch;       // translation along z per unit of its position [m/rad or 1]
  Turn own;           // from its frame to that of the parameters
};

// Joints 0..n-1, each after its parent.
struct Tree {
  std::vector<Joint> joints;
  std::vector<std::vector<int>> chains;  // joints that move each body, its own last
  Vec<double> gravity;                   // [m/s^2]

  int size() const { return int(joints.size()); }
};

// The position of a joint, as the motions of the bodies before and behind it need it.
template <class T>
struct Pose {
  T sine, cosine, slide;  // of its angle; its translation

  KERNEL_INLINE void set(const Joint& joint, const T& q) {
    if (joint.spin != 0.0)
      sine_and_cosine(joint.spin * q, sine, cosine);
    else
      sine = T(0.0), cosine = T(1.0);
    slide = joint.pitch * q;
  }
  // Turn about z, from before the joint to behind it.
  KERNEL_INLINE Vec<T> turn(const Vec<T>& v) const {
    return {cosine * v.x + sine * v.y, cosine * v.y - sine * v.x, v.z};
  }
  KERNEL_INLINE Vec<T> turn_back(const Vec<T>& v) const {
    return {cosine * v.x - sine * v.y, sine * v.x + cosine * v.y, v.z};
  }
  KERNEL_INLINE Vec<T> to_child(const Joint& joint, const Vec<T>& v) const { return turn(joint.turn.apply(v)); }
  KERNEL_INLINE Vec<T> to_parent(const Joint& joint, const Vec<T>& v) const { return joint.turn.back(turn_back(v)); }
  // The motion of the child's origin if it moved with the parent.
  KERNEL_INLINE Motion<T> to_child(const Joint& joint, const Motion<T>& m) const {
    Motion<T> result{to_child(joint, m.linear + cross(m.angular, joint.place)), to_child(joint, m.angular)};
    if (joint.pitch != 0.0) {
      result.linear.x += slide * result.angular.y;
      result.linear.y -= slide * result.angular.x;
    }
    return result;
  }
};

// A frame of a body in the base: its axes and its origin.
template <class T>
struct Frame {
  Vec<T> x, y, z, origin;

  static Frame base() {
    return {constant<T>(1, 0, 0), constant<T>(0, 1, 0), constant<T>(0, 0, 1), constant<T>(0, 0, 0)};
  }
  KERNEL_INLINE Vec<T> out(const Vec<double>& v) const { return v.x * x + v.y * y + v.z * z; }

  // That of the body behind a joint.
  KERNEL_INLINE Frame behind(const Joint& joint, const Pose<T>& pose) const {
    const double* r = joint.turn.r;
    const Vec<T> first = out({r[0], r[1], r[2]}), second = out({r[3], r[4], r[5]}), axis = out({r[6], r[7], r[8]});
    return {pose.cosine * first + pose.sine * second, pose.cosine * second - pose.sine * first, axis,
            origin + out(joint.place) + pose.slide * axis};
  }
};

template <class T>
KERNEL_INLINE Motion<T> own_motion(const Joint& joint) {
  return {constant<T>(0.0, 0.0, joint.pitch), constant<T>(0.0, 0.0, joint.spin)};
}

}  // namespace kernel
