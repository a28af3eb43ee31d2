#include "ops/optim/muon.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/square.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def("muon_start_(Tensor[] gradients, Tensor(a!) momentum, Tensor(b!) x, Tensor control) -> ()");
  m.def(
      "muon_end_(Tensor(a!)[] masters, Tensor(b!)[] values, Tensor x, Tensor scale, float lr, float decay, "
      "Tensor control) -> ()");
}

const auto& start_op() {
  static const auto op = find_operator<void(at::TensorList, const Tensor&, const Tensor&, const Tensor&)>(
      "tightloop::muon_start_");
  return op;
}

const auto& end_op() {
  static const auto op = find_operator<void(at::TensorList, at::TensorList, const Tensor&, const Tensor&,
                                            double, double, const Tensor&)>("tightloop::muon_end_");
  return op;
}

// X <- (a + b X X^T + c (X X^T)^2) X, five times: Polar Express (arXiv:2505.16932), whose coefficients
// are computed for five steps, a safety factor of 2e-2 and a cushion of 2.
constexpr std::array<std::array<double, 3>, 5> kPolarExpress{{
    {8.156554524902461, -22.48329292557795, 15.878769915207462},
    {4.042929935166739, -2.808917465908714, 0.5000178451051316},
    {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
    {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
    {2.3465413258596377, -1.7097828382687081, 0.42323551169305323},
}};

// Norms along a side of x (K, m, n), in fp32 (fp64 for fp64).
Tensor norms(const Tensor& x, int64_t along) {
  return at::linalg_vector_norm(x, 2, at::IntArrayRef{along}, /*keepdim=*/true, compute_dtype(x));
}

/// Whether the products of steps are cheaper joined: P3 P2 P1 X needs one product with the long side of X
/// where P3 (P2 (P1 X)) needs three, and the squares in between follow from the first, P1 X X^T P1.
/// Few or small matrices take longer so: there are more products, and each is smaller.
bool is_long(int64_t count, int64_t rows, int64_t columns) {
  constexpr int64_t kMany = 1 << 24;
  return count * rows * columns >= kMany && std::max(rows, columns) >= 2 * std::min(rows, columns);
}
bool is_long(const Tensor& x) { return is_long(x.size(0), x.size(1), x.size(2)); }

/// A matrix before and after some steps of Polar Express is there at once, and so many squares of its short
/// side: its own and the polynomial of that; where steps are joined, their product, the next square and what
/// is on the way to it.
int64_t squares_at_once(bool joined) { return joined ? 5 : 2; }

/// How many steps are joined, one group after the other. All five would lose small singular values to the
/// rounding of the first square; a group starts from the square of what there is by then.
std::vector<size_t> groups(const Tensor& x) {
  return is_long(x) ? std::vector<size_t>{3, 2} : std::vector<size_t>(kPolarExpress.size(), 1);
}

/// Nearly the nearest semi-orthogonal matrix to each of x (K, m, n), which is overwritten.
Tensor orthogonal(Tensor x) {
  const bool tall = x.size(-2) > x.size(-1);
  // Rows brought to one norm, then the whole to less than 1. All follows from the rows' norms, so that x is
  // multiplied once.
  const Tensor rows = norms(x, -1);
  const Tensor even = norms(rows, -2) / std::sqrt(static_cast<double>(x.size(-2))) / rows.clamp_min(1e-6);
  x.mul_(even / (norms(rows * even, -2) * 1.01 + 1e-6));
  const auto* step = kPolarExpress.begin();
  for (const size_t count : groups(x)) {
    Tensor square = tall ? at::bmm(x.mT(), x) : at::bmm(x, x.mT()), joined;
    for (size_t i = 0; i < count; ++i, ++step) {
      const auto& [a, b, c] = *step;
      const Tensor polynomial = at::baddbmm(square, square, square, b, c);
      // Not by baddbmm: that copies x first and reads it once more.
      polynomial.diagonal(0, -2, -1).add_(a);
      joined = i == 0 ? polynomial : at::bmm(polynomial, joined);
      if (i + 1 < count) square = at::bmm(polynomial, at::bmm(square, polynomial));
    }
    x = tall ? at::bmm(x, joined) : at::bmm(joined, x);
  }
  return x;
}

/// What each row (m >= n) or column of x is multiplied by: to the norm of an orthogonal matrix, then to an
/// even variance along the longer side with the whole norm as it was. Updates the variance with weight
/// `fresh`.
Tensor scales(const Tensor& x, const Tensor& variance, const Tensor& fresh) {
  const int64_t along = x.size(-2) >= x.size(-1) ? -1 : -2;
  const auto whole = [](const Tensor& squares) { return squares.sum(at::IntArrayRef{-2, -1}, true); };
  Tensor squares = at::square(norms(x, along));
  const Tensor orthogonal =
      static_cast<double>(std::min(x.size(-2), x.size(-1))) / whole(squares).clamp_min(1e-12);
  squares = squares * orthogonal;
  variance.lerp_(squares / static_cast<double>(x.size(along)), fresh);
  const Tensor even = variance.clamp_min(1e-10).reciprocal();
  return at::sqrt(orthogonal * even * (whole(squares) / whole(squares * even).clamp_min(1e-20)));
}

Tensor start_plain(const MuonTensors& tensors, at::ScalarType dtype, const Tensor& control) {
  const Tensor skip = control[AdamwControl::kSkip], mu = control[MuonControl::kMomentum];
  // What is to be left out becomes 0, so that no weight of 0 meets a NaN.
  Tensor g = at::stack(tensors.gradients)
                 .to(tensors.momentum.scalar_type())
                 .div_(control[AdamwControl::kDivisor])
                 .masked_fill_(skip != 0, 0);
  tensors.momentum.lerp_(g, (1 - mu) * (1 - skip));
  return g.lerp_(tensors.momentum, mu).to(dtype);
}

void end_plain(const MuonTensors& tensors, const Tensor& x, const Tensor& scale, double lr, double decay,
               const Tensor& control) {
  const Tensor weights = at::stack(tensors.masters);
  Tensor update = x * scale;
  update = update + weights * (update * weights >= 0) * (control[MuonControl::kDecay] * decay);
  update.mul_(control[AdamwControl::kRate] * (1 - control[AdamwControl::kSkip]) * lr);
  at::_foreach_sub_(tensors.masters, update.unbind(0));
  if (tensors.values.front().const_data_ptr() != tensors.masters.front().const_data_ptr())
    at::_foreach_copy_(tensors.values, tensors.masters);
}

/// Whether the kernels take these.
bool fused(const MuonTensors& tensors) {
  for (const auto* list : {&tensors.masters, &tensors.gradients, &tensors.values})
    for (const Tensor& tensor : *list)
      if (!tensor.is_contiguous()) return false;
  const Tensor& momentum = tensors.momentum;
  return has_kernel(tensors.gradients.front()) && has_kernel(tensors.values.front()) &&
         momentum.scalar_type() == at::kFloat && momentum[0].numel() < 1 << 30 &&
         registered(start_op(), momentum);
}

MuonDirection direction_of(const MuonTensors& tensors, const MuonSettings& settings, const Tensor& control,
                           bool kernels) {
  c10::NoGradGuard no_grad;
  at::AutoDispatchBelowADInplaceOrView below;
  const Tensor& momentum = tensors.momentum;
  const Tensor numbers = control.to(momentum.scalar_type());
  Tensor x;
  if (kernels) {
    x = at::empty_like(momentum, momentum.options().dtype(settings.compute_dtype));
    start_op().call(tensors.gradients, momentum, x, numbers);
  } else {
    x = start_plain(tensors, settings.compute_dtype, numbers);
  }
  x = orthogonal(std::move(x));
  const Tensor fresh = (1 - numbers[AdamwControl::kSkip]) * (1 - settings.beta2);
  return {x, scales(x, tensors.variance, fresh)};
}

void apply(const MuonTensors& tensors, const MuonDirection& direction, const MuonSettings& settings,
           const Tensor& control, bool kernels) {
  c10::NoGradGuard no_grad;
  at::AutoDispatchBelowADInplaceOrView below;
  const auto& [x, scale] = direction;
  const Tensor numbers = control.to(tensors.momentum.scalar_type());
  const double tallness = static_cast<double>(x.size(-2)) / static_cast<double>(x.size(-1)),
               lr = settings.lr * std::sqrt(std::max(1.0, tallness));
  if (kernels) {
    end_op().call(tensors.masters, tensors.values, x, scale, lr, settings.decay, numbers);
  } else {
    end_plain(tensors, x, scale, lr, settings.decay, numbers);
  }
}

void update(const MuonTensors& tensors, const MuonSettings& settings, const Tensor& control, bool kernels) {
  apply(tensors, direction_of(tensors, settings, control, kernels), settings, control, kernels);
}

}  // namespace

void muon_(const MuonTensors& tensors, const MuonSettings& settings, const Tensor& control) {
  update(tensors, settings, control, fused(tensors));
}

void muon_plain_(const MuonTensors& tensors, const MuonSettings& settings, const Tensor& control) {
  update(tensors, settings, control, /*kernels=*/false);
}

MuonDirection muon_direction(const MuonTensors& tensors, const MuonSettings& settings,
                             const Tensor& control) {
  return direction_of(tensors, settings, control, fused(tensors));
}

void muon_apply_(const MuonTensors& tensors, const MuonDirection& direction, const MuonSettings& settings,
                 const Tensor& control, size_t first, size_t end) {
  const auto some = [&](const std::vector<Tensor>& list) {
    return std::vector<Tensor>(list.begin() + first, list.begin() + end);
  };
  const auto begin = static_cast<int64_t>(first), count = static_cast<int64_t>(end - first);
  const MuonTensors piece{.masters = some(tensors.masters),
                          .gradients = {},
                          .values = some(tensors.values),
                          .momentum = tensors.momentum,
                          .variance = {}};
  apply(piece, {direction.x.narrow(0, begin, count), direction.scale.narrow(0, begin, count)}, settings,
        control, fused(tensors));
}

double muon_workspace(int64_t count, int64_t rows, int64_t columns, at::ScalarType compute_dtype,
                      bool kernels) {
  const auto element = static_cast<double>(c10::elementSize(compute_dtype));
  const double values = static_cast<double>(count * rows * columns);
  const int64_t side = std::min(rows, columns), squares = squares_at_once(is_long(count, rows, columns));
  if (kernels) return element * (2 * values + static_cast<double>(count * squares * side * side));
  // end_plain has most at once: x, and in fp32 the stacked weights, the update before and after decay, three
  // factors of that, and a mask of bytes.
  constexpr double kFp32 = 4, kAtOnce = 6, kMask = 1;
  return (element + kFp32 * kAtOnce + kMask) * values;
}

void muon_reserve(const MuonTensors& tensors, const MuonSettings& settings) {
  const Tensor& momentum = tensors.momentum;
  const auto options = momentum.options().dtype(settings.compute_dtype);
  const int64_t side = std::min(momentum.size(1), momentum.size(2));
  const Tensor x = at::empty_like(momentum, options), next = at::empty_like(momentum, options),
               squares =
                   at::empty({squares_at_once(is_long(momentum)), momentum.size(0), side, side}, options);
}

}  // namespace tightloop::ops
