// The algorithms for many samples: rows of joint values in, rows of regressors out, as many samples at a time as the
// number type T has lanes.
#pragma once

#include <algorithm>
#include <vector>

#include "dynamics.hpp"

namespace kernel {

// Which columns a regressor has: ten for each chosen body and, where its rows are wide enough, (F_c, F_v, I_a, beta) of
// each joint, zero if friction or armature is not in the efforts.
struct Columns {
  std::vector<int> bodies;  // counted from 0, in the order of the columns
  int joints;
  bool has_friction, has_armature;

  int inertial() const { return kInertial * int(bodies.size()); }
  int total() const { return inertial() + 4 * joints; }
  int count() const { return 1 + *std::max_element(bodies.begin(), bodies.end()); }  // bodies to be placed
};

// Joint values of the samples first.. of `rows`, (samples, n); beyond the last one it again.
template <class T>
inline void gather(const double* rows, long first, long samples, int n, T* out) {
  for (int lane = 0; lane < kLanes<T>; ++lane) {
    const double* row = rows + std::min(first + lane, samples - 1) * n;
    for (int j = 0; j < n; ++j) set_lane(out[j], lane, row[j]);
  }
}

// The rows of a regressor that belong to the samples first.., (samples, n, width).
template <class T>
struct Rows {
  double* data;
  const Columns& columns;
  int width;
  long first, samples;

  int lanes() const { return int(std::min<long>(kLanes<T>, samples - first)); }
  double* row(int lane, int joint) const { return data + ((first + lane) * columns.joints + joint) * long(width); }

  // Zero everything but friction and armature: each is `sign` times its rows, (samples, n), or zero without any.
  void begin(const double* coulomb, const double* viscous, const double* armature, double offset, double sign) const {
    const int n = columns.joints;
    std::fill(row(0, 0), row(lanes(), 0), 0.0);
    if (!columns.has_friction || width == columns.inertial()) return;
    for (int lane = 0; lane < lanes(); ++lane)
      for (int j = 0; j < n; ++j) {
        const long at = (first + lane) * n + j;
        double* friction = row(lane, j) + columns.inertial() + 4 * j;
        if (coulomb) friction[0] = sign * coulomb[at];
        if (viscous) friction[1] = sign * viscous[at];
        if (armature && columns.has_armature) friction[2] = sign * armature[at];
        friction[3] = offset;
      }
  }

  KERNEL_INLINE void write(const T* block, int joint, int column) const {
    for (int lane = 0; lane < lanes(); ++lane) {
      double* out = row(lane, joint) + column;
      for (int k = 0; k < kInertial; ++k) out[k] = get_lane(block[k], lane);
    }
  }
};

// W theta = H a + C v + g + F_c direction + F_v v + I_a a + beta, out: (samples, n, width).
template <class T>
inline void torque_regressor(const Tree& tree, const Columns& columns, long samples, const double* q, const double* v,
                             const double* a, const double* direction, double* out, int width) {
  const int n = tree.size();
  Bodies<T> bodies(tree, columns.count());
  std::vector<T> at(3 * n);
  for (long s = 0; s < samples; s += kLanes<T>) {
    gather(q, s, samples, n, &at[0]);
    gather(v, s, samples, n, &at[n]);
    gather(a, s, samples, n, &at[2 * n]);
    bodies.place(&at[0]);
    bodies.accelerate(&at[n], &at[2 * n], 1.0);
    const Rows<T> rows{out, columns, width, s, samples};
    rows.begin(direction, v, a, 1.0, 1.0);
    for (int b = 0; b < int(columns.bodies.size()); ++b)
      bodies.torque_blocks(columns.bodies[b], [&](int j, const T* block) { rows.write(block, j, kInertial * b); });
  }
}

// Derivatives of sum(weight * W) by q, v and a, without Coulomb friction, slopes: (3, samples, n).
template <class T>
inline void torque_pull_back(const Tree& tree, const Columns& columns, long samples, const double* q, const double* v,
                             const double* a, const double* weight, int width, double* slopes) {
  const int n = tree.size();
  const bool is_wide = width != columns.inertial(), is_felt[3] = {false, is_wide && columns.has_friction,
                                                                  is_wide && columns.has_armature};
  ReverseBodies<T> bodies(tree, columns.count());
  std::vector<int> column(n, -1);
  for (int b = 0; b < int(columns.bodies.size()); ++b) column[columns.bodies[b]] = kInertial * b;
  std::vector<T> at(3 * n), by(3 * n, T(0.0));
  for (long s = 0; s < samples; s += kLanes<T>) {
    gather(q, s, samples, n, &at[0]);
    gather(v, s, samples, n, &at[n]);
    gather(a, s, samples, n, &at[2 * n]);
    bodies.place(&at[0]);
    bodies.accelerate(&at[n], &at[2 * n], 1.0);
    bodies.pull_back(
        [&](int i, int j, T* g) {
          if (column[i] < 0) return false;
          bool has_any = false;
          for (int lane = 0; lane < kLanes<T>; ++lane) {
            const double* row = weight + (std::min(s + lane, samples - 1) * n + j) * long(width) + column[i];
            for (int k = 0; k < kInertial; ++k) {
              set_lane(g[k], lane, row[k]);
              has_any = has_any || row[k] != 0.0;
            }
          }
          return has_any;
        },
        &at[n], &by[0]);
    const int lanes = int(std::min<long>(kLanes<T>, samples - s));
    for (int lane = 0; lane < lanes; ++lane)
      for (int j = 0; j < n; ++j) {
        const double* friction = weight + ((s + lane) * n + j) * long(width) + columns.inertial() + 4 * j;
        for (int part = 0; part < 3; ++part)
          slopes[(part * samples + s + lane) * n + j] =
              get_lane(by[part * n + j], lane) + (is_felt[part] ? friction[part] : 0.0);
      }
  }
}

// Bodies whose difference of torques is H a + C(q, v) v_a + g with the Christoffel C. The torque is quadratic in the
// velocity, so by polarisation C v_a is its difference between the velocities (v + v_a) / 2 and (v - v_a) / 2.
template <class T>
struct Polarised {
  Bodies<T> plus, minus;

  Polarised(const Tree& tree, int count)
      : plus(tree, count), minus(tree, count), n_(tree.size()), at_(4 * n_), speed_(2 * n_), acceleration_(2 * n_) {}

  void set(const double* q, const double* v, const double* v_a, const double* a, long first, long samples) {
    const double* rows[] = {q, v, v_a, a};
    for (int k = 0; k < 4; ++k) gather(rows[k], first, samples, n_, &at_[k * n_]);
    for (int j = 0; j < n_; ++j) {
      speed_[j] = 0.5 * (at_[n_ + j] + at_[2 * n_ + j]);
      speed_[n_ + j] = 0.5 * (at_[n_ + j] - at_[2 * n_ + j]);
      acceleration_[j] = 0.5 * at_[3 * n_ + j];
      acceleration_[n_ + j] = -acceleration_[j];
    }
    plus.place(&at_[0]);
    minus.place_as(plus);
    plus.accelerate(&speed_[0], &acceleration_[0], 0.5);
    minus.accelerate(&speed_[n_], &acceleration_[n_], -0.5);
  }

 private:
  int n_;
  std::vector<T> at_, speed_, acceleration_;
};

// The regressor of that torque, and friction at v_a.
template <class T>
inline void slotine_li_regressor(const Tree& tree, const Columns& columns, long samples, const double* q,
                                 const double* v, const double* v_a, const double* a_a, const double* direction,
                                 double* out, int width) {
  Polarised<T> bodies(tree, columns.count());
  for (long s = 0; s < samples; s += kLanes<T>) {
    bodies.set(q, v, v_a, a_a, s, samples);
    const Rows<T> rows{out, columns, width, s, samples};
    rows.begin(direction, v_a, a_a, 1.0, 1.0);
    for (int b = 0; b < int(columns.bodies.size()); ++b)
      bodies.plus.torque_difference(bodies.minus, columns.bodies[b],
                                    [&](int j, const T* block) { rows.write(block, j, kInertial * b); });
  }
}

// Joint values of the samples first.. into `rows`, (samples, n).
template <class T>
inline void scatter(const T* values, double* rows, long first, long samples, int n) {
  for (int lane = 0; lane < kLanes<T> && first + lane < samples; ++lane)
    for (int j = 0; j < n; ++j) rows[(first + lane) * n + j] = get_lane(values[j], lane);
}

// That torque of bodies with given parameters, (n, 10); out: (samples, n).
template <class T>
inline void passive_torque(const Tree& tree, const double* parameters, long samples, const double* q, const double* v,
                           const double* v_a, const double* a, double* out) {
  const int n = tree.size();
  Polarised<T> bodies(tree, n);
  std::vector<T> tau(n);
  for (long s = 0; s < samples; s += kLanes<T>) {
    bodies.set(q, v, v_a, a, s, samples);
    std::fill(tau.begin(), tau.end(), T(0.0));
    for (int i = 0; i < n; ++i) bodies.plus.add_torque_difference(bodies.minus, i, parameters + kInertial * i, &tau[0]);
    scatter(&tau[0], out, s, samples, n);
  }
}

// Momentum H v and C^T v - g of bodies with given parameters, (n, 10); out: (samples, n) each.
template <class T>
inline void momentum_of(const Tree& tree, const double* parameters, long samples, const double* q, const double* v,
                        double* momentum, double* force) {
  const int n = tree.size();
  Bodies<T> bodies(tree, n);
  std::vector<T> at(2 * n), p(n), c(n);
  for (long s = 0; s < samples; s += kLanes<T>) {
    gather(q, s, samples, n, &at[0]);
    gather(v, s, samples, n, &at[n]);
    std::fill(p.begin(), p.end(), T(0.0));
    std::fill(c.begin(), c.end(), T(0.0));
    bodies.place(&at[0]);
    bodies.move(&at[n]);
    for (int i = 0; i < n; ++i) bodies.add_momentum(i, parameters + kInertial * i, &p[0], &c[0]);
    scatter(&p[0], momentum, s, samples, n);
    scatter(&c[0], force, s, samples, n);
  }
}

// p = W_m theta and dp/dt = W_c theta + tau.
template <class T>
inline void momentum_regressors(const Tree& tree, const Columns& columns, long samples, const double* q,
                                const double* v, const double* direction, double* momentum, double* force, int width) {
  const int n = tree.size();
  Bodies<T> bodies(tree, columns.count());
  std::vector<T> at(2 * n);
  for (long s = 0; s < samples; s += kLanes<T>) {
    gather(q, s, samples, n, &at[0]);
    gather(v, s, samples, n, &at[n]);
    bodies.place(&at[0]);
    bodies.move(&at[n]);
    const Rows<T> of_momentum{momentum, columns, width, s, samples}, of_force{force, columns, width, s, samples};
    of_momentum.begin(nullptr, nullptr, v, 0.0, 1.0);
    of_force.begin(direction, v, nullptr, -1.0, -1.0);
    for (int b = 0; b < int(columns.bodies.size()); ++b)
      bodies.momentum_blocks(columns.bodies[b], [&](int j, const T* first, const T* second) {
        of_momentum.write(first, j, kInertial * b);
        of_force.write(second, j, kInertial * b);
      });
  }
}

// sum_s weights_s W_c(q_s, v_s) without friction, out: (n, inertial columns).
template <class T>
inline void integrate_force(const Tree& tree, const Columns& columns, long samples, const double* q, const double* v,
                            const double* weights, double* out) {
  const int n = tree.size(), width = columns.inertial();
  Bodies<T> bodies(tree, columns.count());
  std::vector<T> at(2 * n), sums(n * width, T(0.0));
  for (long s = 0; s < samples; s += kLanes<T>) {
    gather(q, s, samples, n, &at[0]);
    gather(v, s, samples, n, &at[n]);
    T weight(0.0);
    for (int lane = 0; lane < kLanes<T> && s + lane < samples; ++lane) set_lane(weight, lane, weights[s + lane]);
    bodies.place(&at[0]);
    bodies.move(&at[n]);
    for (int b = 0; b < int(columns.bodies.size()); ++b)
      bodies.momentum_blocks(columns.bodies[b], [&](int j, const T*, const T* block) {
        T* sum = &sums[j * width + kInertial * b];
        for (int k = 0; k < kInertial; ++k) sum[k] += weight * block[k];
      });
  }
  for (int k = 0; k < n * width; ++k) {
    out[k] = 0.0;
    for (int lane = 0; lane < kLanes<T>; ++lane) out[k] += get_lane(sums[k], lane);
  }
}

// Inertial columns of both momentum regressors and their derivatives: (samples, n, 10 n) and (samples, n, 10 n, n), by
// q or v, the last axis the joint.
inline void momentum_derivatives(const Tree& tree, long samples, const double* q, const double* v, double* momentum,
                                 double* force, double* momentum_q, double* momentum_v, double* force_q,
                                 double* force_v) {
  constexpr int kVariables = 8;
  typedef Gradient<kVariables> Number;
  const int n = tree.size(), width = kInertial * n;
  const long entries = samples * n * width;
  for (double* values : {momentum, force}) std::fill(values, values + entries, 0.0);
  for (double* slopes : {momentum_q, momentum_v, force_q, force_v}) std::fill(slopes, slopes + entries * n, 0.0);
  Bodies<Number> bodies(tree, n);
  std::vector<Number> at(2 * n);
  for (long s = 0; s < samples; ++s)
    for (int by_velocity = 0; by_velocity < 2; ++by_velocity)
      for (int first = 0; first < n; first += kVariables) {
        const int variables = std::min(kVariables, n - first);
        for (int j = 0; j < n; ++j) at[j] = Number(q[s * n + j]), at[n + j] = Number(v[s * n + j]);
        for (int d = 0; d < variables; ++d) at[by_velocity * n + first + d].slope.value[d] = 1.0;
        bodies.place(&at[0]);
        bodies.move(&at[n]);
        double* by_momentum = by_velocity ? momentum_v : momentum_q;
        double* by_force = by_velocity ? force_v : force_q;
        for (int i = 0; i < n; ++i)
          bodies.momentum_blocks(i, [&](int j, const Number* of_momentum, const Number* of_force) {
            const long entry = (s * n + j) * width + kInertial * i;
            for (int k = 0; k < kInertial; ++k) {
              momentum[entry + k] = of_momentum[k].value;
              force[entry + k] = of_force[k].value;
              for (int d = 0; d < variables; ++d) {
                by_momentum[(entry + k) * n + first + d] = of_momentum[k].slope.value[d];
                by_force[(entry + k) * n + first + d] = of_force[k].slope.value[d];
              }
            }
          });
      }
}

// Poses of the bodies and motions of the joints in the base, the samples last: base components of the body axes
// (n, axis, 3, samples), origins (n, 3, samples), and motions per unit of velocity about the base origin
// (n, 6, samples).
template <class T>
inline void frames(const Tree& tree, long samples, const double* q, double* rotation, double* origin, double* motion) {
  const int n = tree.size();
  std::vector<T> at(n);
  std::vector<Frame<T>> placed(n);
  for (long s = 0; s < samples; s += kLanes<T>) {
    gather(q, s, samples, n, &at[0]);
    const auto write = [&](const Vec<T>& v, double* out) {
      for (int lane = 0; lane < kLanes<T> && s + lane < samples; ++lane) {
        out[s + lane] = get_lane(v.x, lane);
        out[samples + s + lane] = get_lane(v.y, lane);
        out[2 * samples + s + lane] = get_lane(v.z, lane);
      }
    };
    for (int i = 0; i < n; ++i) {
      const Joint& joint = tree.joints[i];
      Pose<T> pose;
      pose.set(joint, at[i]);
      placed[i] = (joint.parent < 0 ? Frame<T>::base() : placed[joint.parent]).behind(joint, pose);
      const Frame<T>& here = placed[i];
      for (int axis = 0; axis < 3; ++axis) {
        const double* row = joint.own.r + 3 * axis;  // the body's axis in the joint's frame
        write(row[0] * here.x + row[1] * here.y + row[2] * here.z, rotation + (3 * i + axis) * 3 * samples);
      }
      write(here.origin, origin + 3 * i * samples);
      write(joint.pitch * here.z + joint.spin * cross(here.origin, here.z), motion + 6 * i * samples);
      write(joint.spin * here.z, motion + (6 * i + 3) * samples);
    }
  }
}

}  // namespace kernel
