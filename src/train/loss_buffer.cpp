#include "train/loss_buffer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <stdexcept>
#include <utility>

namespace tightloop {

LossBuffer::LossBuffer(at::Device device, int64_t interval, int64_t sources) : sources_(sources) {
  const auto options = at::TensorOptions(at::kDouble).device(device);
  row_ = at::zeros({kColumns + 2 * sources}, options);
  ring_ = at::zeros({interval, row_.size(0)}, options);
}

LossBuffer::~LossBuffer() = default;

void LossBuffer::finish(int64_t step) {
  if (full()) throw std::logic_error("the loss buffer is full: extract before the next step ends");
  c10::NoGradGuard no_grad;
  ring_[static_cast<int64_t>(steps_.size())].copy_(row_);
  row_.zero_();
  steps_.push_back(step);
}

void LossBuffer::extract(Syncs& syncs) {
  if (steps_.empty()) return;
  c10::NoGradGuard no_grad;
  const auto rows = ring_.narrow(0, 0, static_cast<int64_t>(steps_.size()));
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

std::vector<StepSums> LossBuffer::arrived(bool wait) {
  std::vector<StepSums> sums;
  for (; !copies_.empty(); copies_.pop_front()) {
    const Copy& copy = copies_.front();
    if (copy.done && wait) copy.done->synchronize();
    if (copy.done && !copy.done->query()) break;
    const auto* rows = copy.rows.const_data_ptr<double>();
    for (size_t i = 0; i < copy.steps.size(); ++i) {
      const double* row = rows + static_cast<int64_t>(i) * copy.rows.size(1);
      const double* by_source = row + kColumns;
      sums.push_back({copy.steps[i], row[kLoss], row[kTokens], row[kCorrect], row[kBalance], row[kGradNorm],
                      row[kSkipped] != 0, std::vector<double>(by_source, by_source + sources_),
                      std::vector<double>(by_source + sources_, by_source + 2 * sources_)});
    }
  }
  return sums;
}

}  // namespace tightloop
