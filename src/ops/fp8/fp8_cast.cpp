#include "ops/fp8/fp8_cast.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <tuple>

#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;

constexpr double kSmallestMost = 1e-30;

// There is no CPU kernel: products of fp8 are for GPUs.
TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def("absolute_max(Tensor x) -> Tensor");
  m.def(
      "fp8_cast(Tensor x, Tensor most, bool e5m2, bool rows, bool columns) -> (Tensor rows, Tensor columns, "
      "Tensor"
      " scale)");
}

using AbsoluteMax = Tensor(const Tensor&);
using Fp8Cast = std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, bool, bool, bool);

bool fp8_fits(const c10::OperatorHandle& op, const Tensor& x) {
  const bool narrow = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
  return !plain() && narrow && registered(op, x) && is_flat(x);
}

}  // namespace

Tensor absolute_max(const Tensor& x) {
  static const auto kernel = find_operator<AbsoluteMax>("tightloop::absolute_max");
  return fp8_fits(kernel, x) ? kernel.call(x) : absolute_max_plain(x);
}

Fp8Matrix fp8_cast(const Tensor& x, const Tensor& most, Fp8Format format, bool rows, bool columns) {
  TORCH_CHECK(x.dim() == 2 && x.size(0) % 16 == 0 && x.size(1) % 16 == 0, "fp8_cast: ", x.sizes(),
              " is no matrix whose sizes are multiples of 16");
  static const auto kernel = find_operator<Fp8Cast>("tightloop::fp8_cast");
  if (!fp8_fits(kernel, x)) return fp8_cast_plain(x, most, format, rows, columns);
  auto [by_rows, by_columns, scale] = kernel.call(x, most, format == Fp8Format::kE5m2, rows, columns);
  return {rows ? by_rows : Tensor(), columns ? by_columns : Tensor(), scale};
}

Tensor absolute_max_plain(const Tensor& x) {
  const Tensor magnitude = x.to(at::kFloat).abs();
  return at::where(magnitude.isnan(), 0, magnitude).max();
}

Fp8Matrix fp8_cast_plain(const Tensor& x, const Tensor& most, Fp8Format format, bool rows, bool columns) {
  const double largest = format == Fp8Format::kE5m2 ? 57344 : 448;
  const Tensor scales = most >= kSmallestMost;
  const Tensor scale = at::where(scales, most / largest, 1);
  const Tensor scaled = (x.to(at::kFloat) * at::where(scales, largest / most, 1)).clamp(-largest, largest);
  const Tensor cast = scaled.to(format == Fp8Format::kE5m2 ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn);
  return {rows ? cast : Tensor(), columns ? cast.t().contiguous() : Tensor(), scale};
}

}  // namespace tightloop::ops
