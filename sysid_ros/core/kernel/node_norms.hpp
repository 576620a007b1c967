// Norms of the slowly varying terms of a controlled arm and of their derivatives by position, at nodes of a motion and
// along the lines between them: step 1c of docs/theory/tracking_bound.md. What the results are is in
// sysid_ros/core/tracking_bound/node_norms.py, which reads them in the order in which they are written here.
//
// Everything is linear in the parameters, so numbers are rows (Parts): with the nominal parameters, with the center of
// what they may differ by, and of each parameter of the last body, which holds the payload.
//
// Inertia. Let i <= j. With axes s as twists and the composite inertia I of the bodies beyond j, in the base's frame,
// M_ij = s_i . I s_j. It depends on the joints k > i only. One of these up to j turns I s_j, a wrench, and one beyond j
// turns the bodies beyond k. With several of them outer joints turn first, so that derivatives are products.
// Torque. It is as linear, and central differences of its regressor serve, with an allowance.
//
// The arm is a chain. As in terms.hpp, M = U U^T, F = U^-1, and all matrices X become F X F^T.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "terms.hpp"

namespace kernel {

constexpr int kParts = 2 + kInertial;
typedef Row<kParts> Parts;
struct PartProducts {
  Parts row[kParts];
};

// Inner products of all parts of X with all parts of Y, each with so many entries.
inline PartProducts products_of(long entries, const Parts* x, const Parts* y) {
  PartProducts r;
  for (int c = 0; c < kParts; c += 3) {  // three rows of sums fit into the registers
    Parts one(0.0), two(0.0), three(0.0);
    for (long e = 0; e < entries; ++e) {
      for (int k = 0; k < kParts; ++k) one.value[k] += x[e].value[c] * y[e].value[k];
      for (int k = 0; k < kParts; ++k) two.value[k] += x[e].value[c + 1] * y[e].value[k];
      for (int k = 0; k < kParts; ++k) three.value[k] += x[e].value[c + 2] * y[e].value[k];
    }
    r.row[c] = one, r.row[c + 1] = two, r.row[c + 2] = three;
  }
  return r;
}

// Vertices of a set of payloads: the parameters they differ in, and their weights after the 1 of the center.
struct PayloadVertices {
  std::vector<int> used;
  Vertices vertices;

  // The largest magnitudes of inner products with the parameters of any vertex.
  std::vector<double> largest(const std::vector<PartProducts>& products) const {
    const int parts = vertices.parts();
    std::vector<double> values, result(products.size());
    values.reserve(products.size() * vertices.pairs());
    const auto part = [&](int p) { return p == 0 ? 1 : 2 + used[p - 1]; };
    for (const PartProducts& one : products)
      for (int p = 0; p < parts; ++p)
        for (int o = p; o < parts; ++o) {
          const double product = one.row[part(p)].value[part(o)];
          values.push_back(o > p ? product + one.row[part(o)].value[part(p)] : product);
        }
    vertices.largest_forms(long(products.size()), &values[0], &result[0]);
    return result;
  }
  double norm(long entries, const Parts* x) const { return std::sqrt(largest({products_of(entries, x, x)})[0]); }
};

// Inertias, relative to M, that may have the smallest or the largest eigenvalue of E, (samples, count, n, n), and the
// payloads they are with.
struct ExtremeInertias {
  double sign;  // -1 for the smallest eigenvalue, 1
  const double* inertias;
  long count;
  PayloadVertices payloads;
};

// Where results are written, one after the other.
class Writer {
 public:
  explicit Writer(double* to) : to_(to) {}
  double* take(int count) { return std::exchange(to_, to_ + count); }
  void put(double x) { *to_++ = x; }

 private:
  double* to_;
};

// The derivatives of a form by one joint and by two: inner products of those by two joints, and norms, (n, n) each.
struct Derivatives {
  int n;
  double *first, *second;

  Derivatives(int n, Writer& to, int summands = 1)
      : n(n), first(to.take(summands * n * n)), second(to.take(n * n)) {}
  static void set(double* matrix, int n, int k, int l, double x) { matrix[k * n + l] = matrix[l * n + k] = x; }
  void set_first(int k, int l, double x, int summand = 0) { set(first + summand * n * n, n, k, l, x); }
  void set_second(int k, int l, double x) { set(second, n, k, l, x); }
  // Of a summand that only norms are known of: their products.
  void set_norms(const double* norms, int summand) {
    for (int k = 0; k < n; ++k)
      for (int l = k; l < n; ++l) set_first(k, l, norms[k] * norms[l], summand);
  }
};

template <int W, class T>
class NodeNorms : public ModelTerms<W> {
 public:
  static constexpr double kLineStep = 0.05;  // of the differences along the lines, as a share of these

  // spread: radii of all inertial parameters, those of the payload's set included; radius: of the arm alone.
  NodeNorms(const Tree& tree, const KnownParameters& known, const double* radius, const PayloadVertices& payloads)
      : ModelTerms<W>(tree, known),
        radius_(radius),
        payloads_(payloads),
        size_(n_ * (n_ + 1) / 2),
        all_(kInertial * n_),
        columns_{{}, n_, false, false} {
    for (int j = 0; j < n_; ++j) columns_.bodies.push_back(j);
    for (int k = 0; k < n_; ++k) orders_[1].push_back({k, 0, 0});
    for (int k = 0; k < n_; ++k)
      for (int l = k; l < n_; ++l) orders_[2].push_back({k, l, 0});
    for (const Joints& pair : orders_[2])
      for (int m = pair[1]; m < n_; ++m) orders_[3].push_back({pair[0], pair[1], m});
    for (int order = 1; order <= 3; ++order) {
      numbers_[order].resize(order == 1 ? n_ : order == 2 ? n_ * n_ : n_ * n_ * n_);
      for (int at = 0; at < int(orders_[order].size()); ++at) {
        Joints joints = orders_[order][at];
        do numbers_[order][index_of(&joints[0], order)] = at;
        while (std::next_permutation(joints.begin(), joints.begin() + order));
      }
      inertia_by_[order].resize(orders_[order].size() * size_);
    }
    for (const Joints& pair : orders_[2])
      if (pair[0] < pair[1]) apart_.push_back(pair);
  }

  // The widths of the rows of results.
  static int width(int n) {
    const int one = 2 * n * n, two = 3 * n * n, spread = (2 + kInertial) * n * n, torque = 3 * one + two + 3 + 2 * n;
    const int line = 3 + 3 * n;
    return 4 * n * n + 14 + n + 1 + 4 * (2 * one + spread) + 8 * n * n + 2 * (1 + one) + 2 * torque + 2 * line;
  }

  // Everything at sample s of states (3, samples, n); all but one of the ends of the first and the last line.
  void evaluate(long s, long samples, const double* states, const std::array<ExtremeInertias, 2>& extremes,
                double* out, const std::array<double*, 2>& of_extremes) {
    const double *q = states + s * n_, *v = q + samples * n_, *a = v + samples * n_;
    const std::vector<double> still(n_, 0.0);
    Writer to(out);
    this->place(q);
    set_coordinates(v);
    differentiate_inertia(q);
    double* inertia = to.take(n_ * n_);
    double* factor = to.take(n_ * n_);
    for (int i = 0; i < n_; ++i)
      for (int j = 0; j < n_; ++j) inertia[i * n_ + j] = inertia_.at(i, j), factor[i * n_ + j] = factor_.at(i, j);
    this->of_inertia(v, to.take(ModelTerms<W>::kOfInertia));
    double* slopes = to.take(ModelTerms<W>::kOfTorque);
    this->of_torque(q, v, a, v, slopes, to.take(n_ * n_));
    slopes = to.take(ModelTerms<W>::kOfTorque);
    this->of_torque(q, &still[0], &still[0], v, slopes, to.take(n_ * n_));
    add_arm();
    double* changes = to.take(n_);
    for (int k = 0; k < n_; ++k) changes[k] = arm_.changes[k];
    to.put(known_norm());
    bound_inertia(to);
    for (int k = 0; k < 2; ++k) bound_extremes(s, extremes[k], to, of_extremes[k]);
    bound_torque(q, v, a, to, moving_torque_);
    bound_torque(q, &still[0], &still[0], to, still_torque_);
    for (const long other : {s + 1, s - 1}) {
      double* ends = to.take(3 + 3 * n_);
      if (0 <= other && other < samples)
        bound_line(q, q + (other - s) * n_, samples * n_, ends);
      else
        std::fill(ends, ends + 3 + 3 * n_, 0.0);
    }
  }

 private:
  typedef std::array<int, 3> Joints;
  typedef typename ModelTerms<W>::Motions Motions;
  using ModelTerms<W>::tree_;
  using ModelTerms<W>::known_;
  using ModelTerms<W>::n_;
  using ModelTerms<W>::bodies_;
  using ModelTerms<W>::inertia_;
  using ModelTerms<W>::root_;
  using ModelTerms<W>::factor_;
  using ModelTerms<W>::turned_factor_;
  using ModelTerms<W>::ratios_;

  static constexpr double kRounding = 1.001;  // allowance for truncation and rounding of the differences of the torque
  static constexpr double kStep = 1e-3, kThirdStep = 5e-3;  // [rad], up to the second order and of the third
  static constexpr double kRoundingOfRatio = 1e-9;
  // Of eigenvalues that are less extreme than E's by this only their distance counts: errors hardly make up for it.
  static constexpr double kFar = 0.03, kHuge = 1e6;

  // The torque near a state: its value and its derivatives by position.
  struct NearTorque {
    std::vector<Parts> value, first, second;       // (n), (k, n), (pair, n)
    std::vector<double> columns, by_columns;       // the regressor (n, all) and its slopes (k, n, all)
    std::vector<double> of_spread[3];              // what is not known of the three, (n), (k, n), (pair, n)
  };
  // What is not known of the arm, parameter by parameter: norms of the first derivatives.
  struct ArmNorms {
    double changes[W], inertia[W], slope[W], rate[W], coriolis[W];
  };

  int index_of(const int* joints, int order) const {
    int at = 0;
    for (int k = 0; k < order; ++k) at = at * n_ + joints[k];
    return at;
  }
  int number(const int* joints, int order) const { return numbers_[order][index_of(joints, order)]; }
  int number(int k, int l) const { return numbers_[2][k * n_ + l]; }
  int number(int k, int l, int m) const { return numbers_[3][(k * n_ + l) * n_ + m]; }
  // A symmetric matrix is packed, entries beside the diagonal times the root of two, so that norms stay what they are.
  int packed(int a, int b) const { return a <= b ? a * n_ - a * (a - 1) / 2 + b - a : packed(b, a); }
  static double scale(int a, int b) { return a == b ? 1.0 : std::sqrt(0.5); }

  void set_coordinates(const double* v) {
    speed_ = 0.0;
    for (int a = 0; a < n_; ++a) {
      xi_[a] = 0.0;
      for (int j = 0; j <= a; ++j) xi_[a] += root_.at(j, a) * v[j];
      speed_ += xi_[a] * xi_[a];
      for (int b = 0; b < n_; ++b) {
        double sum = 0.0;
        for (int i = 0; i <= std::min(a, b); ++i) sum += factor_.at(i, a) * factor_.at(i, b);
        metric_[a][b] = std::fabs(sum);  // of M^-1
      }
    }
    speed_ = std::sqrt(speed_);
  }

  // F X F^T, (n, n).
  void transform(const Parts* x, Parts* to) const {
    std::vector<Parts> half(n_ * n_, Parts(0.0));
    std::fill(to, to + n_ * n_, Parts(0.0));
    for (int a = 0; a < n_; ++a)
      for (int i = a; i < n_; ++i)
        for (int j = 0; j < n_; ++j) add_scaled(factor_.at(a, i), x[i * n_ + j], half[a * n_ + j]);
    for (int a = 0; a < n_; ++a)
      for (int b = 0; b < n_; ++b)
        for (int j = b; j < n_; ++j) add_scaled(factor_.at(b, j), half[a * n_ + j], to[a * n_ + b]);
  }
  void pack(const Parts* x, Parts* to) const {
    for (int a = 0; a < n_; ++a)
      for (int b = a; b < n_; ++b) to[packed(a, b)] = (1.0 / scale(a, b)) * x[a * n_ + b];
  }
  void unpack(const Parts* x, Parts* to) const {
    for (int a = 0; a < n_; ++a)
      for (int b = 0; b < n_; ++b) to[a * n_ + b] = scale(a, b) * x[packed(a, b)];
  }

  // Bounds of norms of matrices and torques with entries up to these, by the magnitudes of M^-1.
  double flat(const double* entries) const {
    double square = 0.0;
    for (int i = 0; i < n_; ++i)
      for (int l = 0; l < n_; ++l) {
        double left = 0.0, right = 0.0;
        for (int k = 0; k < n_; ++k) {
          left += metric_[i][k] * entries[k * n_ + l];
          right += entries[i * n_ + k] * metric_[k][l];
        }
        square += left * right;
      }
    return std::sqrt(square);
  }
  double flat_length(const double* entries) const {
    double square = 0.0;
    for (int i = 0; i < n_; ++i)
      for (int j = 0; j < n_; ++j) square += entries[i] * metric_[i][j] * entries[j];
    return std::sqrt(square);
  }

  // Norms of the nominal part, and of what is not known of the payload about the vertices.
  static double nominal_product(long entries, const Parts* x, const Parts* y) {
    double sums[4] = {};  // several at once, or each waits for the one before
    for (long e = 0; e < entries; ++e) sums[e % 4] += x[e].value[0] * y[e].value[0];
    return std::fabs(sums[0] + sums[1] + sums[2] + sums[3]);
  }
  static double nominal_norm(long entries, const Parts* x) { return std::sqrt(nominal_product(entries, x, x)); }
  double payload_radius(int c) const { return known_.spread[all_ - kInertial + c]; }
  double spread_norm(const PartProducts& products) const {
    double sum = 0.0;
    for (int c = 0; c < kInertial; ++c) sum += payload_radius(c) * std::sqrt(products.row[2 + c].value[2 + c]);
    return sum;
  }
  double spread_norm(long entries, const Parts* x) const {
    Parts squares(0.0);
    for (long e = 0; e < entries; ++e) squares += x[e] * x[e];
    double sum = 0.0;
    for (int c = 0; c < kInertial; ++c) sum += payload_radius(c) * std::sqrt(squares.value[2 + c]);
    return sum;
  }

  // Of a form: nominal, with the vertices, and of the spread about these, parameter by parameter and then of the arm.
  struct Growth {
    const NodeNorms& of;
    Derivatives nominal, vertices, spread;

    Growth(const NodeNorms& of, Writer& to)
        : of(of), nominal(of.n_, to), vertices(of.n_, to), spread(of.n_, to, kInertial + 1) {}
    // x: the derivatives by each joint
    void set_first(long entries, const std::vector<Parts>& x, const double* arm) {
      for (int at = 0; at < int(of.orders_[2].size()); ++at) {
        const int k = of.orders_[2][at][0], l = of.orders_[2][at][1];
        const PartProducts products = products_of(entries, &x[k * entries], &x[l * entries]);
        nominal.set_first(k, l, std::fabs(products.row[0].value[0]));
        for (int c = 0; c < kInertial; ++c) {
          const double radius = of.payload_radius(c);
          spread.set_first(k, l, radius * radius * std::fabs(products.row[2 + c].value[2 + c]), c);
        }
        all.push_back(products);
      }
      of.set_largest(all, vertices.first, 1.0);
      spread.set_norms(arm, kInertial);
      all.clear();
    }
    // One pair of joints after the other.
    void add_second(long entries, const Parts* x) {
      const Joints& pair = of.orders_[2][all.size()];
      all.push_back(products_of(entries, x, x));
      nominal.set_second(pair[0], pair[1], std::sqrt(all.back().row[0].value[0]));
      spread.set_second(pair[0], pair[1], of.spread_norm(all.back()));
      if (all.size() == of.orders_[2].size()) of.set_largest_norms(all, vertices.second, 1.0);
    }
    std::vector<PartProducts> all;
  };

  // Set results by pair of joints, for the vertex for which they are largest.
  void set_largest(const std::vector<PartProducts>& products, double* to, double factor) const {
    const std::vector<double> largest = payloads_.largest(products);
    for (int at = 0; at < int(orders_[2].size()); ++at)
      Derivatives::set(to, n_, orders_[2][at][0], orders_[2][at][1], factor * largest[at]);
  }
  void set_largest_norms(const std::vector<PartProducts>& products, double* to, double factor) const {
    set_largest(products, to, 1.0);
    for (int e = 0; e < n_ * n_; ++e) to[e] = factor * std::sqrt(to[e]);
  }

  // Inner products of nominal derivatives, or the largest with any vertex, in the place of the next (n, n) results.
  void write_products(long entries, const std::vector<Parts>& x, bool is_nominal, double* to) const {
    std::vector<PartProducts> products;
    for (const Joints& pair : orders_[2]) {
      const Parts *one = &x[pair[0] * entries], *other = &x[pair[1] * entries];
      if (is_nominal)
        Derivatives::set(to, n_, pair[0], pair[1], nominal_product(entries, one, other));
      else
        products.push_back(products_of(entries, one, other));
    }
    if (!is_nominal) set_largest(products, to, 1.0);
  }

  // Inertia

  // The rate of the parameters of a body that moves with a twist, in the frame of the base.
  static void turn(const Motion<double>& s, const Parts* p, Parts* to) {
    const Vec<Parts> h{p[1], p[2], p[3]};
    const Vec<double>&v = s.linear, &w = s.angular;
    const Vec<Parts> x = cross(w, Vec<Parts>{p[4], p[5], p[7]}), y = cross(w, Vec<Parts>{p[5], p[6], p[8]}),
                     z = cross(w, Vec<Parts>{p[7], p[8], p[9]});
    const Parts both = 2.0 * dot(v, h);
    to[0] = Parts(0.0);
    store(Vec<Parts>(p[0] * v + cross(w, h)), to + 1);
    to[4] = 2.0 * x.x + both - 2.0 * v.x * h.x;
    to[5] = x.y + y.x - v.x * h.y - v.y * h.x;
    to[6] = 2.0 * y.y + both - 2.0 * v.y * h.y;
    to[7] = x.z + z.x - v.x * h.z - v.z * h.x;
    to[8] = y.z + z.y - v.y * h.z - v.z * h.y;
    to[9] = 2.0 * z.z + both - 2.0 * v.z * h.z;
  }

  // The parameters of body i in a frame of the base, from its own.
  void in_base(int i, const Frame<double>& frame, Parts* to) const {
    Parts p[kInertial];
    for (int c = 0; c < kInertial; ++c) {
      p[c] = Parts(0.0);
      p[c].value[0] = known_.nominal[kInertial * i + c];
      p[c].value[1] = known_.center[kInertial * i + c];
      if (i == n_ - 1) p[c].value[2 + c] = 1.0;
    }
    const Turn& own = tree_.joints[i].own;
    const Vec<double> x = frame.out(own.back(Vec<double>{1, 0, 0})), y = frame.out(own.back(Vec<double>{0, 1, 0})),
                      z = frame.out(own.back(Vec<double>{0, 0, 1})), &o = frame.origin;
    const Vec<double> rows[] = {{x.x, y.x, z.x}, {x.y, y.y, z.y}, {x.z, y.z, z.z}};
    const Vec<Parts> c{p[1], p[2], p[3]}, h{dot(rows[0], c), dot(rows[1], c), dot(rows[2], c)};
    const Parts both = 2.0 * dot(o, h) + dot(o, o) * p[0], *of[] = {&h.x, &h.y, &h.z};
    const double at[] = {o.x, o.y, o.z};
    to[0] = p[0];
    store(Vec<Parts>(h + p[0] * o), to + 1);
    int entry = 4;
    for (int b = 0; b < 3; ++b)
      for (int a = 0; a <= b; ++a, ++entry) {
        to[entry] = dot(rows[a], times_inertia(p + 4, rows[b]));
        to[entry] -= at[a] * *of[b] + at[b] * *of[a] + at[a] * at[b] * p[0];
        if (a == b) to[entry] += both;
      }
  }

  // The derivatives of M up to the third order, in coordinates and packed.
  void differentiate_inertia(const double* q) {
    std::vector<Motion<double>> axes, lefts[4];  // lefts: s_i x s_k x s_l x ... for i < k <= l <= ..., (number, n)
    std::vector<Parts> turned[4];                // of the composite bodies, (number, 10)
    std::vector<Parts>& whole = turned[0];
    whole.resize(kInertial * n_);
    Frame<double> frame = Frame<double>::base();
    for (int i = 0; i < n_; ++i) {
      const Joint& joint = tree_.joints[i];
      Pose<double> pose;
      pose.set(joint, q[i]);
      frame = frame.behind(joint, pose);
      axes.push_back({joint.spin * cross(frame.origin, frame.z) + joint.pitch * frame.z, joint.spin * frame.z});
      in_base(i, frame, &whole[kInertial * i]);
    }
    for (int k = kInertial * (n_ - 1) - 1; k >= 0; --k) whole[k] += whole[k + kInertial];
    for (int order = 1; order <= 3; ++order) {
      const auto& orders = orders_[order];
      turned[order].resize(kInertial * orders.size());
      lefts[order].resize(n_ * orders.size());
      for (int at = 0; at < int(orders.size()); ++at) {
        const Joints& joints = orders[at];
        const int inner = order == 1 ? joints[0] : number(&joints[1], order - 1);
        turn(axes[joints[0]], &turned[order - 1][kInertial * inner], &turned[order][kInertial * at]);
        const Motion<double>* left = order == 1 ? &axes[0] : &lefts[order - 1][number(&joints[0], order - 1) * n_];
        for (int i = 0; i < joints[0]; ++i) lefts[order][at * n_ + i] = cross(left[i], axes[joints[order - 1]]);
      }
    }
    std::vector<Parts> matrix(n_ * n_), transformed(n_ * n_);
    for (int order = 1; order <= 3; ++order)
      for (int at = 0; at < int(orders_[order].size()); ++at) {
        const Joints& joints = orders_[order][at];
        Parts* to = &inertia_by_[order][at * size_];
        if (joints[0] == 0) {  // the first joint changes no inertia
          std::fill(to, to + size_, Parts(0.0));
          continue;
        }
        for (int j = 0; j < n_; ++j) {
          int near = 0;
          while (near < order && joints[near] <= j) ++near;
          const int far = order - near;
          const Parts* body = far == 0 ? &whole[kInertial * j] : &turned[far][kInertial * number(&joints[near], far)];
          const Motion<Parts> wrench = body_momentum(body, axes[j]);
          for (int i = 0; i <= j; ++i) {
            const bool moves = near == 0 || i < joints[0];
            const Motion<double>& left = near == 0 || !moves ? axes[i] : lefts[near][number(&joints[0], near) * n_ + i];
            matrix[i * n_ + j] = matrix[j * n_ + i] = moves ? dot(left, wrench) : Parts(0.0);
          }
        }
        transform(&matrix[0], &transformed[0]);
        pack(&transformed[0], to);
      }
  }

  // Add up the slopes by direction, (x, packed), of a form with these derivatives by joint j.
  template <class Get>
  void by_direction(Get derivative, Parts* to) const {
    std::fill(to, to + n_ * size_, Parts(0.0));
    for (int j = 0; j < n_; ++j) {
      const Parts* one = derivative(j);
      for (int x = 0; x <= j; ++x)
        for (int e = 0; e < size_; ++e) add_scaled(factor_.at(x, j), one[e], to[x * size_ + e]);
    }
  }
  // sum_x xi_x X_x
  void moving(int entries, const Parts* x, Parts* to) const {
    std::fill(to, to + entries, Parts(0.0));
    for (int k = 0; k < n_; ++k)
      for (int e = 0; e < entries; ++e) add_scaled(xi_[k], x[k * entries + e], to[e]);
  }
  // The Christoffel matrix of slopes (x, packed) for the velocity xi, of which `rate` is the rate, packed.
  void coriolis_now(const Parts* slopes, const Parts* rate, Parts* to) const {
    std::vector<Parts> pushed(n_ * n_, Parts(0.0));
    for (int x = 0; x < n_; ++x)
      for (int a = 0; a < n_; ++a)
        for (int j = 0; j < n_; ++j) add_scaled(xi_[j] * scale(a, j), slopes[x * size_ + packed(a, j)], pushed[x * n_ + a]);
    for (int a = 0; a < n_; ++a)
      for (int b = 0; b < n_; ++b)
        to[a * n_ + b] = 0.5 * (scale(a, b) * rate[packed(a, b)] + pushed[b * n_ + a] - pushed[a * n_ + b]);
  }

  // Of everything that follows from the inertia.
  void bound_inertia(Writer& to) {
    const int square = n_ * n_;
    std::vector<Parts> bends(n_ * n_ * size_), rates(n_ * size_), coriolis(n_ * square);
    for (int k = 0; k < n_; ++k) {
      Parts* slopes = &bends[k * n_ * size_];
      by_direction([&](int j) { return &inertia_by_[2][number(k, j) * size_]; }, slopes);
      moving(size_, slopes, &rates[k * size_]);
      coriolis_now(slopes, &rates[k * size_], &coriolis[k * square]);
    }
    Growth inertia(*this, to), slope(*this, to), rate(*this, to), of_coriolis(*this, to);
    inertia.set_first(size_, inertia_by_[1], arm_.inertia);
    slope.set_first(n_ * size_, bends, arm_.slope);
    rate.set_first(size_, rates, arm_.rate);
    of_coriolis.set_first(square, coriolis, arm_.coriolis);
    std::vector<Parts> slopes(n_ * size_), now(size_), turning(square);
    for (const Joints& pair : orders_[2]) {
      inertia.add_second(size_, &inertia_by_[2][number(pair[0], pair[1]) * size_]);
      by_direction([&](int j) { return &inertia_by_[3][number(pair[0], pair[1], j) * size_]; }, &slopes[0]);
      moving(size_, &slopes[0], &now[0]);
      coriolis_now(&slopes[0], &now[0], &turning[0]);
      slope.add_second(n_ * size_, &slopes[0]);
      rate.add_second(size_, &now[0]);
      of_coriolis.add_second(square, &turning[0]);
    }
    bound_carried(bends, rates, coriolis, to);
  }

  // First derivatives of the slopes and rates of M, C_0, E and the drag, with P M^-1 D, P the slopes of M.
  void bound_carried(const std::vector<Parts>& bends, const std::vector<Parts>& rates,
                     const std::vector<Parts>& coriolis_rates, Writer& to) {
    const int square = n_ * n_, whole = n_ * square;
    std::vector<Parts> deviation(square, Parts(0.0)), change(square), inner(square), full(whole);
    for (int a = 0; a < n_; ++a)
      for (int b = 0; b < n_; ++b) {
        Parts& one = deviation[a * n_ + b];
        for (int l = 0; l < int(ratios_.size()); ++l) one.value[1] += known_.center[l] * ratios_[l].at(a, b);
        for (int c = 0; c < kInertial; ++c) one.value[2 + c] = ratios_[all_ - kInertial + c].at(a, b);
      }
    slope_.assign(whole, 0.0), moved_.resize(whole), curvature_.resize(n_ * whole);
    for (int k = 0; k < n_; ++k) {
      unpack(&inertia_by_[1][k * size_], &change[0]);
      for (int e = 0; e < square; ++e) {
        moved_[k * square + e] = change[e].value[0];
        for (int x = 0; x <= k; ++x) slope_[x * square + e] += factor_.at(x, k) * change[e].value[0];
      }
    }
    std::vector<Parts> ratio(n_ * whole), drag(n_ * whole), coriolis(n_ * whole);
    std::vector<Parts> ratio_rate(whole), drag_rate(whole), swung(square);
    for (int k = 0; k < n_; ++k) {
      for (int x = 0; x < n_; ++x) unpack(&bends[(k * n_ + x) * size_], &full[x * square]);
      unpack(&inertia_by_[1][k * size_], &inner[0]);
      add_product(-1.0, &moved_[k * square], &deviation[0], &inner[0]);
      for (int x = 0; x < n_; ++x) {
        Parts *product = &drag[k * whole + x * square], *of_ratio = &ratio[k * whole + x * square];
        double* curve = &curvature_[k * whole + x * square];
        for (int e = 0; e < square; ++e) curve[e] = full[x * square + e].value[0], product[e] = Parts(0.0);
        add_product(1.0, curve, &deviation[0], product);
        add_product(1.0, &slope_[x * square], &inner[0], product);
        for (int e = 0; e < square; ++e) of_ratio[e] = full[x * square + e] - product[e];
      }
      moving(square, &ratio[k * whole], &ratio_rate[k * square]);
      moving(square, &drag[k * whole], &drag_rate[k * square]);
      for (int a = 0; a < n_; ++a)
        for (int b = 0; b < n_; ++b) {
          const Parts &one = coriolis_rates[k * square + a * n_ + b], &other = coriolis_rates[k * square + b * n_ + a];
          drag_rate[k * square + a * n_ + b] += one - other;
          for (int x = 0; x < n_; ++x) {
            Parts& c = coriolis[k * whole + x * square + a * n_ + b];
            c = 0.5 * (full[(x * n_ + a) * n_ + b] + full[(b * n_ + a) * n_ + x] - full[(a * n_ + x) * n_ + b]);
            add_scaled(-1.0, c, drag[k * whole + x * square + b * n_ + a]);
          }
        }
    }
    write_products(n_ * size_, bends, true, to.take(square));
    write_products(whole, coriolis, true, to.take(square));
    write_products(whole, ratio, false, to.take(square));
    write_products(whole, drag, false, to.take(square));
    write_products(size_, rates, true, to.take(square));
    write_products(square, coriolis_rates, true, to.take(square));
    write_products(square, ratio_rate, false, to.take(square));
    write_products(square, drag_rate, false, to.take(square));
  }

  // Add weight X Y.
  void add_product(double weight, const double* x, const Parts* y, Parts* to) const {
    for (int a = 0; a < n_; ++a)
      for (int k = 0; k < n_; ++k)
        for (int b = 0; b < n_; ++b) add_scaled(weight * x[a * n_ + k], y[k * n_ + b], to[a * n_ + b]);
  }

  // The inertias J^T I J, parameter by parameter, differentiated through the Jacobians: dJ_i/dq_j = J_i x J_j for i
  // before j.
  void add_arm() {
    arm_ = {};
    for (int i = 0; i < n_; ++i) {
      const int m = i + 1;
      const bool is_arm = m < n_;
      std::vector<Motion<double>> axes(m);
      for (int k = 0; k < m; ++k) axes[k] = bodies_.motion(i, k);
      const Motion<double> none{constant<double>(0, 0, 0), constant<double>(0, 0, 0)};
      const auto turned = [&](int inner, int outer) { return inner < outer ? cross(axes[inner], axes[outer]) : none; };
      const Motions zero{constant<Row<W>>(0, 0, 0), constant<Row<W>>(0, 0, 0)};
      const auto add_along = [&](const Motions& by, int j, Motions* to) {  // from joint j to directions x
        for (int x = 0; x <= j; ++x) {
          to[x].linear += factor_.at(x, j) * by.linear;
          to[x].angular += factor_.at(x, j) * by.angular;
        }
      };
      Motions joints = zero;
      for (int b = 0; b < m; ++b) this->set(axes[b], b, joints);
      const Motions here = this->in_coordinates(joints);
      std::vector<Motions> once(m), along(m, zero), twice(m * m, zero);
      for (int k = 0; k < m; ++k) {
        Motions rate = zero;
        for (int b = 0; b < k; ++b) this->set(turned(b, k), b, rate);
        once[k] = this->in_coordinates(rate);
        add_along(once[k], k, &along[0]);
        for (int j = 0; j < m && is_arm; ++j) {
          Motions second = zero;
          for (int b = 0; b < j; ++b) this->set(cross(turned(b, k), axes[j]) + cross(axes[b], turned(j, k)), b, second);
          add_along(this->in_coordinates(second), j, &twice[k * m]);
        }
      }
      for (int c = 0; c < kInertial; ++c) {
        const int l = kInertial * i + c;
        if (known_.spread[l] == 0.0 && radius_[l] == 0.0) continue;
        double unit[kInertial] = {};
        unit[c] = 1.0;
        const Motions momenta = body_momentum(unit, here);
        for (int k = 0; k < m; ++k) {
          const Motions turning = body_momentum(unit, once[k]);
          const double change = std::sqrt(squares(m, with_transpose(m, {{once[k], momenta}})));
          arm_.changes[k] += radius_[l] * change;
          if (!is_arm) continue;
          arm_.inertia[k] += known_.spread[l] * change;
          add_slopes(k, m, known_.spread[l], &twice[k * m], momenta, &along[0], turning);
        }
      }
    }
  }
  // The sum of products of motions and momenta, and its transpose.
  Matrix<W> with_transpose(int m, std::initializer_list<std::pair<const Motions&, const Motions&>> products) const {
    Matrix<W> x = Matrix<W>::zero();
    for (const auto& one : products) this->add_products(m, one.first, one.second, x);
    Matrix<W> sum = transposed(m, x);
    add(m, 1.0, x, sum);
    return sum;
  }
  void add_slopes(int k, int m, double radius, const Motions* twice, const Motions& momenta, const Motions* along,
                  const Motions& turning) {
    double of_slope = 0.0;
    Matrix<W> rate = Matrix<W>::zero(), pushed = Matrix<W>::zero();  // pushed: [a][x]
    for (int x = 0; x < m; ++x) {
      const Matrix<W> one = with_transpose(m, {{twice[x], momenta}, {along[x], turning}});
      of_slope += squares(m, one);
      add(m, xi_[x], one, rate);
      Row<W> sum(0.0);
      for (int j = 0; j < m; ++j) sum += xi_[j] * one.row[j];
      pushed.row[x] = sum;
    }
    const double of_rate = squares(m, rate);
    add(m, 1.0, transposed(m, pushed), rate);
    add(m, -1.0, pushed, rate);
    arm_.slope[k] += radius * std::sqrt(of_slope);
    arm_.rate[k] += radius * std::sqrt(of_rate);
    arm_.coriolis[k] += 0.5 * radius * std::sqrt(squares(m, rate));
  }

  double known_norm() const {
    SpreadNorm<W> sum(n_);
    for (int l = 0; l < int(ratios_.size()); ++l) sum.add(known_.spread[l], &ratios_[l], 1, n_);
    return sum.bound();
  }

  // An extreme eigenvalue of E, and the change of H - E M for the inertias H that may have it.
  void bound_extremes(long s, const ExtremeInertias& of, Writer& to, double* out) {
    const int square = n_ * n_, width = 2 + 2 * n_;
    const auto inertia = [&](long k) {
      const double* entries = of.inertias + (s * of.count + k) * square;
      Matrix<W> one = Matrix<W>::zero();
      for (int a = 0; a < n_; ++a)
        for (int b = 0; b < n_; ++b) one.set(a, b, of.sign * entries[a * n_ + b]);
      return one;
    };
    const double largest = largest_of_any<W>(n_, of.count, inertia), most = largest + kRoundingOfRatio;
    // H - E M, of which the center takes the nominal part; (part, k, entry)
    std::vector<Parts> first = inertia_by_[1], second = inertia_by_[2];
    for (auto* parts : {&first, &second})
      for (Parts& one : *parts) one.value[1] += (1.0 - of.sign * most) * one.value[0];
    std::vector<double> by_part(kParts * n_ * size_), sums(n_ * size_);
    for (int e = 0; e < n_ * size_; ++e)
      for (int c = 0; c < kParts; ++c) by_part[c * n_ * size_ + e] = first[e].value[c];
    for (long k = 0; k < of.count; ++k) {
      double u[W], *row = out + (s * of.count + k) * width;
      Matrix<W> one = inertia(k);
      if (is_below(n_, one, largest - kFar)) {
        row[0] = kFar, row[1] = 0.0;
        std::fill(row + 2, row + width, kHuge);
        continue;
      }
      const double value = largest_eigenvalue(n_, one), apart = 2.0 * std::sqrt(squares(n_, one));
      largest_eigenvector(n_, one, value, u);
      row[0] = most - value;
      for (int a = 0; a < n_; ++a)
        for (int b = 0; b < n_; ++b) one.set(a, b, one.at(a, b) - apart * u[a] * u[b]);
      row[1] = n_ > 1 ? std::max(0.0, value - largest_eigenvalue(n_, one)) : apart;
      std::copy(&by_part[n_ * size_], &by_part[2 * n_ * size_], sums.begin());
      for (int p = 1; p < of.payloads.vertices.parts(); ++p) {
        const double* part = &by_part[(2 + of.payloads.used[p - 1]) * n_ * size_];
        const double weight = of.payloads.vertices.weight(k, p);
        for (int e = 0; e < n_ * size_; ++e) sums[e] += weight * part[e];
      }
      for (int j = 0; j < n_; ++j) {
        double own = 0.0, across = 0.0, turned[W];
        for (int a = 0; a < n_; ++a) {
          turned[a] = 0.0;
          for (int b = 0; b < n_; ++b) turned[a] += scale(a, b) * sums[j * size_ + packed(a, b)] * u[b];
          own += turned[a] * u[a];
        }
        for (int a = 0; a < n_; ++a) across += (turned[a] - own * u[a]) * (turned[a] - own * u[a]);
        row[2 + j] = std::fabs(own), row[2 + n_ + j] = std::sqrt(across);
      }
    }
    to.put(of.sign * most);
    Derivatives changes(n_, to);
    std::vector<PartProducts> products, squares;
    for (const Joints& pair : orders_[2]) {
      const Parts* twice = &second[number(pair[0], pair[1]) * size_];
      products.push_back(products_of(size_, &first[pair[0] * size_], &first[pair[1] * size_]));
      squares.push_back(products_of(size_, twice, twice));
    }
    const std::vector<double> once = of.payloads.largest(products), bent = of.payloads.largest(squares);
    for (int at = 0; at < int(orders_[2].size()); ++at) {
      const Joints& pair = orders_[2][at];
      changes.set_first(pair[0], pair[1], once[at]);
      changes.set_second(pair[0], pair[1], std::sqrt(bent[at]));
    }
  }

  // Torque

  // The inertial columns (points, n, all) of the torque at positions shifted by (points, n) [rad].
  const double* evaluate_near(const std::vector<double>& shifts, const double* q, const double* v, const double* a) {
    const long points = long(shifts.size()) / n_;
    std::vector<double> states(3 * shifts.size());
    for (long p = 0; p < points; ++p)
      for (int j = 0; j < n_; ++j) {
        const long at = p * n_ + j;
        states[at] = q[j] + shifts[at], states[shifts.size() + at] = v[j], states[2 * shifts.size() + at] = a[j];
      }
    regressor_.resize(points * n_ * all_);
    torque_regressor<T>(tree_, columns_, points, &states[0], &states[shifts.size()], &states[2 * shifts.size()], nullptr,
                        &regressor_[0], all_);
    return &regressor_[0];
  }
  // The torques of the combinations of parameters, (n), of the columns.
  void combine(const double* columns, Parts* to) const {
    for (int i = 0; i < n_; ++i) {
      const double* row = columns + i * all_;
      Row<kInertial> nominal(0.0), center(0.0);
      for (int l = kInertial * i; l < all_; l += kInertial)
        for (int c = 0; c < kInertial; ++c) {
          nominal.value[c] += known_.nominal[l + c] * row[l + c];
          center.value[c] += known_.center[l + c] * row[l + c];
        }
      to[i] = Parts(0.0);
      for (int c = 0; c < kInertial; ++c) {
        to[i].value[0] += nominal.value[c];
        to[i].value[1] += center.value[c];
        to[i].value[2 + c] = row[all_ - kInertial + c];
      }
    }
  }
  // Differences of functions with so many entries at points about q: second derivatives by two joints are
  // (f(k, l) + f(-k, -l) - 2 f - (f(k) + f(-k) - 2 f) - (f(l) + f(-l) - 2 f)) / 2.
  template <class Number>
  void differentiate(long entries, const Number* at, Number* first, Number* second) const {
    const Number *ahead = at + entries, *behind = ahead + n_ * entries, *both = behind + n_ * entries;
    for (long e = 0; e < n_ * entries; ++e) first[e] = (0.5 / kStep) * (ahead[e] - behind[e]);
    for (int k = 0; k < n_; ++k)
      for (long e = 0; e < entries; ++e)
        second[number(k, k) * entries + e] =
            (1.0 / (kStep * kStep)) * (ahead[k * entries + e] + behind[k * entries + e] - 2.0 * at[e]);
    for (int p = 0; p < int(apart_.size()); ++p) {
      const Number *more = both + p * entries, *less = more + long(apart_.size()) * entries;
      const int k = apart_[p][0], l = apart_[p][1];
      for (long e = 0; e < entries; ++e)
        second[number(k, l) * entries + e] =
            (0.5 / (kStep * kStep)) * (more[e] + less[e] - 2.0 * at[e]) -
            0.5 * (second[number(k, k) * entries + e] + second[number(l, l) * entries + e]);
    }
  }
  NearTorque near_torque(const double* q, const double* v, const double* a, bool with_spread) {
    if (points_.empty()) {
      points_.assign(n_, 0.0);
      const auto add_point = [&](double sign, int k, int l) {
        points_.resize(points_.size() + n_, 0.0);
        double* point = &points_[points_.size() - n_];
        point[k] = sign * kStep, point[l] = sign * kStep;
      };
      for (double sign : {1.0, -1.0})
        for (int k = 0; k < n_; ++k) add_point(sign, k, k);
      for (double sign : {1.0, -1.0})
        for (const Joints& pair : apart_) add_point(sign, pair[0], pair[1]);
    }
    const long points = long(points_.size()) / n_, each = n_ * all_, pairs = long(orders_[2].size());
    const double* columns = evaluate_near(points_, q, v, a);
    NearTorque near;
    std::vector<Parts> at(points * n_);
    for (long p = 0; p < points; ++p) combine(columns + p * each, &at[p * n_]);
    near.value.assign(at.begin(), at.begin() + n_);
    near.first.resize(n_ * n_), near.second.resize(pairs * n_);
    differentiate(n_, &at[0], &near.first[0], &near.second[0]);
    near.columns.assign(columns, columns + each);
    near.by_columns.resize(n_ * each);
    if (with_spread) {
      second_.resize(pairs * each);
      differentiate(each, columns, &near.by_columns[0], &second_[0]);
      near.of_spread[0] = by_spread(1, columns);
      near.of_spread[1] = by_spread(n_, &near.by_columns[0]);
      near.of_spread[2] = by_spread(pairs, &second_[0]);
    } else {
      const double *ahead = columns + each, *behind = ahead + n_ * each;
      for (long e = 0; e < n_ * each; ++e) near.by_columns[e] = (0.5 / kStep) * (ahead[e] - behind[e]);
    }
    return near;
  }
  // The most that torques (several, n) of what is not known of all parameters can be.
  std::vector<double> by_spread(long several, const double* columns) const {
    std::vector<double> sums(several * n_, 0.0);
    for (long k = 0; k < several; ++k)
      for (int i = 0; i < n_; ++i)
        for (int l = kInertial * i; l < all_; ++l)
          sums[k * n_ + i] += known_.spread[l] * std::fabs(columns[(k * n_ + i) * all_ + l]);
    return sums;
  }

  // Third derivatives (number, n), of odd parts at e_k, 2 e_k, e_k + e_l, e_k - e_l and e_k + e_l + e_m.
  std::vector<Parts> third_torque(const double* q, const double* v, const double* a) {
    if (odd_points_.empty()) {
      const auto add_point = [&](std::initializer_list<std::pair<int, double>> entries) {
        odd_points_.resize(odd_points_.size() + n_, 0.0);
        for (const auto& one : entries) odd_points_[odd_points_.size() - n_ + one.first] += kThirdStep * one.second;
      };
      for (double size : {1.0, 2.0})
        for (int k = 0; k < n_; ++k) add_point({{k, size}});
      for (double sign : {1.0, -1.0})
        for (const Joints& pair : apart_) add_point({{pair[0], 1.0}, {pair[1], sign}});
      for (const Joints& t : orders_[3])
        if (t[0] < t[1] && t[1] < t[2]) add_point({{t[0], 1.0}, {t[1], 1.0}, {t[2], 1.0}});
      const long half = long(odd_points_.size());
      for (long e = 0; e < half; ++e) odd_points_.push_back(-odd_points_[e]);
    }
    const long points = long(odd_points_.size()) / (2 * n_);
    const double* columns = evaluate_near(odd_points_, q, v, a);
    std::vector<Parts> odd(points * n_), behind(n_), third(orders_[3].size() * n_);
    for (long p = 0; p < points; ++p) {
      combine(columns + p * n_ * all_, &odd[p * n_]);
      combine(columns + (points + p) * n_ * all_, &behind[0]);
      for (int i = 0; i < n_; ++i)
        odd[p * n_ + i] = (0.5 / (kThirdStep * kThirdStep * kThirdStep)) * (odd[p * n_ + i] - behind[i]);
    }
    const int count = int(apart_.size());
    const Parts *single = &odd[0], *twice = single + n_ * n_, *sum = twice + n_ * n_, *difference = sum + count * n_,
                *three = difference + count * n_;
    for (int i = 0; i < n_; ++i) {
      const auto set = [&](int k, int l, int m, const Parts& x) { third[number(k, l, m) * n_ + i] = x; };
      std::vector<Parts> total(n_ * n_);
      for (int k = 0; k < n_; ++k) set(k, k, k, twice[k * n_ + i] - 2.0 * single[k * n_ + i]);
      for (int p = 0; p < count; ++p) {
        const int k = apart_[p][0], l = apart_[p][1];
        const Parts &one = single[k * n_ + i], &other = single[l * n_ + i];
        const Parts more = sum[p * n_ + i] - one - other, less = difference[p * n_ + i] - one + other;
        total[k * n_ + l] = more;
        set(k, k, l, more - less);
        set(k, l, l, more + less);
      }
      long p = 0;
      for (const Joints& t : orders_[3])
        if (t[0] < t[1] && t[1] < t[2])
          set(t[0], t[1], t[2], three[p++ * n_ + i] - total[t[0] * n_ + t[1]] - total[t[0] * n_ + t[2]] -
                                    total[t[1] * n_ + t[2]] - single[t[0] * n_ + i] - single[t[1] * n_ + i] -
                                    single[t[2] * n_ + i]);
    }
    return third;
  }

  // F h of torques (several, n).
  std::vector<Parts> in_norm(const std::vector<Parts>& torques) const {
    std::vector<Parts> result(torques.size(), Parts(0.0));
    for (long k = 0; k < long(torques.size()); k += n_)
      for (int a = 0; a < n_; ++a)
        for (int i = a; i < n_; ++i) add_scaled(factor_.at(a, i), torques[k + i], result[k + a]);
    return result;
  }
  // F X F^T with X of torque i and joint j, (n, n), of torques by joint.
  template <class Get>
  void by_joints(Get torques, Parts* to) const {
    std::vector<Parts> matrix(n_ * n_);
    for (int j = 0; j < n_; ++j)
      for (int i = 0; i < n_; ++i) matrix[i * n_ + j] = torques(j)[i];
    transform(&matrix[0], to);
  }

  // Norms of the torque of a state, nominal and its error.
  void bound_torque(const double* q, const double* v, const double* a, Writer& to, NearTorque& near) {
    const int square = n_ * n_;
    near = near_torque(q, v, a, true);
    const std::vector<Parts> third = third_torque(q, v, a);
    const std::vector<Parts> torque = in_norm(near.value), by_joint = in_norm(near.first), pushed = in_norm(near.second);
    std::vector<Parts> curved(n_ * square), model(n_ * square), rates(n_ * n_, Parts(0.0)), twice(square), rate(n_);
    const auto set_rate = [&](const Parts* x, Parts* to) {
      for (int i = 0; i < n_; ++i) {
        to[i] = Parts(0.0);
        for (int j = 0; j < n_; ++j) add_scaled(xi_[j], x[i * n_ + j], to[i]);
      }
    };
    for (int k = 0; k < n_; ++k) {
      by_joints([&](int j) { return &near.second[number(k, j) * n_]; }, &curved[k * square]);
      set_rate(&curved[k * square], &rates[k * n_]);
      // The part of a changing M^-1.
      std::vector<Parts> inner(&by_joint[k * n_], &by_joint[k * n_] + n_);
      for (int i = 0; i < n_; ++i)
        for (int b = 0; b < n_; ++b) add_scaled(-moved_[k * square + i * n_ + b], torque[b], inner[i]);
      for (int i = 0; i < n_; ++i)
        for (int x = 0; x < n_; ++x) {
          Parts sum = curved[k * square + i * n_ + x];
          for (int b = 0; b < n_; ++b) {
            add_scaled(-curvature_[((k * n_ + x) * n_ + i) * n_ + b], torque[b], sum);
            add_scaled(-slope_[(x * n_ + i) * n_ + b], inner[b], sum);
          }
          model[k * square + i * n_ + x] = sum;
        }
    }
    Derivatives of_torque(n_, to), of_rate(n_, to), of_model(n_, to), of_error(n_, to, 2);
    double *error = to.take(1), *error_spread = to.take(1);
    to.put(speed_);
    double *errors_spread = to.take(n_), *curved_spread = to.take(n_);
    *error_spread = flat_length(&near.of_spread[0][0]);
    *error = payloads_.norm(n_, &torque[0]) + *error_spread;
    const double twofold = kRounding * kRounding;
    for (int k = 0; k < n_; ++k) {
      errors_spread[k] = kRounding * flat_length(&near.of_spread[1][k * n_]);
      std::vector<double> entries(square);
      for (int j = 0; j < n_; ++j)
        for (int i = 0; i < n_; ++i) entries[j * n_ + i] = near.of_spread[2][number(k, j) * n_ + i];
      curved_spread[k] = kRounding * flat(&entries[0]);
    }
    of_error.set_norms(errors_spread, 1);
    std::vector<PartProducts> models, errors, thirds, seconds;
    for (const Joints& pair : orders_[2]) {
      const int k = pair[0], l = pair[1], at = number(k, l);
      of_torque.set_first(k, l, twofold * nominal_product(square, &curved[k * square], &curved[l * square]));
      of_rate.set_first(k, l, twofold * nominal_product(n_, &rates[k * n_], &rates[l * n_]));
      models.push_back(products_of(square, &model[k * square], &model[l * square]));
      errors.push_back(products_of(n_, &by_joint[k * n_], &by_joint[l * n_]));
      by_joints([&](int m) { return &third[number(k, l, m) * n_]; }, &twice[0]);
      set_rate(&twice[0], &rate[0]);
      of_torque.set_second(k, l, kRounding * nominal_norm(square, &twice[0]));
      of_rate.set_second(k, l, kRounding * nominal_norm(n_, &rate[0]));
      thirds.push_back(products_of(square, &twice[0], &twice[0]));
      seconds.push_back(products_of(n_, &pushed[at * n_], &pushed[at * n_]));
    }
    set_largest(models, of_model.first, twofold);
    set_largest(errors, of_error.first, twofold);
    const std::vector<double> third_norms = payloads_.largest(thirds), second_norms = payloads_.largest(seconds);
    for (int at = 0; at < int(orders_[2].size()); ++at) {
      const int k = orders_[2][at][0], l = orders_[2][at][1];
      of_model.set_second(k, l, kRounding * (std::sqrt(third_norms[at]) + spread_norm(thirds[at])));
      of_error.set_second(k, l, kRounding * (std::sqrt(second_norms[at]) + flat_length(&near.of_spread[2][at * n_])));
    }
  }

  // Second derivatives of the torque along the line to another state; `next` has its position, and `stride` further on
  // its velocity and acceleration.
  void bound_line(const double* q, const double* next, long stride, double* out) {
    const int square = n_ * n_;
    std::vector<double> at(3 * n_);
    NearTorque sum = moving_torque_;
    const auto add = [](double weight, const auto& x, auto& to) {
      for (size_t e = 0; e < to.size(); ++e) to[e] += weight * x[e];
    };
    const auto add_near = [&](double weight, const NearTorque& near) {
      add(weight, near.value, sum.value), add(weight, near.first, sum.first), add(weight, near.second, sum.second);
      add(weight, near.columns, sum.columns), add(weight, near.by_columns, sum.by_columns);
    };
    const double weight = 1.0 / (kLineStep * kLineStep);
    add_near(-1.0 - 2.0 * weight, moving_torque_);
    for (double step : {kLineStep, -kLineStep}) {
      for (int part = 0; part < 3; ++part)
        for (int j = 0; j < n_; ++j) {
          const double here = q[part * stride + j];
          at[part * n_ + j] = here + step * (next[part * stride + j] - here);
        }
      add_near(weight, near_torque(&at[0], &at[n_], &at[2 * n_], false));
    }
    std::vector<Parts> matrix(square);
    const std::vector<double> of_gradient = by_spread(n_, &sum.by_columns[0]), of_error = by_spread(1, &sum.columns[0]);
    by_joints([&](int j) { return &sum.first[j * n_]; }, &matrix[0]);
    out[0] = kRounding * nominal_norm(square, &matrix[0]);
    out[1] = kRounding * (payloads_.norm(square, &matrix[0]) + flat(&of_gradient[0]));
    out[2] = kRounding * (payloads_.norm(n_, &in_norm(sum.value)[0]) + flat_length(&of_error[0]));
    const std::vector<Parts> by_joint = in_norm(sum.first);
    for (int k = 0; k < n_; ++k) {
      by_joints([&](int j) { return &sum.second[number(k, j) * n_]; }, &matrix[0]);
      out[3 + k] = kRounding * nominal_norm(square, &matrix[0]);
      out[3 + n_ + k] = kRounding * (payloads_.norm(square, &matrix[0]) + spread_norm(square, &matrix[0]));
      out[3 + 2 * n_ + k] = kRounding * (payloads_.norm(n_, &by_joint[k * n_]) + spread_norm(n_, &by_joint[k * n_]));
    }
  }

  const double* radius_;
  const PayloadVertices& payloads_;
  int size_, all_;  // entries of a packed matrix, inertial parameters
  Columns columns_;
  std::vector<Joints> orders_[4], apart_;  // joints of each derivative, in ascending order; pairs of two joints
  std::vector<int> numbers_[4];                  // of derivatives, by their joints in any order
  std::vector<Parts> inertia_by_[4];             // derivatives of M by order, (number, packed)
  std::vector<double> slope_, moved_, curvature_;  // nominal: slope of M (x, n, n), change (k, n, n), both (k, x, n, n)
  std::vector<double> points_, odd_points_, regressor_, second_;
  ArmNorms arm_;
  NearTorque moving_torque_, still_torque_;
  double xi_[W], metric_[W][W], speed_;
};

}  // namespace kernel
