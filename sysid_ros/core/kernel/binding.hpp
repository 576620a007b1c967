// The kernel for Python, included once for each kind of machine: arrays of float64 in C order, in and out without
// copies, and without the interpreter's lock.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <string>

#include "node_norms.hpp"
#include "pieces.hpp"

namespace py = pybind11;

namespace {

using kernel::Columns;
using kernel::Tree;
typedef py::array_t<double, py::array::c_style> Array;

void require(bool is_true, const char* what) {
  if (!is_true) throw std::invalid_argument(what);
}

// The data of an array of this shape.
template <class... Sizes>
const double* read(const Array& array, Sizes... sizes) {
  const py::ssize_t shape[] = {py::ssize_t(sizes)...};
  bool fits = array.ndim() == py::ssize_t(sizeof...(sizes));
  for (py::ssize_t k = 0; fits && k < array.ndim(); ++k) fits = array.shape(k) == shape[k];
  require(fits, "an array has another shape than the samples, joints and columns need");
  return array.data();
}
template <class... Sizes>
double* write(Array& array, Sizes... sizes) {
  read(array, sizes...);
  return array.mutable_data();
}

kernel::Turn make_turn(const double* rows) {
  kernel::Turn turn{};
  turn.is_identity = true;
  for (int k = 0; k < 9; ++k) {
    turn.r[k] = rows[k];
    turn.is_identity = turn.is_identity && rows[k] == (k % 4 == 0 ? 1.0 : 0.0);
  }
  return turn;
}

Tree make_tree(const std::vector<int>& parents, const Array& turns, const Array& places, const Array& spins,
               const Array& pitches, const Array& frames, const Array& gravity) {
  const int n = int(parents.size());
  const double *turn = read(turns, n, 3, 3), *place = read(places, n, 3), *spin = read(spins, n),
               *pitch = read(pitches, n), *frame = read(frames, n, 3, 3), *down = read(gravity, 3);
  Tree tree;
  tree.gravity = {down[0], down[1], down[2]};
  for (int i = 0; i < n; ++i) {
    require(-1 <= parents[i] && parents[i] < i, "the parent of a body must come before it");
    std::vector<int> chain;
    if (parents[i] >= 0) chain = tree.chains[parents[i]];
    tree.joints.push_back({parents[i], int(chain.size()), make_turn(turn + 9 * i),
                           {place[3 * i], place[3 * i + 1], place[3 * i + 2]}, spin[i], pitch[i],
                           make_turn(frame + 9 * i)});
    chain.push_back(i);
    tree.chains.push_back(chain);
  }
  return tree;
}

Columns make_columns(const std::vector<int>& bodies, int joints, bool has_friction, bool has_armature) {
  require(!bodies.empty(), "a regressor needs at least one body");
  for (int body : bodies) require(0 <= body && body < joints, "there is no such body");
  return {bodies, joints, has_friction, has_armature};
}

// Run with the number type for so many samples: one at a time, or in lanes.
template <class Function>
void run(long samples, Function function) {
  py::gil_scoped_release unlocked;
  if (samples < KERNEL_LANES)
    function(0.0);
  else
    function(kernel::Lanes<KERNEL_LANES>(0.0));
}

// The width of the rows of a regressor, with or without columns of friction.
int width_of(const Array& rows, const Columns& columns) {
  const py::ssize_t width = rows.ndim() == 3 ? rows.shape(2) : 0;
  require(width == columns.inertial() || width == columns.total(), "the rows of a regressor are not as wide as it is");
  return int(width);
}

void torque(const Tree& tree, const Columns& columns, const Array& q, const Array& v, const Array& a,
            const Array& direction, Array out) {
  const long samples = q.shape(0);
  const int n = tree.size(), width = width_of(out, columns);
  const double *at = read(q, samples, n), *speed = read(v, samples, n), *rate = read(a, samples, n),
               *sign = read(direction, samples, n);
  double* to = write(out, samples, n, width);
  run(samples, [&](auto number) {
    kernel::torque_regressor<decltype(number)>(tree, columns, samples, at, speed, rate, sign, to, width);
  });
}

void torque_pull_back(const Tree& tree, const Columns& columns, const Array& q, const Array& v, const Array& a,
                      const Array& weight, Array out) {
  const long samples = q.shape(0);
  const int n = tree.size(), width = width_of(weight, columns);
  const double *at = read(q, samples, n), *speed = read(v, samples, n), *rate = read(a, samples, n),
               *by = read(weight, samples, n, width);
  double* to = write(out, 3, samples, n);
  run(samples, [&](auto number) {
    kernel::torque_pull_back<decltype(number)>(tree, columns, samples, at, speed, rate, by, width, to);
  });
}

void slotine_li(const Tree& tree, const Columns& columns, const Array& q, const Array& v, const Array& v_a,
                const Array& a_a, const Array& direction, Array out) {
  const long samples = q.shape(0);
  const int n = tree.size(), width = width_of(out, columns);
  const double *at = read(q, samples, n), *speed = read(v, samples, n), *wanted = read(v_a, samples, n),
               *rate = read(a_a, samples, n), *sign = read(direction, samples, n);
  double* to = write(out, samples, n, width);
  run(samples, [&](auto number) {
    kernel::slotine_li_regressor<decltype(number)>(tree, columns, samples, at, speed, wanted, rate, sign, to, width);
  });
}

void momentum(const Tree& tree, const Columns& columns, const Array& q, const Array& v, const Array& direction,
              Array of_momentum, Array of_force) {
  const long samples = q.shape(0);
  const int n = tree.size(), width = width_of(of_momentum, columns);
  const double *at = read(q, samples, n), *speed = read(v, samples, n), *sign = read(direction, samples, n);
  double *first = write(of_momentum, samples, n, width), *second = write(of_force, samples, n, width);
  run(samples, [&](auto number) {
    kernel::momentum_regressors<decltype(number)>(tree, columns, samples, at, speed, sign, first, second, width);
  });
}

void passive_torque(const Tree& tree, const Array& parameters, const Array& q, const Array& v, const Array& v_a,
                    const Array& a, Array out) {
  const long samples = q.shape(0);
  const int n = tree.size();
  const double *bodies = read(parameters, kernel::kInertial * n), *at = read(q, samples, n),
               *speed = read(v, samples, n), *wanted = read(v_a, samples, n), *rate = read(a, samples, n);
  double* to = write(out, samples, n);
  run(samples, [&](auto number) {
    kernel::passive_torque<decltype(number)>(tree, bodies, samples, at, speed, wanted, rate, to);
  });
}

void momentum_of(const Tree& tree, const Array& parameters, const Array& q, const Array& v, Array momentum,
                 Array force) {
  const long samples = q.shape(0);
  const int n = tree.size();
  const double *bodies = read(parameters, kernel::kInertial * n), *at = read(q, samples, n),
               *speed = read(v, samples, n);
  double *first = write(momentum, samples, n), *second = write(force, samples, n);
  run(samples, [&](auto number) {
    kernel::momentum_of<decltype(number)>(tree, bodies, samples, at, speed, first, second);
  });
}

void integrate(const Tree& tree, const Columns& columns, const Array& q, const Array& v, const Array& weights,
               Array out) {
  const long samples = q.shape(0);
  const int n = tree.size();
  const double *at = read(q, samples, n), *speed = read(v, samples, n), *by = read(weights, samples);
  double* to = write(out, n, columns.inertial());
  run(samples, [&](auto number) {
    kernel::integrate_force<decltype(number)>(tree, columns, samples, at, speed, by, to);
  });
}

void frames(const Tree& tree, const Array& q, Array rotation, Array origin, Array motion) {
  const long samples = q.shape(0);
  const int n = tree.size();
  const double* at = read(q, samples, n);
  double *axes = write(rotation, n, 3, 3, samples), *point = write(origin, n, 3, samples),
         *rate = write(motion, n, 6, samples);
  run(samples, [&](auto number) { kernel::frames<decltype(number)>(tree, samples, at, axes, point, rate); });
}

void torque_along(const Tree& tree, const Array& position, const Array& velocity, const Array& acceleration,
                  Array out) {
  const int n = tree.size();
  const long pieces = position.ndim() == 3 ? position.shape(2) : 0;
  const double *at = read(position, kernel::kPolynomial, n, pieces),
               *speed = read(velocity, kernel::kPolynomial, n, pieces),
               *rate = read(acceleration, kernel::kPolynomial, n, pieces);
  int pairs = 0;
  for (const auto& chain : tree.chains) pairs += int(chain.size());
  double* to = write(out, 3, 4, pairs, kernel::kInertial, pieces);
  run(pieces, [&](auto number) { kernel::torque_along<decltype(number)>(tree, pieces, at, speed, rate, to); });
}

void points_along(const Tree& tree, const Array& position, const std::vector<int>& bodies, const Array& local,
                  Array points, Array axes, Array origins) {
  const int n = tree.size(), count = int(bodies.size());
  const long pieces = position.ndim() == 3 ? position.shape(2) : 0;
  for (int body : bodies) require(0 <= body && body <= n, "there is no such body");
  const double *at = read(position, kernel::kPolynomial, n, pieces), *place = read(local, count, 3);
  double *to = write(points, 4, count, 3, pieces), *axis = write(axes, n, 3, pieces),
         *origin = write(origins, n, 3, pieces);
  run(pieces, [&](auto number) {
    kernel::points_along<decltype(number)>(tree, pieces, at, bodies, place, to, axis, origin);
  });
}

void momentum_derivatives(const Tree& tree, const Array& q, const Array& v, Array of_momentum, Array of_force,
                          Array momentum_q, Array momentum_v, Array force_q, Array force_v) {
  const long samples = q.shape(0);
  const int n = tree.size(), width = kernel::kInertial * n;
  const double *at = read(q, samples, n), *speed = read(v, samples, n);
  double *values[] = {write(of_momentum, samples, n, width), write(of_force, samples, n, width)},
         *slopes[] = {write(momentum_q, samples, n, width, n), write(momentum_v, samples, n, width, n),
                      write(force_q, samples, n, width, n), write(force_v, samples, n, width, n)};
  py::gil_scoped_release unlocked;
  kernel::momentum_derivatives(tree, samples, at, speed, values[0], values[1], slopes[0], slopes[1], slopes[2],
                               slopes[3]);
}

constexpr int kMostJoints = 8;  // rows of the matrices of an arm: 16 would take minutes to compile
typedef kernel::Matrix<kMostJoints> Matrix;
typedef kernel::NodeNorms<kMostJoints, kernel::Lanes<KERNEL_LANES>> NodeNorms;

kernel::Vertices make_vertices(const Array& weights) {
  require(weights.ndim() == 2, "weights of vertices must be a matrix");
  return {read(weights, weights.shape(0), weights.shape(1)), long(weights.shape(0)), int(weights.shape(1))};
}

void model_terms(const Tree& tree, const Array& parameters, const std::vector<int>& last, const Array& weights,
                 const Array& states, const Array& along, Array of_inertia, Array of_torque, Array inertia,
                 Array gradient) {
  const int n = tree.size(), count = (kernel::kInertial + 1) * n;
  const long samples = along.shape(0);
  require(n <= kMostJoints, "an arm has more joints than its matrices have rows");
  const double *known = read(parameters, 3, count), *at = read(states, 3, samples, n), *by = read(along, samples, n);
  const kernel::KnownParameters all{known, known + count, known + 2 * count, last, make_vertices(weights)};
  require(all.vertices.parts() == 1 + int(last.size()), "vertices must have a weight for each parameter, and one more");
  for (int l : last) require(0 <= l && l < kernel::kInertial * n, "there is no such inertial parameter");
  double* to[] = {of_inertia.shape(0) == 0 ? nullptr : write(of_inertia, samples, 8), write(of_torque, samples, 3),
                  write(inertia, samples, n, n), write(gradient, samples, n, n)};
  py::gil_scoped_release unlocked;
  kernel::model_terms<kMostJoints>(tree, all, samples, at, at + samples * n, at + 2 * samples * n, by, to[0], to[1],
                                   to[2], to[3]);
}

// Sets of payloads: of the uncertainty, and those with which E has the smallest and the largest eigenvalue.
void node_norms(const Tree& tree, const Array& parameters, const std::vector<std::pair<std::vector<int>, Array>>& sets,
                const std::vector<Array>& inertias, const Array& states, Array out, std::vector<Array> of_extremes) {
  const int n = tree.size(), count = (kernel::kInertial + 1) * n;
  const long samples = states.ndim() == 3 ? states.shape(1) : 0;
  require(n <= kMostJoints, "an arm has more joints than its matrices have rows");
  require(sets.size() == 3 && inertias.size() == 2 && of_extremes.size() == 2, "there are two extremes");
  const double *known = read(parameters, 4, count), *at = read(states, 3, samples, n);
  std::vector<kernel::PayloadVertices> payloads;
  for (const auto& set : sets) {
    payloads.push_back({set.first, make_vertices(set.second)});
    require(payloads.back().vertices.parts() == 1 + int(set.first.size()), "a vertex has a weight for each parameter");
    for (int one : set.first) require(0 <= one && one < kernel::kInertial, "there is no such inertial parameter");
  }
  std::vector<int> last = sets[0].first;
  for (int& one : last) one += kernel::kInertial * (n - 1);
  const kernel::KnownParameters all{known, known + count, known + 2 * count, last, payloads[0].vertices};
  const auto extreme = [&](int k) {
    const long several = sets[1 + k].second.shape(0);
    return kernel::ExtremeInertias{2.0 * k - 1.0, read(inertias[k], samples, several, n, n), several, payloads[1 + k]};
  };
  const std::array<kernel::ExtremeInertias, 2> extremes{extreme(0), extreme(1)};
  double* to = write(out, samples, NodeNorms::width(n));
  const std::array<double*, 2> ends{write(of_extremes[0], samples, extremes[0].count, 2 + 2 * n),
                                    write(of_extremes[1], samples, extremes[1].count, 2 + 2 * n)};
  py::gil_scoped_release unlocked;
  NodeNorms norms(tree, all, known + 3 * count, payloads[0]);
  for (long s = 0; s < samples; ++s) norms.evaluate(s, samples, at, extremes, to + s * NodeNorms::width(n), ends);
}

void largest_eigenvalues(const Array& matrices, Array out) {
  require(matrices.ndim() == 4, "matrices must be (samples, several, n, n)");
  const long samples = matrices.shape(0), several = matrices.shape(1);
  const int n = int(matrices.shape(2));
  require(n <= kMostJoints, "matrices have more rows than those of an arm");
  const double* from = read(matrices, samples, several, n, n);
  double* to = write(out, samples);
  py::gil_scoped_release unlocked;
  for (long s = 0; s < samples; ++s)
    to[s] = kernel::largest_of_any<kMostJoints>(n, several, [&](long k) {
      Matrix one = Matrix::zero();
      const double* entries = from + (s * several + k) * n * n;
      for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) one.set(i, j, entries[i * n + j]);
      return one;
    });
}

void largest_vectors(const Array& weights, const Array& vectors, const Array& metric, Array lengths, Array entries) {
  const kernel::Vertices vertices = make_vertices(weights);
  const long samples = vectors.shape(0);
  const int n = vectors.ndim() == 3 ? int(vectors.shape(2)) : 0;
  const double *from = read(vectors, samples, vertices.parts(), n), *by = read(metric, samples, n, n);
  double *length = write(lengths, samples), *entry = write(entries, samples, n);
  py::gil_scoped_release unlocked;
  for (long s = 0; s < samples; ++s)
    length[s] = vertices.largest_vector(n, from + s * vertices.parts() * n, by + s * n * n, entry + s * n);
}

bool supports(const std::string& variant) {
#if defined(__x86_64__)
  if (variant == "_avx512") return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
  if (variant == "_avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return variant == "_portable";
}

}  // namespace

PYBIND11_MODULE(KERNEL_MODULE, module) {
  module.doc() = "The chain of an arm, compiled; sysid_ros.core.kernel documents and chooses the variant.";
  module.attr("lanes") = KERNEL_LANES;
  module.attr("most_joints") = kMostJoints;
  module.attr("line_step") = NodeNorms::kLineStep;
  module.def("supports", &supports, "Tell whether this machine runs a variant.");
  const auto written = [](const char* name) { return py::arg(name).noconvert(); };  // never into a copy
  module.def("node_norms_width", &NodeNorms::width, py::arg("joints"));
  module.def("largest_eigenvalues", &largest_eigenvalues, py::arg("matrices"), written("out"));
  module.def("largest_vectors", &largest_vectors, py::arg("weights"), py::arg("vectors"), py::arg("metric"),
             written("lengths"), written("entries"));
  // Local: the modules for other machines have types of the same names.
  py::class_<Columns>(module, "Columns", py::module_local()).def(py::init(&make_columns));
  py::class_<Tree>(module, "Tree", py::module_local())
      .def(py::init(&make_tree))
      .def("torque", &torque, py::arg("columns"), py::arg("q"), py::arg("v"), py::arg("a"), py::arg("direction"),
           written("out"))
      .def("torque_pull_back", &torque_pull_back, py::arg("columns"), py::arg("q"), py::arg("v"), py::arg("a"),
           py::arg("weight"), written("slopes"))
      .def("slotine_li", &slotine_li, py::arg("columns"), py::arg("q"), py::arg("v"), py::arg("v_a"), py::arg("a_a"),
           py::arg("direction"), written("out"))
      .def("passive_torque", &passive_torque, py::arg("parameters"), py::arg("q"), py::arg("v"), py::arg("v_a"),
           py::arg("a"), written("out"))
      .def("momentum_of", &momentum_of, py::arg("parameters"), py::arg("q"), py::arg("v"), written("momentum"),
           written("force"))
      .def("momentum", &momentum, py::arg("columns"), py::arg("q"), py::arg("v"), py::arg("direction"),
           written("momentum"), written("force"))
      .def("integrate", &integrate, py::arg("columns"), py::arg("q"), py::arg("v"), py::arg("weights"),
           written("out"))
      .def("momentum_derivatives", &momentum_derivatives, py::arg("q"), py::arg("v"), written("momentum"),
           written("force"), written("momentum_q"), written("momentum_v"), written("force_q"), written("force_v"))
      .def("frames", &frames, py::arg("q"), written("rotation"), written("origin"), written("axes"))
      .def("torque_along", &torque_along, py::arg("position"), py::arg("velocity"), py::arg("acceleration"),
           written("out"))
      .def("points_along", &points_along, py::arg("position"), py::arg("bodies"), py::arg("local"), written("points"),
           written("axes"), written("origins"))
      .def("model_terms", &model_terms, py::arg("parameters"), py::arg("last"), py::arg("weights"), py::arg("states"),
           py::arg("along"), written("of_inertia"), written("of_torque"), written("inertia"), written("gradient"))
      .def("node_norms", &node_norms, py::arg("parameters"), py::arg("sets"), py::arg("inertias"), py::arg("states"),
           written("out"), written("of_extremes"));
}
