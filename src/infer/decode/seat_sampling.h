#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>

#include "infer/sample.h"

namespace tightloop {

/// How the next token of each seat's sequence is chosen, known to the device. Without settings a seat has the
/// likeliest.
class SeatSampling {
 public:
  SeatSampling(int64_t seats, int64_t vocabulary, at::Device device);

  /// Settings of one seat, from the next send() on.
  void set(int32_t seat, const SamplingConfig& sampling, uint64_t sample, int64_t vocab_size);
  void send();
  /// The tokens that a penalty lessens for a seat are these, and those that are chosen for it from here on.
  void set_seen(int32_t seat, std::span<const int32_t> ids);

  /// int64 (N): the next tokens of some seats, which are at these places of their answers (int32).
  /// `penalised`: whether one of them has a penalty.
  at::Tensor choose(const at::Tensor& logits_NV, const at::Tensor& seats_N, const at::Tensor& places_N,
                    bool penalised) const;

 private:
  struct Settings {
    SamplingConfig sampling;
    uint64_t sample;
    int64_t vocab_size;
  };
  const int64_t vocabulary_;
  std::map<int32_t, Settings> changed_;  // by seat, not sent yet
  at::Tensor values_, numbers_, seen_;   // ops::SampleSettings by seat; `seen` once somebody has a penalty
};

}  // namespace tightloop
