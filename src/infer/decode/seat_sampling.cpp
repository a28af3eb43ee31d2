#include "infer/decode/seat_sampling.h"

#include <ATen/ops/zeros.h>

#include <vector>

#include "infer/decode/chosen_tokens.h"
#include "ops/decode/sample_tokens.h"

namespace tightloop {

using Row = ops::SampleSettings;

SeatSampling::SeatSampling(int64_t seats, int64_t vocabulary, at::Device device) : vocabulary_(vocabulary) {
  values_ = at::zeros({seats, Row::kValues}, at::TensorOptions(at::kDouble).device(device));
  numbers_ = at::zeros({seats, Row::kNumbers}, at::TensorOptions(at::kLong).device(device));
}

void SeatSampling::set(int32_t seat, const SamplingConfig& sampling, uint64_t sample, int64_t vocab_size) {
  changed_.insert_or_assign(seat, Settings{sampling, sample, vocab_size});
}

void SeatSampling::send() {
  if (changed_.empty()) return;
  std::vector<double> values;
  std::vector<int64_t> numbers, seats;
  for (const auto& [seat, how] : changed_) {
    seats.push_back(seat);
    double value[Row::kValues] = {};
    value[Row::kTemperature] = how.sampling.temperature, value[Row::kTopP] = how.sampling.top_p;
    value[Row::kMinP] = how.sampling.min_p, value[Row::kPenalty] = how.sampling.repetition_penalty;
    values.insert(values.end(), std::begin(value), std::end(value));
    int64_t number[Row::kNumbers] = {};
    number[Row::kTopK] = how.sampling.top_k, number[Row::kSeed] = how.sampling.seed;
    number[Row::kSample] = static_cast<int64_t>(how.sample), number[Row::kVocabSize] = how.vocab_size;
    number[Row::kSeenLine] = seat;
    numbers.insert(numbers.end(), std::begin(number), std::end(number));
  }
  const auto where = send_numbers<int64_t>(seats, values_.device());
  values_.index_copy_(0, where, send_numbers<double>(values, values_.device()).view({-1, Row::kValues}));
  numbers_.index_copy_(0, where, send_numbers<int64_t>(numbers, values_.device()).view({-1, Row::kNumbers}));
  changed_.clear();
}

void SeatSampling::set_seen(int32_t seat, std::span<const int32_t> ids) {
  if (!seen_.defined()) seen_ = at::zeros({values_.size(0), vocabulary_}, values_.options().dtype(at::kBool));
  const std::vector<int64_t> wide(ids.begin(), ids.end());
  seen_[seat].zero_().index_fill_(0, send_numbers<int64_t>(wide, values_.device()), true);
}

at::Tensor SeatSampling::choose(const at::Tensor& logits_NV, const at::Tensor& seats_N,
                                const at::Tensor& places_N, bool penalised) const {
  ops::SampleSettings settings{.values = values_.index_select(0, seats_N),
                               .numbers = numbers_.index_select(0, seats_N)};
  settings.numbers.select(1, Row::kPosition).copy_(places_N);
  if (penalised) settings.seen = seen_;
  return ops::sample_tokens(logits_NV, settings).ids;
}

}  // namespace tightloop
