#include "ops/pointwise/stamp.h"

#include <torch/library.h>

#include <chrono>
#include <optional>

#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(tightloop, m) { m.def("lap_(Tensor(a!) row, int clock, int? part) -> ()"); }

using Lap = void(const Tensor&, int64_t, std::optional<int64_t>);

void lap_cpu(const Tensor& row, int64_t clock, std::optional<int64_t> part) {
  const double now =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  auto* columns = row.mutable_data_ptr<double>();
  if (part) columns[*part] += now - columns[clock];
  columns[clock] = now;
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) { m.impl("lap_", lap_cpu); }

void lap(const Tensor& row, int64_t clock, std::optional<int64_t> part) {
  const auto inside = [&](int64_t column) { return column >= 0 && column < row.numel(); };
  TORCH_CHECK(row.dim() == 1 && row.scalar_type() == at::kDouble && row.is_contiguous() && inside(clock) &&
                  (!part || (inside(*part) && *part != clock)),
              "lap_: the row must be dense fp64 and have both columns");
  static const auto op = find_operator<Lap>("tightloop::lap_");
  at::AutoDispatchBelowADInplaceOrView below;
  op.call(row, clock, part);
}

}  // namespace

void stamp_(const Tensor& row, int64_t column) { lap(row, column, {}); }

void lap_(const Tensor& row, int64_t clock, int64_t part) { lap(row, clock, part); }

}  // namespace tightloop::ops
