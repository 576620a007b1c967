// Norms of small matrices, and the largest ones over the vertices of a set of parameters.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "numbers.hpp"

namespace kernel {

// A matrix of at most W rows; zero beyond its n columns.
template <int W>
struct Matrix {
  Row<W> row[W];

  static Matrix zero() {
    Matrix r;
    for (auto& one : r.row) one = Row<W>(0.0);
    return r;
  }
  KERNEL_INLINE double at(int i, int j) const { return row[i].value[j]; }
  KERNEL_INLINE void set(int i, int j, double x) { row[i].value[j] = x; }
};

template <int W>
inline void add(int n, double weight, const Matrix<W>& x, Matrix<W>& to) {
  for (int i = 0; i < n; ++i) to.row[i] += weight * x.row[i];
}

// X Y, of X the first m rows and columns.
template <int W>
inline Matrix<W> product(int m, const Matrix<W>& x, const Matrix<W>& y) {
  Matrix<W> r = Matrix<W>::zero();
  for (int i = 0; i < m; ++i) {
    Row<W> sum(0.0);
    for (int k = 0; k < m; ++k) sum += x.at(i, k) * y.row[k];
    r.row[i] = sum;
  }
  return r;
}

// Add weight X^T Y, of both the first m rows.
template <int W>
inline void add_product(int n, int m, double weight, const Matrix<W>& x, const Matrix<W>& y, Matrix<W>& to) {
  for (int i = 0; i < n; ++i) {
    Row<W> sum(0.0);
    for (int k = 0; k < m; ++k) sum += x.at(k, i) * y.row[k];
    to.row[i] += weight * sum;
  }
}

template <int W>
inline Matrix<W> transposed(int n, const Matrix<W>& x) {
  Matrix<W> r = Matrix<W>::zero();
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) r.set(j, i, x.at(i, j));
  return r;
}

// The sum of the squares of the first m rows.
template <int W>
inline double squares(int m, const Matrix<W>& x) {
  Row<W> sum(0.0);
  for (int i = 0; i < m; ++i) sum += x.row[i] * x.row[i];
  double total = 0.0;
  for (int j = 0; j < W; ++j) total += sum.value[j];
  return total;
}

// Whether all eigenvalues of a symmetric matrix are below a number, by the pivots of elimination.
template <int W>
inline bool is_below(int n, Matrix<W> x, double number) {
  for (int i = 0; i < n; ++i) {
    x.row[i] = -x.row[i];
    x.set(i, i, x.at(i, i) + number);
  }
  for (int k = 0; k < n; ++k) {
    const double pivot = x.at(k, k);
    if (!(pivot > 0.0)) return false;
    for (int i = k + 1; i < n; ++i) x.row[i] -= (x.at(i, k) / pivot) * x.row[k];
  }
  return true;
}

// The largest eigenvalue of a symmetric matrix: tridiagonal by reflections, then Laguerre's iteration from above, which
// stays above it. What rounding leaves is some 1e-15 of the matrix.
template <int W>
inline double largest_eigenvalue(int n, const Matrix<W>& matrix) {
  double a[W][W], square[W];  // square: of the entries beside the diagonal
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) a[i][j] = matrix.at(i, j);
  for (int k = 0; k + 1 < n; ++k) {
    double below = 0.0;
    for (int i = k + 2; i < n; ++i) below += a[i][k] * a[i][k];
    square[k] = a[k + 1][k] * a[k + 1][k] + below;
    if (below == 0.0) continue;
    const double norm = std::sqrt(square[k]), sign = a[k + 1][k] < 0.0 ? -1.0 : 1.0;
    const double scale = 1.0 / (norm * (norm + std::fabs(a[k + 1][k])));  // 2 / (v . v)
    double v[W], p[W], half = 0.0;
    for (int i = k + 1; i < n; ++i) v[i] = a[i][k];
    v[k + 1] += sign * norm;
    for (int i = k + 1; i < n; ++i) {
      p[i] = 0.0;
      for (int j = k + 1; j < n; ++j) p[i] += a[i][j] * v[j];
      p[i] *= scale;
      half += 0.5 * scale * p[i] * v[i];
    }
    for (int i = k + 1; i < n; ++i) p[i] -= half * v[i];
    for (int i = k + 1; i < n; ++i)
      for (int j = k + 1; j < n; ++j) a[i][j] -= v[i] * p[j] + p[i] * v[j];
  }
  double x = -std::numeric_limits<double>::infinity(), size = 0.0;
  for (int i = 0; i < n; ++i) {
    double beside = i > 0 ? std::sqrt(square[i - 1]) : 0.0;
    if (i + 1 < n) beside += std::sqrt(square[i]);
    x = std::max(x, a[i][i] + beside);
    size = std::max(size, std::fabs(a[i][i]) + beside);
  }
  if (size == 0.0) return 0.0;
  x += 1e-14 * size;
  for (int round = 0; round < 100; ++round) {
    // The determinant of x - A is the product of t; its logarithm has the slope g, which falls by h.
    double t = x - a[0][0], first = 1.0, second = 0.0, g = 0.0, h = 0.0;
    for (int k = 0;; ++k) {
      if (!(t > 0.0)) return x;  // by rounding: the eigenvalue is reached
      const double inverse = 1.0 / t, slope = first * inverse;
      g += slope;
      h += slope * slope - second * inverse;
      if (k + 1 == n) break;
      const double share = square[k] * inverse * inverse;
      second = share * (second - 2.0 * slope * first);
      first = 1.0 + share * first;
      t = x - a[k + 1][k + 1] - square[k] * inverse;
    }
    const double step = n / (g + std::sqrt(std::max(0.0, (n - 1) * (n * h - g * g))));
    if (!(step > 1e-15 * size)) return x;
    x -= step;
  }
  return x;
}

// A unit vector u with (value - X) u = 0 but for rounding, of the largest eigenvalue of X: inverse iteration.
template <int W>
inline void largest_eigenvector(int n, const Matrix<W>& x, double value, double* u) {
  Matrix<W> lower = Matrix<W>::zero();
  double pivot[W], size = std::fabs(value);
  for (int i = 0; i < n; ++i) size = std::max(size, std::fabs(x.at(i, i)));
  for (int j = 0; j < n; ++j) {  // value - X = L P L^T
    for (int i = j; i < n; ++i) {
      double sum = (i == j ? value : 0.0) - x.at(i, j);
      for (int k = 0; k < j; ++k) sum -= lower.at(i, k) * lower.at(j, k) * pivot[k];
      if (i == j) pivot[j] = std::max(sum, 1e-15 * size);
      lower.set(i, j, i == j ? 1.0 : sum / pivot[j]);
    }
    u[j] = 1.0 + 0.1 * j;
  }
  for (int round = 0; round < 3; ++round) {
    double square = 0.0;
    for (int i = 0; i < n; ++i)
      for (int k = 0; k < i; ++k) u[i] -= lower.at(i, k) * u[k];
    for (int i = n - 1; i >= 0; --i) {
      u[i] /= pivot[i];
      for (int k = i + 1; k < n; ++k) u[i] -= lower.at(k, i) * u[k];
      square += u[i] * u[i];
    }
    for (int i = 0; i < n; ++i) u[i] /= std::sqrt(square);
  }
}

// The norm of X, or of X^T.
template <int W>
inline double norm(int n, const Matrix<W>& x) {
  Matrix<W> square = Matrix<W>::zero();
  add_product(n, n, 1.0, x, x, square);
  return std::sqrt(std::max(0.0, largest_eigenvalue(n, square)));
}

// The largest eigenvalue of any of several matrices: few need more than a test whether theirs is larger.
template <int W, class Get>
inline double largest_of_any(int n, long several, Get get) {
  double largest = -std::numeric_limits<double>::infinity();
  for (long k = 0; k < several; ++k) {
    const Matrix<W> one = get(k);
    if (!is_below(n, one, largest)) largest = std::max(largest, largest_eigenvalue(n, one));
  }
  return largest;
}

// A set of parameters: its center, and weights of `parts` matrices or vectors, the first one of the center, that add up
// to what belongs to each of `count` vertices.
class Vertices {
 public:
  Vertices(const double* weights, long count, int parts)
      : count_(count), blocks_((count + kBlock - 1) / kBlock), parts_(parts), pairs_(parts * (parts + 1) / 2) {
    weights_.resize(blocks_ * parts);
    for (long k = 0; k < blocks_ * kBlock; ++k)
      for (int p = 0; p < parts; ++p)
        weights_[k / kBlock * parts + p].set(k % kBlock, weights[std::min(k, count - 1) * parts + p]);
    for (const Block* block = &weights_[0]; block != &weights_[0] + weights_.size(); block += parts)
      for (int p = 0; p < parts; ++p)
        for (int o = p; o < parts; ++o) {
          products_.emplace_back();
          for (int k = 0; k < kBlock; ++k) products_.back().set(k, block[p].get(k) * block[o].get(k));
        }
  }

  int parts() const { return parts_; }
  double weight(long k, int part) const { return weights_[k / kBlock * parts_ + part].get(k % kBlock); }

  // The largest norm of any vertex's X, (sum_x X_x X_x^T)^1/2, with X_x^T of part p at x[p * several + x].
  template <int W>
  double largest_norm(int n, int several, const std::vector<Matrix<W>>& x) const {
    constexpr int kPacked = (W + 1) / 2;  // of the W (W + 1) / 2 entries on and above the diagonal
    struct Packed {
      Row<W> entries[kPacked];
    };
    std::vector<Packed> squares(pairs_, Packed{});
    std::vector<double> traces(pairs_, 0.0);
    int pair = 0;
    for (int p = 0; p < parts_; ++p)
      for (int o = p; o < parts_; ++o, ++pair) {
        Matrix<W> sum = Matrix<W>::zero();
        for (int k = 0; k < several; ++k) add_product(n, n, 1.0, x[p * several + k], x[o * several + k], sum);
        int entry = 0;
        for (int i = 0; i < n; ++i)
          for (int j = i; j < n; ++j, ++entry)
            squares[pair].entries[entry / W].value[entry % W] = o > p ? sum.at(i, j) + sum.at(j, i) : sum.at(i, j);
        for (int i = 0; i < n; ++i) traces[pair] += (o > p ? 2.0 : 1.0) * sum.at(i, i);
      }
    const auto square = [&](long k) {
      Packed sum{};
      for (int one = 0; one < pairs_; ++one) {
        const double weight = products_[k / kBlock * pairs_ + one].get(k % kBlock);
        for (int part = 0; part < kPacked; ++part) sum.entries[part] += weight * squares[one].entries[part];
      }
      Matrix<W> result = Matrix<W>::zero();
      int entry = 0;
      for (int i = 0; i < n; ++i)
        for (int j = i; j < n; ++j, ++entry) {
          const double value = sum.entries[entry / W].value[entry % W];
          result.set(i, j, value);
          result.set(j, i, value);
        }
      return result;
    };
    // No eigenvalue is larger than the trace, and the largest is mostly that of the largest trace.
    std::vector<double> above;
    for (long block = 0; block < blocks_; ++block) {
      const Block sums = sum_of(products_, pairs_, &traces[0], 1, block);
      for (long k = 0; k < std::min<long>(kBlock, count_ - block * kBlock); ++k) above.push_back(sums.get(k));
    }
    const long first = std::max_element(above.begin(), above.end()) - above.begin();
    double largest = largest_eigenvalue(n, square(first));
    for (long k = 0; k < count_; ++k) {
      if (k == first || above[k] <= largest) continue;
      const Matrix<W> one = square(k);
      if (!is_below(n, one, largest)) largest = std::max(largest, largest_eigenvalue(n, one));
    }
    return std::sqrt(std::max(0.0, largest));
  }

  // The largest length (x^T M x)^1/2 of any vertex's vector x, and the largest magnitudes of the entries of x;
  // vectors: (parts, n).
  double largest_vector(int n, const double* vectors, const double* metric, double* entries) const {
    std::vector<double> squares, row(n);
    for (int p = 0; p < parts_; ++p) {
      for (int j = 0; j < n; ++j) {
        row[j] = 0.0;
        for (int i = 0; i < n; ++i) row[j] += vectors[p * n + i] * metric[i * n + j];
      }
      for (int o = p; o < parts_; ++o) {
        double sum = 0.0;
        for (int j = 0; j < n; ++j) sum += row[j] * vectors[o * n + j];
        squares.push_back(o > p ? 2.0 * sum : sum);
      }
    }
    for (int i = 0; i < n; ++i) entries[i] = largest_sum(weights_, parts_, vectors + i, n);
    return std::sqrt(largest_sum(products_, pairs_, &squares[0], 1));
  }

  int pairs() const { return pairs_; }
  // The largest magnitudes of quadratic forms in the weights of any vertex; values: (count, pairs), by pair of a part and
  // it or a later one.
  void largest_forms(long count, const double* values, double* largest) const {
    std::vector<Lanes<4>> most(count, Lanes<4>(0.0));
    for (long block = 0; block < blocks_; ++block)  // the weights of a block stay in the cache
      for (long k = 0; k < count; ++k) raise(most[k], sum_of(products_, pairs_, values + k * pairs_, 1, block));
    for (long k = 0; k < count; ++k) largest[k] = largest_of(most[k]);
  }

 private:
  static constexpr int kBlock = 16;
  struct Block {
    Lanes<4> part[kBlock / 4];
    double get(long k) const { return part[k / 4].value[k % 4]; }
    void set(long k, double x) { part[k / 4].value[k % 4] = x; }
  };

  // The largest magnitude of sum_k weights_k values_k of any vertex.
  double largest_sum(const std::vector<Block>& weights, int count, const double* values, int step) const {
    Lanes<4> most(0.0);
    for (long block = 0; block < blocks_; ++block) raise(most, sum_of(weights, count, values, step, block));
    return largest_of(most);
  }
  static KERNEL_INLINE void raise(Lanes<4>& most, const Block& sums) {
    for (const auto& one : sums.part) {
      const Lanes<4> size = magnitude(one);
      most = Lanes<4>(most.value > size.value ? most.value : size.value);
    }
  }
  static double largest_of(const Lanes<4>& x) {
    return std::max(std::max(x.value[0], x.value[1]), std::max(x.value[2], x.value[3]));
  }

  // sum_k weights_k values_k of the vertices of a block.
  KERNEL_INLINE Block sum_of(const std::vector<Block>& weights, int count, const double* values, int step,
                             long block) const {
    Lanes<4> a(0.0), b(0.0), c(0.0), d(0.0);  // several sums at once keep the registers busy
    for (int k = 0; k < count; ++k) {
      const double value = values[k * step];
      const Lanes<4>* by = weights[block * count + k].part;
      a += value * by[0], b += value * by[1], c += value * by[2], d += value * by[3];
    }
    return {a, b, c, d};
  }

  long count_, blocks_;
  int parts_, pairs_;
  std::vector<Block> weights_, products_;  // of parts, and of pairs of them, by block; the last vertex fills the last one
};

}  // namespace kernel
