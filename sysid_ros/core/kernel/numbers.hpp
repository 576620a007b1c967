// Number types of the kernel: double, lanes of samples, values with a gradient, and Taylor models.
//
// An algorithm is a template over its number type T. It may use + - *, unary minus, products with double, and
// sine_and_cosine.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace kernel {

#define KERNEL_INLINE inline __attribute__((always_inline))

template <int W>
struct VectorOf;
template <>
struct VectorOf<2> {
  typedef double Real __attribute__((vector_size(16)));
  typedef std::int64_t Bits __attribute__((vector_size(16)));
};
template <>
struct VectorOf<4> {
  typedef double Real __attribute__((vector_size(32)));
  typedef std::int64_t Bits __attribute__((vector_size(32)));
};
template <>
struct VectorOf<8> {
  typedef double Real __attribute__((vector_size(64)));
  typedef std::int64_t Bits __attribute__((vector_size(64)));
};

// W samples side by side, in a vector register where the machine has one of this width.
template <int W>
struct Lanes {
  typedef typename VectorOf<W>::Real Vector;
  Vector value;

  Lanes() = default;
  KERNEL_INLINE Lanes(double all) : value(Vector{} + all) {}
  KERNEL_INLINE Lanes(Vector given) : value(given) {}
};

template <int W>
KERNEL_INLINE Lanes<W> operator+(Lanes<W> a, Lanes<W> b) {
  return a.value + b.value;
}
template <int W>
KERNEL_INLINE Lanes<W> operator-(Lanes<W> a, Lanes<W> b) {
  return a.value - b.value;
}
template <int W>
KERNEL_INLINE Lanes<W> operator*(Lanes<W> a, Lanes<W> b) {
  return a.value * b.value;
}
template <int W>
KERNEL_INLINE Lanes<W> operator*(double a, Lanes<W> b) {
  return Lanes<W>(a).value * b.value;
}
template <int W>
KERNEL_INLINE Lanes<W> operator*(Lanes<W> a, double b) {
  return b * a;
}
template <int W>
KERNEL_INLINE Lanes<W> operator-(Lanes<W> a) {
  return -a.value;
}

// Samples that a number holds, and access to each.
template <class T>
constexpr int kLanes = 1;
template <int W>
constexpr int kLanes<Lanes<W>> = W;

KERNEL_INLINE double get_lane(double x, int) { return x; }
KERNEL_INLINE void set_lane(double& x, int, double value) { x = value; }
template <int W>
KERNEL_INLINE double get_lane(const Lanes<W>& x, int lane) {
  return x.value[lane];
}
template <int W>
KERNEL_INLINE void set_lane(Lanes<W>& x, int lane, double value) {
  x.value[lane] = value;
}

// W numbers side by side, whatever the width of the registers.
template <int W>
struct Row {
  double value[W];

  Row() = default;
  KERNEL_INLINE Row(double all) {
    for (double& one : value) one = all;
  }
};

template <int W>
KERNEL_INLINE Row<W> operator+(Row<W> a, const Row<W>& b) {
  for (int j = 0; j < W; ++j) a.value[j] += b.value[j];
  return a;
}
template <int W>
KERNEL_INLINE Row<W> operator-(Row<W> a, const Row<W>& b) {
  for (int j = 0; j < W; ++j) a.value[j] -= b.value[j];
  return a;
}
template <int W>
KERNEL_INLINE Row<W> operator*(Row<W> a, const Row<W>& b) {
  for (int j = 0; j < W; ++j) a.value[j] *= b.value[j];
  return a;
}
template <int W>
KERNEL_INLINE Row<W> operator*(double a, Row<W> b) {
  for (double& one : b.value) one *= a;
  return b;
}
template <int W>
KERNEL_INLINE Row<W> operator*(const Row<W>& a, double b) {
  return b * a;
}
template <int W>
KERNEL_INLINE Row<W> operator-(const Row<W>& a) {
  return -1.0 * a;
}

// Add weight x, without a row in between.
template <int W>
KERNEL_INLINE void add_scaled(double weight, const Row<W>& x, Row<W>& to) {
  for (int j = 0; j < W; ++j) to.value[j] += weight * x.value[j];
}

// A value and its partial derivatives by P variables (forward differentiation).
template <int P>
struct Gradient {
  double value;
  Row<P> slope;

  Gradient() = default;
  KERNEL_INLINE Gradient(double constant) : value(constant), slope(0.0) {}
  KERNEL_INLINE Gradient(double at, const Row<P>& by) : value(at), slope(by) {}
};

template <int P>
KERNEL_INLINE Gradient<P> operator+(const Gradient<P>& a, const Gradient<P>& b) {
  return {a.value + b.value, a.slope + b.slope};
}
template <int P>
KERNEL_INLINE Gradient<P> operator-(const Gradient<P>& a, const Gradient<P>& b) {
  return {a.value - b.value, a.slope - b.slope};
}
template <int P>
KERNEL_INLINE Gradient<P> operator*(const Gradient<P>& a, const Gradient<P>& b) {
  return {a.value * b.value, a.value * b.slope + b.value * a.slope};
}
template <int P>
KERNEL_INLINE Gradient<P> operator*(double a, const Gradient<P>& b) {
  return {a * b.value, a * b.slope};
}
template <int P>
KERNEL_INLINE Gradient<P> operator*(const Gradient<P>& a, double b) {
  return b * a;
}
template <int P>
KERNEL_INLINE Gradient<P> operator-(const Gradient<P>& a) {
  return {-a.value, -a.slope};
}

template <class T>
KERNEL_INLINE T& operator+=(T& a, const T& b) {
  return a = a + b;
}
template <class T>
KERNEL_INLINE T& operator-=(T& a, const T& b) {
  return a = a - b;
}

KERNEL_INLINE double magnitude(double x) { return std::fabs(x); }
template <int W>
KERNEL_INLINE Lanes<W> magnitude(Lanes<W> x) {
  return Lanes<W>(x.value < 0.0 ? -x.value : x.value);
}

// A function of u in [-1, 1], enclosed: within c[0] + c[1] u + c[2] u^2 + c[3] u^3 +- rest. All operations keep this
// true in exact arithmetic; what reads the results allows for rounding.
template <class T>
struct Taylor {
  static constexpr int kOrder = 3;
  T c[kOrder + 1], rest;

  Taylor() = default;
  KERNEL_INLINE Taylor(double constant) : c{T(constant), T(0.0), T(0.0), T(0.0)}, rest(0.0) {}

  // The largest magnitude of the polynomial.
  KERNEL_INLINE T size() const { return magnitude(c[0]) + magnitude(c[1]) + magnitude(c[2]) + magnitude(c[3]); }
};

template <class T>
KERNEL_INLINE Taylor<T> operator+(const Taylor<T>& a, const Taylor<T>& b) {
  Taylor<T> r;
  for (int k = 0; k <= Taylor<T>::kOrder; ++k) r.c[k] = a.c[k] + b.c[k];
  r.rest = a.rest + b.rest;
  return r;
}
template <class T>
KERNEL_INLINE Taylor<T> operator-(const Taylor<T>& a, const Taylor<T>& b) {
  Taylor<T> r;
  for (int k = 0; k <= Taylor<T>::kOrder; ++k) r.c[k] = a.c[k] - b.c[k];
  r.rest = a.rest + b.rest;
  return r;
}
template <class T>
KERNEL_INLINE Taylor<T> operator*(double a, const Taylor<T>& b) {
  Taylor<T> r;
  for (int k = 0; k <= Taylor<T>::kOrder; ++k) r.c[k] = a * b.c[k];
  r.rest = std::fabs(a) * b.rest;
  return r;
}
template <class T>
KERNEL_INLINE Taylor<T> operator*(const Taylor<T>& a, double b) {
  return b * a;
}
template <class T>
KERNEL_INLINE Taylor<T> operator-(const Taylor<T>& a) {
  return -1.0 * a;
}
template <class T>
inline Taylor<T> operator*(const Taylor<T>& a, const Taylor<T>& b) {
  const T *x = a.c, *y = b.c;
  Taylor<T> r;
  r.c[0] = x[0] * y[0];
  r.c[1] = x[0] * y[1] + x[1] * y[0];
  r.c[2] = x[0] * y[2] + x[1] * y[1] + x[2] * y[0];
  r.c[3] = x[0] * y[3] + x[1] * y[2] + x[2] * y[1] + x[3] * y[0];
  // |u^4|, |u^5|, u^6 <= 1.
  r.rest = magnitude(x[1] * y[3] + x[2] * y[2] + x[3] * y[1]) + magnitude(x[2] * y[3] + x[3] * y[2]) +
           magnitude(x[3] * y[3]) + a.size() * b.rest + a.rest * (b.size() + b.rest);
  return r;
}

// sine_and_cosine(x, s, c): sine and cosine of x.

KERNEL_INLINE void sine_and_cosine(double x, double& s, double& c) {
  s = std::sin(x);
  c = std::cos(x);
}

// Reduction by pi/2 in three parts of 33 bits (Cody and Waite), so that the products are exact up to 2^20 quarter
// turns, then the minimax polynomials of fdlibm on [-pi/4, pi/4]: within 2^-52. Beyond, and for what is not finite, the
// functions of the library.
template <int W>
KERNEL_INLINE void sine_and_cosine(Lanes<W> x, Lanes<W>& s, Lanes<W>& c) {
  typedef typename VectorOf<W>::Real Vector;
  typedef typename VectorOf<W>::Bits Bits;
  const double shift = 0x1.8p52;  // its last bit counts 1: adding it rounds to an integer
  Vector shifted = x.value * 0.63661977236758134308 + shift;
  Vector turns = shifted - shift;
  Bits beyond = (turns > 1048576.0) | (turns < -1048576.0) | (x.value != x.value);
  Bits quarter;
  std::memcpy(&quarter, &shifted, sizeof quarter);
  Vector r = x.value - turns * 1.57079632673412561417e+00;
  r = r - turns * 6.07710050630396597660e-11;
  r = r - turns * 2.02226624879595063154e-21;
  Vector z = r * r;
  Vector sine = 1.58969099521155010221e-10 * z - 2.50507602534068634195e-08;
  sine = sine * z + 2.75573137070700676789e-06;
  sine = sine * z - 1.98412698298579493134e-04;
  sine = sine * z + 8.33333333332248946124e-03;
  sine = sine * z - 1.66666666666666324348e-01;
  sine = r + r * z * sine;
  Vector cosine = -1.13596475577881948265e-11 * z + 2.08757232129817482790e-09;
  cosine = cosine * z - 2.75573143513906633035e-07;
  cosine = cosine * z + 2.48015872894767294178e-05;
  cosine = cosine * z - 1.38888888888741095749e-03;
  cosine = cosine * z + 4.16666666666666019037e-02;
  cosine = 1.0 - (0.5 * z - z * z * cosine);
  Bits is_odd = (quarter & 1) != 0;
  s.value = is_odd ? cosine : sine;
  c.value = is_odd ? sine : cosine;
  s.value = (quarter & 2) != 0 ? -s.value : s.value;
  c.value = ((quarter + 1) & 2) != 0 ? -c.value : c.value;
  for (int k = 0; k < W; ++k)
    if (__builtin_expect(beyond[k] != 0, 0)) s.value[k] = std::sin(x.value[k]), c.value[k] = std::cos(x.value[k]);
}

// Of a polynomial angle q = a[0] + ... + a[5] u^5 +- a[6]. With d1, d2, ... bounds of the derivatives of q, the fourth
// derivatives of its sine and cosine are at most d1^4 + 6 d1^2 d2 + 3 d2^2 + 4 d1 d3 + d4.
template <class T>
inline void sine_and_cosine_along(const T* a, Taylor<T>& s, Taylor<T>& c) {
  T d[5];
  for (int order = 1; order <= 4; ++order) {
    d[order] = T(0.0);
    for (int k = order; k <= 5; ++k) {
      double factor = 1.0;
      for (int j = 0; j < order; ++j) factor *= k - j;
      d[order] += factor * magnitude(a[k]);
    }
  }
  const T square = d[1] * d[1];
  const T fourth = square * square + 6.0 * square * d[2] + 3.0 * d[2] * d[2] + 4.0 * d[1] * d[3] + d[4];
  T sine, cosine;
  sine_and_cosine(a[0], sine, cosine);
  const T half = 0.5 * a[1] * a[1], mixed = a[1] * a[2], cube = (1.0 / 6.0) * a[1] * a[1] * a[1];
  s.c[0] = sine;
  s.c[1] = cosine * a[1];
  s.c[2] = cosine * a[2] - sine * half;
  s.c[3] = cosine * (a[3] - cube) - sine * mixed;
  c.c[0] = cosine;
  c.c[1] = -sine * a[1];
  c.c[2] = -(cosine * half + sine * a[2]);
  c.c[3] = sine * (cube - a[3]) - cosine * mixed;
  c.rest = s.rest = (1.0 / 24.0) * fourth + a[6];
}

template <int P>
KERNEL_INLINE void sine_and_cosine(const Gradient<P>& x, Gradient<P>& s, Gradient<P>& c) {
  const double sine = std::sin(x.value), cosine = std::cos(x.value);
  s = {sine, cosine * x.slope};
  c = {cosine, -sine * x.slope};
}

}  // namespace kernel
