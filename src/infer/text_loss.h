#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "model/language_model.h"

namespace tightloop {

/// How well a model predicts a text: the loss summed over all tokens but the first.
struct TextLoss {
  double sum = 0;
  int64_t tokens = 0;  // predictions
  double mean() const { return tokens ? sum / static_cast<double>(tokens) : 0; }
  /// Of a text of this many bytes.
  double bits_per_byte(int64_t bytes) const;
};

struct TextLossOptions {
  int64_t window = 0;  // most tokens that the model reads at once
  int64_t stride = 0;  // tokens from one window to the next; 0: half a window
  int64_t rows = 8;    // windows in a batch
};

/// The ids as they are, nothing before or after. One window where all fit. Otherwise windows that overlap:
/// each token is predicted once, in the first window that holds it, and sees at least window - stride tokens
/// (all there are, in the first window).
TextLoss text_loss(LanguageModel& model, std::span<const int32_t> ids, const TextLossOptions& options);

}  // namespace tightloop
