// The regressors of torque and momentum, and the reverse derivative of the former, written once for all number types.
//
// With mass m, first moment c and inertia I about the origin of its frame, a body that moves with acceleration d of its
// origin (gravity taken off), angular velocity w and angular acceleration u has the wrench
//   force = m d + A c,  moment = c x d + I u + w x I w,  with A c = u x c + w x (w x c);
// one that moves with the motion (v, w) has the momentum
//   linear = m v + w x c,  angular = c x v + I w.
// Their products with the motions of the joints, column by column of (m, c, I), are the blocks of the regressors.
#pragma once

#include "tree.hpp"

namespace kernel {

constexpr int kInertial = 10;  // parameters of a body: m, c, then xx, xy, yy, xz, yz, zz of I

// I x for the six parameters of I.
template <class S, class T>
KERNEL_INLINE auto times_inertia(const S* p, const Vec<T>& x) -> Vec<decltype(p[0] * x.x)> {
  return {p[0] * x.x + p[1] * x.y + p[3] * x.z, p[1] * x.x + p[2] * x.y + p[4] * x.z,
          p[3] * x.x + p[4] * x.y + p[5] * x.z};
}

// a . I x, a column for each parameter of I.
template <class T>
KERNEL_INLINE void inertia_columns(const Vec<T>& a, const Vec<T>& x, T* out) {
  out[0] = a.x * x.x;
  out[1] = a.x * x.y + a.y * x.x;
  out[2] = a.y * x.y;
  out[3] = a.x * x.z + a.z * x.x;
  out[4] = a.y * x.z + a.z * x.y;
  out[5] = a.z * x.z;
}

template <class T>
KERNEL_INLINE void store(const Vec<T>& v, T* out) {
  out[0] = v.x, out[1] = v.y, out[2] = v.z;
}

// The momentum of a body with parameters p.
template <class S, class T>
KERNEL_INLINE auto body_momentum(const S* p, const Motion<T>& motion) -> Motion<decltype(p[0] * motion.linear.x)> {
  const Vec<S> c{p[1], p[2], p[3]};
  return {p[0] * motion.linear + cross(motion.angular, c),
          cross(c, motion.linear) + times_inertia(p + 4, motion.angular)};
}

// How a body moves, for the equation of motion: its angular velocity w, and its acceleration (d, u).
template <class T>
struct Acceleration {
  Vec<T> w, d, u;

  static Acceleration of_base(const Tree& tree, double gravity) {
    const Vec<T> zero = constant<T>(0.0, 0.0, 0.0);
    const Vec<double> up = -gravity * tree.gravity;
    return {zero, constant<T>(up.x, up.y, up.z), zero};
  }

  // That of the body behind a joint with velocity v and acceleration a.
  KERNEL_INLINE Acceleration behind(const Joint& joint, const Pose<T>& pose, const T& v, const T& a) const {
    Acceleration r{pose.to_child(joint, w),
                   pose.to_child(joint, d + cross(u, joint.place) + cross(w, cross(w, joint.place))),
                   pose.to_child(joint, u)};
    if (joint.pitch != 0.0) {  // slide along z: u x r + w x (w x r) + 2 w x r' + r''
      const T speed = 2.0 * joint.pitch * v;
      r.d.x += pose.slide * (r.u.y + r.w.x * r.w.z) + speed * r.w.y;
      r.d.y += pose.slide * (r.w.y * r.w.z - r.u.x) - speed * r.w.x;
      r.d.z += joint.pitch * a - pose.slide * (r.w.x * r.w.x + r.w.y * r.w.y);
    }
    if (joint.spin != 0.0) {
      const T speed = joint.spin * v;
      r.u.x += speed * r.w.y;
      r.u.y -= speed * r.w.x;
      r.u.z += joint.spin * a;
      r.w.z += speed;
    }
    return r;
  }

  KERNEL_INLINE Acceleration in(const Turn& frame) const { return {frame.apply(w), frame.apply(d), frame.apply(u)}; }
  KERNEL_INLINE Acceleration back(const Turn& frame) const { return {frame.back(w), frame.back(d), frame.back(u)}; }

  // The wrench of a body with parameters p.
  template <class S>
  KERNEL_INLINE Motion<T> wrench(const S* p) const {
    const Vec<S> c{p[1], p[2], p[3]};
    return {p[0] * d + cross(u, c) + cross(w, cross(w, c)),
            cross(c, d) + times_inertia(p + 4, u) + cross(w, times_inertia(p + 4, w))};
  }

  // s . wrench, a column for each parameter: of the torque of a joint with the motion s.
  KERNEL_INLINE void columns(const Motion<T>& s, T* out) const {
    const Vec<T>&l = s.linear, &a = s.angular;
    out[0] = dot(l, d);
    // l . (u x c + w x (w x c)) + a . (c x d) = c . (l x u + w (l . w) - l (w . w) + d x a)
    store(cross(l, u) + dot(l, w) * w - dot(w, w) * l + cross(d, a), out + 1);
    T turning[6];
    inertia_columns(a, u, out + 4);
    inertia_columns(cross(a, w), w, turning);  // a . (w x I w) = (a x w) . I w
    for (int k = 0; k < 6; ++k) out[4 + k] += turning[k];
  }

  // Add to `by` the derivative of g . columns(s), by w, d and u.
  KERNEL_INLINE void pull_back(const Motion<T>& s, const T* g, Acceleration& by) const {
    const Vec<T>&l = s.linear, &a = s.angular, c{g[1], g[2], g[3]};
    const Vec<T> turned = cross(a, w);
    by.d += g[0] * l + cross(a, c);
    by.u += cross(c, l) + times_inertia(g + 4, a);
    by.w += dot(w, c) * l + dot(l, w) * c - T(2.0) * dot(l, c) * w + cross(times_inertia(g + 4, w), a) +
            times_inertia(g + 4, turned);
  }
};

// How a body moves, for the momentum: its twist, and gravity in its frame.
template <class T>
struct Twist {
  Motion<T> motion;
  Vec<T> gravity;

  static Twist of_base(const Tree& tree) {
    const Vec<T> zero = constant<T>(0.0, 0.0, 0.0);
    return {{zero, zero}, constant<T>(tree.gravity.x, tree.gravity.y, tree.gravity.z)};
  }

  KERNEL_INLINE Twist behind(const Joint& joint, const Pose<T>& pose, const T& v) const {
    Twist r{pose.to_child(joint, motion), pose.to_child(joint, gravity)};
    r.motion.linear.z += joint.pitch * v;
    r.motion.angular.z += joint.spin * v;
    return r;
  }

  KERNEL_INLINE Twist in(const Turn& frame) const { return {motion.in(frame), frame.apply(gravity)}; }

  // The weight of a body with parameters p.
  KERNEL_INLINE Motion<T> weight(const double* p) const {
    return {p[0] * gravity, cross(Vec<double>{p[1], p[2], p[3]}, gravity)};
  }

  // s . momentum, a column for each parameter.
  KERNEL_INLINE void columns(const Motion<T>& s, T* out) const {
    const Vec<T>&v = motion.linear, &w = motion.angular;
    out[0] = dot(s.linear, v);
    store(cross(s.linear, w) + cross(v, s.angular), out + 1);
    inertia_columns(s.angular, w, out + 4);
  }

  // rate . momentum + s . weight: dT/dq - g of a joint whose motion s changes with `rate`.
  KERNEL_INLINE void force_columns(const Motion<T>& s, const Motion<T>& rate, T* out) const {
    columns(rate, out);
    out[0] += dot(s.linear, gravity);
    T weight[3];
    store(cross(gravity, s.angular), weight);
    for (int k = 0; k < 3; ++k) out[1 + k] += weight[k];
  }
};

// The bodies of a tree at one sample, or at as many as T has lanes. Only the first `count` are placed and moved.
template <class T>
class Bodies {
 public:
  Bodies(const Tree& tree, int count)
      : tree_(tree),
        n_(tree.size()),
        count_(count),
        poses_(n_),
        axes_(n_ * n_) {}

  KERNEL_INLINE void place(const T* q) {
    place_by([&](const Joint& joint, int i, Pose<T>& pose) { pose.set(joint, q[i]); });
  }

  // set(joint, i, pose) sets the pose of joint i.
  template <class Set>
  KERNEL_INLINE void place_by(Set set) {
    for (int i = 0; i < count_; ++i) {
      const Joint& joint = tree_.joints[i];
      set(joint, i, poses_[i]);
      for (int k = 0; k < joint.depth; ++k)
        axes_[i * n_ + k] = poses_[i].to_child(joint, axes_[joint.parent * n_ + k]);
      axes_[i * n_ + joint.depth] = own_motion<T>(joint);
    }
  }

  KERNEL_INLINE void place_as(const Bodies& other) { poses_ = other.poses_, axes_ = other.axes_; }

  // The motion of joint chains[i][k] per unit of its velocity, as seen from body i in the frame of its parameters.
  KERNEL_INLINE Motion<T> motion(int i, int k) const { return own(i, axes_[i * n_ + k]); }

  // The accelerations of the bodies, in `gravity` times the gravity.
  KERNEL_INLINE void accelerate(const T* v, const T* a, double gravity) {
    accelerations_.resize(n_);
    const Acceleration<T> base = Acceleration<T>::of_base(tree_, gravity);
    for (int i = 0; i < count_; ++i) {
      const Joint& joint = tree_.joints[i];
      const Acceleration<T>& before = joint.parent < 0 ? base : accelerations_[joint.parent];
      accelerations_[i] = before.behind(joint, poses_[i], v[i], a[i]);
    }
  }

  // The twists of the bodies, and the rates of the axes.
  KERNEL_INLINE void move(const T* v) {
    twists_.resize(n_);
    rates_.resize(n_ * n_);
    const Twist<T> base = Twist<T>::of_base(tree_);
    for (int i = 0; i < count_; ++i) {
      const Joint& joint = tree_.joints[i];
      twists_[i] = (joint.parent < 0 ? base : twists_[joint.parent]).behind(joint, poses_[i], v[i]);
      for (int k = 0; k < joint.depth; ++k)
        rates_[i * n_ + k] = poses_[i].to_child(joint, rates_[joint.parent * n_ + k]);
      rates_[i * n_ + joint.depth] = cross(twists_[i].motion, own_motion<T>(joint));
    }
  }

  // Call emit(j, columns) with the block of the torque regressor of body i for each joint j that moves it.
  template <class Emit>
  KERNEL_INLINE void torque_blocks(int i, Emit emit) const {
    const Acceleration<T> here = own(i, accelerations_[i]);
    T block[kInertial];
    for (int k = 0; k <= tree_.joints[i].depth; ++k) {
      here.columns(motion(i, k), block);
      emit(tree_.chains[i][k], block);
    }
  }

  // The same, less the blocks of the same bodies with other accelerations.
  template <class Emit>
  KERNEL_INLINE void torque_difference(const Bodies& other, int i, Emit emit) const {
    const Acceleration<T> here = own(i, accelerations_[i]), there = own(i, other.accelerations_[i]);
    T block[kInertial], less[kInertial];
    for (int k = 0; k <= tree_.joints[i].depth; ++k) {
      const Motion<T> axis = motion(i, k);
      here.columns(axis, block);
      there.columns(axis, less);
      for (int c = 0; c < kInertial; ++c) block[c] -= less[c];
      emit(tree_.chains[i][k], block);
    }
  }

  // Add to tau what a body with parameters p needs of each joint, the products of its wrench and the axes, less what
  // the same body needs with other accelerations.
  KERNEL_INLINE void add_torque_difference(const Bodies& other, int i, const double* p, T* tau) const {
    const Turn& turn = tree_.joints[i].own;
    Motion<T> wrench = own(i, accelerations_[i]).wrench(p) - own(i, other.accelerations_[i]).wrench(p);
    if (!turn.is_identity) wrench = wrench.back(turn);
    for (int k = 0; k <= tree_.joints[i].depth; ++k) tau[tree_.chains[i][k]] += dot(axes_[i * n_ + k], wrench);
  }

  // Add to p and c the momentum of a body with parameters `body`, and the rate of the momentum without torques.
  KERNEL_INLINE void add_momentum(int i, const double* body, T* p, T* c) const {
    const Turn& turn = tree_.joints[i].own;
    Motion<T> momentum = body_momentum(body, own(i, twists_[i]).motion), weight = own(i, twists_[i]).weight(body);
    if (!turn.is_identity) momentum = momentum.back(turn), weight = weight.back(turn);
    for (int k = 0; k <= tree_.joints[i].depth; ++k) {
      const Motion<T>& axis = axes_[i * n_ + k];
      p[tree_.chains[i][k]] += dot(axis, momentum);
      c[tree_.chains[i][k]] += dot(rates_[i * n_ + k], momentum) + dot(axis, weight);
    }
  }

  // Likewise emit(j, columns of W_m, columns of W_c).
  template <class Emit>
  KERNEL_INLINE void momentum_blocks(int i, Emit emit) const {
    const Twist<T> here = own(i, twists_[i]);
    T momentum[kInertial], force[kInertial];
    for (int k = 0; k <= tree_.joints[i].depth; ++k) {
      const Motion<T> axis = motion(i, k);
      here.columns(axis, momentum);
      here.force_columns(axis, own(i, rates_[i * n_ + k]), force);
      emit(tree_.chains[i][k], momentum, force);
    }
  }

 protected:
  // The same in the frame of the body's parameters.
  template <class Vectors>
  KERNEL_INLINE Vectors own(int i, const Vectors& vectors) const {
    const Turn& turn = tree_.joints[i].own;
    return turn.is_identity ? vectors : vectors.in(turn);
  }

  const Tree& tree_;
  int n_, count_;
  std::vector<Pose<T>> poses_;
  // Motion of each joint per unit of its velocity, as seen from body i: that of joint chains[i][k] is at i * n + k.
  std::vector<Motion<T>> axes_;
  std::vector<Motion<T>> rates_;  // their rates V_j x s_j, likewise
  std::vector<Acceleration<T>> accelerations_;
  std::vector<Twist<T>> twists_;
};

// Derivatives of sum(weight . torque regressor) by positions, velocities and accelerations: the recursion of
// Bodies::accelerate from the last body back to the base.
template <class T>
class ReverseBodies : public Bodies<T> {
 public:
  ReverseBodies(const Tree& tree, int count) : Bodies<T>(tree, count), by_(n_), by_axes_(n_ * n_) {}

  // weight(i, j, g) writes the weights of block (j, i) into g, or returns false where they are zero.
  // slopes: by q, v and a, (3, n).
  template <class Weight>
  KERNEL_INLINE void pull_back(Weight weight, const T* v, T* slopes) {
    const Vec<T> zero = constant<T>(0.0, 0.0, 0.0);
    for (auto& by : by_) by = {zero, zero, zero};
    for (auto& by : by_axes_) by = {zero, zero};
    for (int i = count_ - 1; i >= 0; --i) {
      add_blocks(i, weight);
      pass_back(i, v[i], slopes[i], slopes[n_ + i], slopes[2 * n_ + i]);
    }
  }

 private:
  using Bodies<T>::tree_;
  using Bodies<T>::n_;
  using Bodies<T>::count_;
  using Bodies<T>::poses_;
  using Bodies<T>::axes_;
  using Bodies<T>::accelerations_;

  template <class Weight>
  KERNEL_INLINE void add_blocks(int i, Weight weight) {
    const Turn& turn = tree_.joints[i].own;
    const Acceleration<T> here = this->own(i, accelerations_[i]);
    Acceleration<T> by = this->own(i, by_[i]);
    T g[kInertial]{};
    for (int k = 0; k <= tree_.joints[i].depth; ++k) {
      if (!weight(i, tree_.chains[i][k], g)) continue;
      here.pull_back(this->own(i, axes_[i * n_ + k]), g, by);
      const Motion<T> wrench = here.wrench(g);
      by_axes_[i * n_ + k] = by_axes_[i * n_ + k] + (turn.is_identity ? wrench : wrench.back(turn));
    }
    by_[i] = turn.is_identity ? by : by.back(turn);
  }

  KERNEL_INLINE void pass_back(int i, const T& v, T& by_q, T& by_v, T& by_a) {
    const Joint& joint = tree_.joints[i];
    const Pose<T>& pose = poses_[i];
    const Acceleration<T>& here = accelerations_[i];
    Acceleration<T> by = by_[i];
    const T speed = joint.spin * v;
    const Vec<T> w{here.w.x, here.w.y, here.w.z - speed};            // before the joint, in the axes behind it
    const Vec<T> u{here.u.x - speed * w.y, here.u.y + speed * w.x, here.u.z};  // likewise, but for z
    by_v = joint.spin * (by.w.z + by.u.x * w.y - by.u.y * w.x);
    by_a = joint.spin * by.u.z + joint.pitch * by.d.z;
    // Everything behind the joint turns with it.
    T slid = T(0.0), turned = turning(by.d, here.d) + turning(by.u, here.u) + turning(by.w, here.w);
    Motion<T>* by_axes = &by_axes_[i * n_];
    for (int k = 0; k < joint.depth; ++k) {
      const Motion<T>& axis = axes_[i * n_ + k];
      turned += turning(by_axes[k].linear, axis.linear) + turning(by_axes[k].angular, axis.angular);
    }
    by.w.y += speed * by.u.x;
    by.w.x -= speed * by.u.y;
    if (joint.pitch != 0.0) {
      const T &e = pose.slide, twice = 2.0 * joint.pitch * v;
      slid = by.d.x * (u.y + w.x * w.z) + by.d.y * (w.y * w.z - u.x) - by.d.z * (w.x * w.x + w.y * w.y);
      by_v += 2.0 * joint.pitch * (by.d.x * w.y - by.d.y * w.x);
      by.u.y += e * by.d.x;
      by.u.x -= e * by.d.y;
      by.w.x += e * (by.d.x * w.z - T(2.0) * by.d.z * w.x) - twice * by.d.y;
      by.w.y += e * (by.d.y * w.z - T(2.0) * by.d.z * w.y) + twice * by.d.x;
      by.w.z += e * (by.d.x * w.x + by.d.y * w.y);
      for (int k = 0; k < joint.depth; ++k) {
        const Vec<T>& a = axes_[i * n_ + k].angular;
        slid += by_axes[k].linear.x * a.y - by_axes[k].linear.y * a.x;
        by_axes[k].angular.y += e * by_axes[k].linear.x;
        by_axes[k].angular.x -= e * by_axes[k].linear.y;
      }
    }
    by_q = joint.spin * turned + joint.pitch * slid;
    if (joint.parent < 0) return;
    const Vec<double>& p = joint.place;
    const Vec<T>& w0 = accelerations_[joint.parent].w;
    Acceleration<T>& before = by_[joint.parent];
    const Vec<T> x = pose.to_parent(joint, by.d);
    before.d += x;
    before.u += pose.to_parent(joint, by.u) + cross(p, x);
    // x . (w (w . p) - p (w . w)), by w
    before.w += pose.to_parent(joint, by.w) + dot(w0, p) * x + dot(x, w0) * p - T(2.0) * dot(x, p) * w0;
    for (int k = 0; k < joint.depth; ++k) {
      const Vec<T> linear = pose.to_parent(joint, by_axes[k].linear);
      Motion<T>& sum = by_axes_[joint.parent * n_ + k];
      sum.linear += linear;
      sum.angular += pose.to_parent(joint, by_axes[k].angular) + cross(p, linear);
    }
  }

  // by . dx for the rate of x as the axes turn about z.
  static KERNEL_INLINE T turning(const Vec<T>& by, const Vec<T>& x) { return by.x * x.y - by.y * x.x; }

  std::vector<Acceleration<T>> by_;
  std::vector<Motion<T>> by_axes_;
};

}  // namespace kernel
