#include "train/engine/loss_buffer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <stdexcept>
#include <utility>

#include "dist/processes.h"

namespace tightloop {

LossBuffer::LossBuffer(at::Device device, int64_t interval, int64_t sources, int64_t expert_loads,
                       int64_t layers)
    : sources_(sources), loads_(expert_loads), layers_(layers) {
  const auto options = at::TensorOptions(at::kDouble).device(device);
  row_ = at::zeros({kColumns + 3 * sources + expert_loads + 2 * layers}, options);
  ring_ = at::zeros({interval, row_.size(0)}, options);
}

LossBuffer::~LossBuffer() = default;

void LossBuffer::finish(int64_t step) {
  if (full()) throw std::logic_error("the loss buffer is full: extract before the next step ends");
  c10::NoGradGuard no_grad;
  ring_[static_cast<int64_t>(steps_.size())].copy_(row_);
  row_.narrow(0, 0, kClock).zero_();
  row_.narrow(0, kColumns, row_.size(0) - kColumns).zero_();
  steps_.push_back(step);
}

void LossBuffer::extract(Syncs& syncs, Processes* processes) {
  if (steps_.empty()) return;
  c10::NoGradGuard no_grad;
  const at::Tensor rows = waiting();
  if (processes && processes->world() > 1) {
    const at::Tensor sums = rows.narrow(1, 0, kSums).contiguous(),
                     rest = rows.narrow(1, kColumns, 3 * sources_ + loads_).contiguous();
    processes->sum_({sums, rest});
    rows.narrow(1, 0, kSums).copy_(sums);
    rows.narrow(1, kColumns, rest.size(1)).copy_(rest);
  }
  Copy copy{std::exchange(steps_, {}), {}, nullptr};
  const bool gpu = ring_.is_cuda();
  copy.rows = at::empty(rows.sizes(), at::TensorOptions(at::kDouble).pinned_memory(gpu));
  copy.rows.copy_(rows, /*non_blocking=*/gpu);
  if (gpu) {
    // Rows are reused at once: what writes them next runs on the same stream, after the copy.
    copy.done = std::make_unique<c10::Event>(ring_.device().type());
    copy.done->record(c10::impl::VirtualGuardImpl(ring_.device().type()).getStream(ring_.device()));
  }
  copies_.push_back(std::move(copy));
  syncs.count("loss_extract");
}

std::vector<StepSums> LossBuffer::arrived(size_t outstanding, bool exactly) {
  std::vector<StepSums> sums;
  for (; !copies_.empty(); copies_.pop_front()) {
    if (exactly && copies_.size() <= outstanding) break;
    const Copy& copy = copies_.front();
    if (copy.done && copies_.size() > outstanding) copy.done->synchronize();
    if (copy.done && !copy.done->query()) break;
    const double* row = copy.rows.const_data_ptr<double>();
    for (const int64_t step : copy.steps) {
      const auto part = [&, at = row](int64_t begin, int64_t count) {
        return std::vector<double>(at + begin, at + begin + count);
      };
      const int64_t S = sources_, layers = kColumns + 3 * S + loads_;
      sums.push_back({step, part(0, kColumns), part(kColumns, S), part(kColumns + S, S),
                      part(kColumns + 2 * S, S), part(kColumns + 3 * S, loads_), part(layers, layers_),
                      part(layers + layers_, layers_)});
      row += copy.rows.size(1);
    }
  }
  return sums;
}

}  // namespace tightloop
