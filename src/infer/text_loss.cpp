#include "infer/text_loss.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/terminal/progress_line.h"
#include "infer/token_scores.h"

namespace tightloop {

namespace {

// Inputs [begin, begin + length); of its predictions the first `skip` belong to the window before.
struct Window {
  int64_t begin, length, skip;
};

}  // namespace

double TextLoss::bits_per_byte(int64_t bytes) const {
  return bytes ? sum / std::numbers::ln2 / static_cast<double>(bytes) : 0;
}

TextLoss text_loss(LanguageModel& model, std::span<const int32_t> ids, const TextLossOptions& options) {
  const auto total = static_cast<int64_t>(ids.size()) - 1;
  if (total < 1) throw data_error("the text has {} tokens; at least 2 are needed to predict one.", total + 1);
  if (options.window < 1) throw usage_error("a window must have at least one token.");
  const int64_t length = std::min(total, options.window);
  const int64_t stride = options.stride > 0 ? options.stride : std::max<int64_t>(1, length / 2);
  if (stride > length) throw usage_error("a stride of {} is longer than the window of {}.", stride, length);
  std::vector<Window> windows{{0, length, 0}};
  for (int64_t done = length; done < total;) {
    const int64_t fresh = std::min(stride, total - done);
    windows.push_back({done + fresh - length, length, length - fresh});
    done += fresh;
  }
  TextLoss loss;
  ProgressLine progress("Predicted tokens", static_cast<uint64_t>(total), ProgressLine::Unit::kCount);
  for (size_t first = 0; first < windows.size(); first += options.rows) {
    throw_if_interrupted();
    const auto rows = std::min<int64_t>(options.rows, static_cast<int64_t>(windows.size() - first));
    auto inputs = at::empty({rows, length}, at::kLong), targets = at::empty({rows, length}, at::kLong);
    for (int64_t row = 0; row < rows; ++row) {
      const auto from = ids.begin() + windows[first + row].begin;
      std::copy_n(from, length, inputs.mutable_data_ptr<int64_t>() + row * length);
      std::copy_n(from + 1, length, targets.mutable_data_ptr<int64_t>() + row * length);
    }
    const auto scores = score_tokens(model, inputs, targets);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t skip = windows[first + row].skip;
      loss.sum += scores.loss[row].narrow(0, skip, length - skip).sum().item<double>();
      loss.tokens += length - skip;
    }
    progress.set(static_cast<uint64_t>(loss.tokens));
  }
  return loss;
}

}  // namespace tightloop
