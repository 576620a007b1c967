// The algorithms along a path, enclosed over pieces of time (Taylor models); as many pieces at a time as T has lanes.
//
// A path is given by polynomials in u in [-1, 1], (7, n, pieces): coefficients of u^0 to u^5, then the largest deviation
// from them. Results are parabolas, (4, ..., pieces): within r[0] + r[1] u + r[2] u^2 +- r[3].
#pragma once

#include "samples.hpp"

namespace kernel {

constexpr int kPolynomial = 7;

template <class T>
KERNEL_INLINE T read_lanes(const double* data, long first, long pieces) {
  T result;
  for (int lane = 0; lane < kLanes<T>; ++lane) set_lane(result, lane, data[std::min(first + lane, pieces - 1)]);
  return result;
}

// A polynomial of joint j.
template <class T>
KERNEL_INLINE void read_polynomial(const double* data, int n, int j, long first, long pieces, T* out) {
  for (int k = 0; k < kPolynomial; ++k) out[k] = read_lanes<T>(data + (k * n + j) * pieces, first, pieces);
}

template <class T>
KERNEL_INLINE Taylor<T> to_taylor(const T* a) {
  Taylor<T> r;
  for (int k = 0; k <= Taylor<T>::kOrder; ++k) r.c[k] = a[k];
  r.rest = magnitude(a[4]) + magnitude(a[5]) + magnitude(a[6]);
  return r;
}

// Write the parabola of a Taylor model; its four parts are `stride` apart. u^3 is within 1/4 of 3/4 u.
template <class T>
KERNEL_INLINE void write_parabola(const Taylor<T>& x, double* out, long stride, long first, long pieces) {
  const T parts[] = {x.c[0], x.c[1] + 0.75 * x.c[3], x.c[2], x.rest + 0.25 * magnitude(x.c[3])};
  for (int part = 0; part < 4; ++part)
    for (int lane = 0; lane < kLanes<T> && first + lane < pieces; ++lane)
      out[part * stride + first + lane] = get_lane(parts[part], lane);
}

template <class T>
KERNEL_INLINE void set_pose(const Joint& joint, const T* position, Pose<Taylor<T>>& pose) {
  T angle[kPolynomial];
  for (int k = 0; k < kPolynomial; ++k) angle[k] = joint.spin * position[k];
  sine_and_cosine_along(angle, pose.sine, pose.cosine);
  pose.slide = joint.pitch * to_taylor(position);
}

// Blocks of the torque regressor of gravity, of M a + c and of M v for all pairs of a joint and a body that it moves,
// joint by joint, out: (3, 4, pairs, 10, pieces).
template <class T>
inline void torque_along(const Tree& tree, long pieces, const double* position, const double* velocity,
                         const double* acceleration, double* out) {
  typedef Taylor<T> Number;
  const int n = tree.size();
  std::vector<int> pair(n * n, -1);
  int pairs = 0;
  for (int j = 0; j < n; ++j)
    for (int i = j; i < n; ++i)
      for (int k : tree.chains[i])
        if (k == j) pair[j * n + i] = pairs++;
  Bodies<Number> bodies(tree, n);
  std::vector<Number> v(n), a(n), zero(n, Number(0.0));
  const long stride = pairs * long(kInertial) * pieces;
  for (long first = 0; first < pieces; first += kLanes<T>) {
    T polynomial[kPolynomial];
    bodies.place_by([&](const Joint& joint, int i, Pose<Number>& pose) {
      read_polynomial(position, n, i, first, pieces, polynomial);
      set_pose(joint, polynomial, pose);
    });
    for (int i = 0; i < n; ++i) {
      read_polynomial(velocity, n, i, first, pieces, polynomial);
      v[i] = to_taylor(polynomial);
      read_polynomial(acceleration, n, i, first, pieces, polynomial);
      a[i] = to_taylor(polynomial);
    }
    for (int part = 0; part < 3; ++part) {
      bodies.accelerate(part == 1 ? &v[0] : &zero[0], part == 0 ? &zero[0] : part == 1 ? &a[0] : &v[0],
                        part == 0 ? 1.0 : 0.0);
      for (int i = 0; i < n; ++i)
        bodies.torque_blocks(i, [&](int j, const Number* block) {
          double* to = out + 4 * part * stride + pair[j * n + i] * long(kInertial) * pieces;
          for (int k = 0; k < kInertial; ++k) write_parabola(block[k], to + k * pieces, stride, first, pieces);
        });
    }
  }
}

// Points of bodies (0 is the base) in the base, (4, points, 3, pieces), and in the middle of the pieces the axes of the
// joints and the origins of the bodies, (n, 3, pieces) each.
template <class T>
inline void points_along(const Tree& tree, long pieces, const double* position, const std::vector<int>& bodies,
                         const double* local, double* points, double* axes, double* origins) {
  typedef Taylor<T> Number;
  const int n = tree.size(), count = int(bodies.size());
  std::vector<Frame<Number>> placed(n + 1, Frame<Number>::base());
  const auto write_middle = [&](const Vec<Number>& v, double* out, long first) {
    const Number* components[] = {&v.x, &v.y, &v.z};
    for (int k = 0; k < 3; ++k)
      for (int lane = 0; lane < kLanes<T> && first + lane < pieces; ++lane)
        out[k * pieces + first + lane] = get_lane(components[k]->c[0], lane);
  };
  for (long first = 0; first < pieces; first += kLanes<T>) {
    for (int i = 0; i < n; ++i) {
      T polynomial[kPolynomial];
      Pose<Number> pose;
      read_polynomial(position, n, i, first, pieces, polynomial);
      set_pose(tree.joints[i], polynomial, pose);
      placed[i + 1] = placed[tree.joints[i].parent + 1].behind(tree.joints[i], pose);
      write_middle(placed[i + 1].z, axes + 3 * i * pieces, first);
      write_middle(placed[i + 1].origin, origins + 3 * i * pieces, first);
    }
    for (int p = 0; p < count; ++p) {
      const Vec<double> own{local[3 * p], local[3 * p + 1], local[3 * p + 2]};
      const Frame<Number>& frame = placed[bodies[p]];
      const Vec<double> turned = bodies[p] > 0 ? tree.joints[bodies[p] - 1].own.back(own) : own;
      const Vec<Number> at = frame.origin + frame.out(turned);
      const Number* components[] = {&at.x, &at.y, &at.z};
      for (int k = 0; k < 3; ++k)
        write_parabola(*components[k], points + (3 * p + k) * pieces, 3L * count * pieces, first, pieces);
    }
  }
}

}  // namespace kernel
