// Number types of the kernel: double, lanes of samples, and values with a gradient.
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

// A value and its partial derivatives by P variables (forward differentiation).
template <int P>
struct Gradient {
  double value;
  Lanes<P> slope;

  Gradient() = default;
  KERNEL_INLINE Gradient(double constant) : value(constant), slope(0.0) {}
  KERNEL_INLINE Gradient(double at, Lanes<P> by) : value(at), slope(by) {}
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

template <int P>
KERNEL_INLINE void sine_and_cosine(const Gradient<P>& x, Gradient<P>& s, Gradient<P>& c) {
  const double sine = std::sin(x.value), cosine = std::cos(x.value);
  s = {sine, cosine * x.slope};
  c = {cosine, -sine * x.slope};
}

}  // namespace kernel
