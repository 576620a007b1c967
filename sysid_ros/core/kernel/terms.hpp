// Norms of the terms of the error dynamics of a controlled arm at positions of a motion; what they are, and why they
// are needed, is in sysid_ros/core/tracking_bound/model_terms.py.
//
// With M = U U^T and F = U^-1, U with nothing below its diagonal, velocities x = F^T xi with |xi| <= 1 are those of norm
// one. Everything by parameter is computed in these coordinates, of which body i needs the first i + 1.
#pragma once

#include <array>
#include <vector>

#include "norms.hpp"
#include "samples.hpp"

namespace kernel {

// The parameters of an arm, (10 n) inertial ones and then n armatures, each (11 n).
struct KnownParameters {
  const double *nominal, *center, *spread;  // deviations from the nominal ones are center +- spread and a vertex
  std::vector<int> last;                    // those of the payload that vertices differ in
  Vertices vertices;                        // of the center and of `last`
};

// Of sum_l d_l X_l with |d_l| <= r_l: at most (sum_l r_l w_l |sum_l (r_l / w_l) X_l X_l^T|)^1/2, for any weights w. Those
// are the roots of the sums of squares of X_l.
template <int W>
class SpreadNorm {
 public:
  explicit SpreadNorm(int n) : n_(n), squares_(Matrix<W>::zero()), sum_(0.0) {}

  // X^T, of which the first m rows are not zero.
  void add(double radius, const Matrix<W>* x, int several, int m) {
    double size = 0.0;
    for (int k = 0; k < several; ++k) size += squares(m, x[k]);
    size = std::sqrt(size);
    if (radius == 0.0 || size == 0.0) return;
    sum_ += radius * size;
    for (int k = 0; k < several; ++k) add_product(n_, m, radius / size, x[k], x[k], squares_);
  }
  double bound() const { return std::sqrt(sum_ * std::max(0.0, largest_eigenvalue(n_, squares_))); }

 private:
  int n_;
  Matrix<W> squares_;
  double sum_;
};

template <int W>
class ModelTerms {
 public:
  static constexpr int kOfInertia = 8, kOfTorque = 3;

  ModelTerms(const Tree& tree, const KnownParameters& known)
      : tree_(tree),
        known_(known),
        n_(tree.size()),
        bodies_(tree, n_),
        moving_(tree, n_),
        ratios_(kInertial * n_ + n_),
        coriolis_(kInertial * n_ * n_),
        own_(n_),
        off_(n_),
        turned_(n_) {}

  const Matrix<W>& inertia() const { return inertia_; }

  // Everything that depends on the position alone.
  void place(const double* q) {
    bodies_.place(q);
    inertia_ = Matrix<W>::zero();
    for (int i = 0; i < n_; ++i) add_square(joint_motions(i), known_.nominal + kInertial * i, inertia_);
    for (int i = 0; i < n_; ++i) inertia_.set(i, i, inertia_.at(i, i) + known_.nominal[kInertial * n_ + i]);
    factorise();
    for (auto* sums : {&own_, &off_})
      for (auto& one : *sums) one = Matrix<W>::zero();
    for (int i = 0; i < n_; ++i) add_body(i);
    for (int i = 0; i < n_; ++i) {  // armatures
      Matrix<W>& ratio = ratios_[kInertial * n_ + i] = Matrix<W>::zero();
      for (int a = 0; a <= i; ++a) ratio.row[a] = factor_.at(a, i) * turned_factor_.row[i];
    }
    for (int x = 0; x < n_; ++x) {
      turned_[x] = own_[x];
      add(n_, 1.0, transposed(n_, own_[x]), turned_[x]);
    }
  }

  // Of the inertia at velocity v: slopes and rates of M, of E, of C_0, and of the drag.
  void of_inertia(const double* v, double* out) {
    double xi[W];
    for (int a = 0; a < n_; ++a) {
      xi[a] = 0.0;
      for (int j = 0; j <= a; ++j) xi[a] += root_.at(j, a) * v[j];
    }
    const Matrix<W> own = along(n_, &own_[0], xi), turned = along(n_, &turned_[0], xi);
    out[0] = slope(turned_);
    out[1] = norm(n_, turned);
    out[4] = slope(own_);
    out[5] = norm(n_, own);

    const int parts = known_.vertices.parts(), all = int(ratios_.size());
    std::vector<Matrix<W>> of[4];  // slope and rate of E, slope and rate of the drag, by part
    for (auto& one : of) one.reserve(parts * n_);
    const auto collect = [&](const Matrix<W>* coriolis, const Matrix<W>& ratio) {
      compute_deviation(coriolis, ratio, n_, turned, xi);
      for (int x = 0; x < n_; ++x) of[0].push_back(ratio_[x]), of[2].push_back(drag_[x]);
      of[1].push_back(ratio_now_), of[3].push_back(drag_now_);
    };
    Matrix<W> middle = Matrix<W>::zero();
    for (int l = 0; l < all; ++l)
      if (known_.center[l] != 0.0) add(n_, known_.center[l], ratios_[l], middle);
    collect(&off_[0], middle);
    for (int l : known_.last) collect(&coriolis_[l * n_], ratios_[l]);
    SpreadNorm<W> spread[] = {SpreadNorm<W>(n_), SpreadNorm<W>(n_), SpreadNorm<W>(n_), SpreadNorm<W>(n_)};
    for (int l = 0; l < all; ++l) {
      const double radius = known_.spread[l];
      if (radius == 0.0) continue;
      const bool turns = l < kInertial * n_;
      const int m = 1 + (turns ? l / kInertial : l - kInertial * n_);
      compute_deviation(turns ? &coriolis_[l * n_] : nullptr, ratios_[l], m, turned, xi);
      spread[0].add(radius, &ratio_[0], n_, m);
      spread[1].add(radius, &ratio_now_, 1, m);
      spread[2].add(radius, &drag_[0], n_, m);
      spread[3].add(radius, &drag_now_, 1, m);
    }
    const double base[] = {0.0, 0.0, out[4], out[5]};
    for (int k = 0; k < 4; ++k)
      out[k < 2 ? 2 + k : 4 + k] =
          base[k] + known_.vertices.largest_norm(n_, k % 2 ? 1 : n_, of[k]) + spread[k].bound();
  }

  // Of the torque of a motion, without friction and armature: slope of what is not known of it, slope of the nominal
  // one, and the rate of that along a velocity. gradient: (n, n), of the nominal torque by position.
  void of_torque(const double* q, const double* v, const double* a, const double* along, double* out,
                 double* gradient) {
    std::vector<Gradient<W>> at(3 * n_);
    for (int j = 0; j < n_; ++j) {
      at[j] = Gradient<W>(q[j]), at[n_ + j] = Gradient<W>(v[j]), at[2 * n_ + j] = Gradient<W>(a[j]);
      at[j].slope.value[j] = 1.0;
    }
    moving_.place(&at[0]);
    moving_.accelerate(&at[n_], &at[2 * n_], 1.0);
    const int parts = known_.vertices.parts();
    std::vector<Matrix<W>> of(parts, Matrix<W>::zero());
    Matrix<W> slopes = Matrix<W>::zero(), columns[kInertial];
    SpreadNorm<W> spread(n_);
    for (int i = 0; i < n_; ++i) {
      double values[kInertial][W] = {};
      for (auto& one : columns) one = Matrix<W>::zero();
      moving_.torque_blocks(i, [&](int j, const Gradient<W>* block) {
        for (int k = 0; k < kInertial; ++k) values[k][j] = block[k].value, columns[k].row[j] = block[k].slope;
      });
      for (int k = 0; k < kInertial; ++k) {
        const int l = kInertial * i + k;
        add(n_, known_.nominal[l], columns[k], slopes);
        const Matrix<W> off = felt(columns[k], values[k]);
        spread.add(known_.spread[l], &off, 1, n_);
        if (known_.center[l] != 0.0) add(n_, known_.center[l], off, of[0]);
        for (int p = 1; p < parts; ++p)
          if (known_.last[p - 1] == l) of[p] = off;
      }
    }
    out[0] = known_.vertices.largest_norm(n_, 1, of) + spread.bound();
    out[1] = norm(n_, product(n_, factor_, product(n_, slopes, turned_factor_)));
    double rate[W], square = 0.0;
    for (int i = 0; i < n_; ++i) {
      rate[i] = 0.0;
      for (int j = 0; j < n_; ++j) rate[i] += slopes.at(i, j) * along[j], gradient[i * n_ + j] = slopes.at(i, j);
    }
    for (int a = 0; a < n_; ++a) {
      double sum = 0.0;
      for (int j = a; j < n_; ++j) sum += factor_.at(a, j) * rate[j];
      square += sum * sum;
    }
    out[2] = std::sqrt(square);
  }

 protected:
  typedef Motion<Row<W>> Motions;  // a motion for each joint, or for each of the coordinates xi

  Motions joint_motions(int i) const {
    Motions r{constant<Row<W>>(0.0, 0.0, 0.0), constant<Row<W>>(0.0, 0.0, 0.0)};
    for (int k = 0; k <= tree_.joints[i].depth; ++k) set(bodies_.motion(i, k), tree_.chains[i][k], r);
    return r;
  }
  static void set(const Motion<double>& one, int lane, Motions& all) {
    const double* from[] = {&one.linear.x, &one.linear.y, &one.linear.z, &one.angular.x, &one.angular.y, &one.angular.z};
    Row<W>* to[] = {&all.linear.x, &all.linear.y, &all.linear.z, &all.angular.x, &all.angular.y, &all.angular.z};
    for (int c = 0; c < 6; ++c) to[c]->value[lane] = *from[c];
  }
  static Motion<double> get(const Motions& all, int lane) {
    const auto &l = all.linear, &a = all.angular;
    return {{l.x.value[lane], l.y.value[lane], l.z.value[lane]}, {a.x.value[lane], a.y.value[lane], a.z.value[lane]}};
  }
  // Products of motions with momenta, row by row.
  static void add_products(int m, const Motions& motions, const Motions& momenta, Matrix<W>& to) {
    for (int a = 0; a < m; ++a) {
      const Motion<double> one = get(motions, a);
      to.row[a] += one.linear.x * momenta.linear.x + one.linear.y * momenta.linear.y + one.linear.z * momenta.linear.z +
                   one.angular.x * momenta.angular.x + one.angular.y * momenta.angular.y +
                   one.angular.z * momenta.angular.z;
    }
  }
  static Motions momenta_of(const Motions& motions, const double* body) {
    return body_momentum(body, motions);
  }
  void add_square(const Motions& motions, const double* body, Matrix<W>& to) const {
    add_products(n_, motions, momenta_of(motions, body), to);
  }

  // M = U U^T from the last row on, F = U^-1 and F^T.
  void factorise() {
    root_ = factor_ = Matrix<W>::zero();
    for (int j = n_ - 1; j >= 0; --j) {
      double pivot = inertia_.at(j, j);
      for (int k = j + 1; k < n_; ++k) pivot -= root_.at(j, k) * root_.at(j, k);
      root_.set(j, j, std::sqrt(pivot));
      for (int i = 0; i < j; ++i) {
        double sum = inertia_.at(i, j);
        for (int k = j + 1; k < n_; ++k) sum -= root_.at(i, k) * root_.at(j, k);
        root_.set(i, j, sum / root_.at(j, j));
      }
    }
    for (int i = n_ - 1; i >= 0; --i) {
      factor_.set(i, i, 1.0);
      for (int k = i + 1; k < n_; ++k) factor_.row[i] -= root_.at(i, k) * factor_.row[k];
      factor_.row[i] = (1.0 / root_.at(i, i)) * factor_.row[i];
    }
    turned_factor_ = transposed(n_, factor_);
  }

  Motions in_coordinates(const Motions& of_joints) const {
    Motions r{constant<Row<W>>(0.0, 0.0, 0.0), constant<Row<W>>(0.0, 0.0, 0.0)};
    for (int j = 0; j < n_; ++j) {
      const Motion<double> one = get(of_joints, j);
      r.linear += turned_factor_.row[j] * row_of(one.linear);
      r.angular += turned_factor_.row[j] * row_of(one.angular);
    }
    return r;
  }
  static Vec<Row<W>> row_of(const Vec<double>& v) { return constant<Row<W>>(v.x, v.y, v.z); }

  // The inertia and the Christoffel matrices of body i by its parameters.
  void add_body(int i) {
    const int m = i + 1;
    const Motions joints = joint_motions(i), here = in_coordinates(joints);
    // A joint's motion, as seen from the body, turns with every joint between them.
    std::vector<Motions> turning(n_, Motions{constant<Row<W>>(0, 0, 0), constant<Row<W>>(0, 0, 0)});
    const auto& chain = tree_.chains[i];
    for (int after = 1; after < int(chain.size()); ++after) {
      Motions rate{constant<Row<W>>(0.0, 0.0, 0.0), constant<Row<W>>(0.0, 0.0, 0.0)};
      for (int before = 0; before < after; ++before)
        set(cross(bodies_.motion(i, before), bodies_.motion(i, after)), chain[before], rate);
      const Motions by = in_coordinates(rate);
      for (int x = 0; x <= chain[after]; ++x) {
        turning[x].linear += factor_.at(x, chain[after]) * by.linear;
        turning[x].angular += factor_.at(x, chain[after]) * by.angular;
      }
    }
    for (int k = 0; k < kInertial; ++k) {
      const int l = kInertial * i + k;
      double unit[kInertial] = {};
      unit[k] = 1.0;
      const Motions momenta = momenta_of(here, unit);
      ratios_[l] = Matrix<W>::zero();
      add_products(m, here, momenta, ratios_[l]);
      double half[W][W][W];  // [x][a][b]: half of the slope of entry (a, b) in direction x, with its transpose
      for (int x = 0; x < m; ++x) {
        Matrix<W> rows = Matrix<W>::zero();
        add_products(m, turning[x], momenta, rows);
        for (int a = 0; a < m; ++a)
          for (int b = 0; b < m; ++b) half[x][a][b] = rows.at(a, b);
      }
      for (int x = 0; x < m; ++x) {
        Matrix<W>& c = coriolis_[l * n_ + x];
        for (int a = 0; a < m; ++a)
          for (int b = 0; b < m; ++b)
            c.set(a, b, 0.5 * (half[x][a][b] + half[x][b][a] + half[b][a][x] + half[b][x][a] - half[a][x][b] -
                               half[a][b][x]));
        add(m, known_.nominal[l], c, own_[x]);
        if (known_.center[l] != 0.0) add(m, known_.center[l], c, off_[x]);
      }
    }
  }

  // sum_k weights_k X_k, of each the first m rows.
  Matrix<W> along(int m, const Matrix<W>* x, const double* weights) const {
    Matrix<W> sum = Matrix<W>::zero();
    for (int k = 0; k < n_; ++k) add(m, weights[k], x[k], sum);
    return sum;
  }

  // What a parameter of body m - 1 does to E and to the drag: its slopes X in `ratio_` and `drag_`, and both at the
  // velocity xi; transposed, so that all but the first m rows are zero. Without Christoffel matrices it is an armature.
  void compute_deviation(const Matrix<W>* coriolis, const Matrix<W>& ratio, int m, const Matrix<W>& turned,
                         const double* xi) {
    for (int x = 0; x < n_; ++x) {
      const Matrix<W> carried = product(m, ratio, turned_[x]);
      ratio_[x] = Matrix<W>::zero();
      add(m, -1.0, carried, ratio_[x]);
      drag_[x] = carried;
      if (!coriolis || x >= m) continue;
      add(m, 1.0, coriolis[x], ratio_[x]);
      add(m, 1.0, transposed(m, coriolis[x]), ratio_[x]);
      add(m, -1.0, coriolis[x], drag_[x]);
    }
    ratio_now_ = along(m, &ratio_[0], xi);
    drag_now_ = product(m, ratio, turned);
    if (!coriolis) return;
    Matrix<W> now = Matrix<W>::zero();
    for (int x = 0; x < m; ++x) add(m, xi[x], coriolis[x], now);
    add(m, 1.0, transposed(m, now), drag_now_);
    add(m, -1.0, now, drag_now_);
  }

  // The slope of M^-1 Y_l in coordinates xi: that of Y_l, less what a changing M does to M^-1 Y_l; transposed.
  Matrix<W> felt(const Matrix<W>& slopes, const double* values) const {
    Matrix<W> result = transposed(n_, product(n_, factor_, product(n_, slopes, turned_factor_)));
    for (int b = 0; b < n_; ++b) {
      double value = 0.0;
      for (int j = b; j < n_; ++j) value += factor_.at(b, j) * values[j];
      for (int x = 0; x < n_; ++x) result.row[x] -= value * turned_[x].row[b];
    }
    return result;
  }

  double slope(const std::vector<Matrix<W>>& x) const {
    Matrix<W> sum = Matrix<W>::zero();
    for (const auto& one : x) {
      const Matrix<W> turned = transposed(n_, one);
      add_product(n_, n_, 1.0, turned, turned, sum);
    }
    return std::sqrt(std::max(0.0, largest_eigenvalue(n_, sum)));
  }

  const Tree& tree_;
  const KnownParameters& known_;
  int n_;
  Bodies<double> bodies_;
  Bodies<Gradient<W>> moving_;
  Matrix<W> inertia_, root_, factor_, turned_factor_;
  std::vector<Matrix<W>> ratios_, coriolis_;  // by parameter: of E, and Christoffel in each direction (l n + x)
  std::vector<Matrix<W>> own_, off_, turned_;  // C_0, C of the center, and dM in each direction
  std::array<Matrix<W>, W> ratio_, drag_;
  Matrix<W> ratio_now_, drag_now_;
};

// Terms at samples, (samples, 8) and (samples, 3), M and the gradient of the nominal torque, (samples, n, n) each.
// Those of the inertia are left out where `of_inertia` is null.
template <int W>
inline void model_terms(const Tree& tree, const KnownParameters& known, long samples, const double* q, const double* v,
                        const double* a, const double* along, double* of_inertia, double* of_torque, double* inertia,
                        double* gradient) {
  const int n = tree.size();
  ModelTerms<W> terms(tree, known);
  for (long s = 0; s < samples; ++s) {
    terms.place(q + s * n);
    if (of_inertia) terms.of_inertia(v + s * n, of_inertia + s * ModelTerms<W>::kOfInertia);
    terms.of_torque(q + s * n, v + s * n, a + s * n, along + s * n, of_torque + s * ModelTerms<W>::kOfTorque,
                    gradient + s * n * n);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) inertia[(s * n + i) * n + j] = terms.inertia().at(i, j);
  }
}

}  // namespace kernel
