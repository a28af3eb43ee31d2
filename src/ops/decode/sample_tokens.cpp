#include "ops/decode/sample_tokens.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <tuple>
#include <vector>

#include "core/random.h"
#include "ops/cpu_rows.h"
#include "ops/decode/sampling_math.h"
#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using cpu::Vec;
using Settings = SampleSettings;

TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def(
      "sample_tokens(Tensor logits, Tensor values, Tensor numbers, Tensor(a!)? seen, bool logprobs) -> "
      "(Tensor, Tensor)");
}
using Sample = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                          const std::optional<Tensor>&, bool);

const auto& sample_op() {
  static const auto op = find_operator<Sample>("tightloop::sample_tokens");
  return op;
}

/// A row's settings, and its scores without NaN and with the penalty.
struct HostRow {
  std::vector<float> scores;
  bool* seen = nullptr;  // null: no penalty
  bool greedy = false;
  float per_score = 0;
  size_t top_k = 0;  // 0: all
  double top_p = 1;
  uint64_t least_weight = 1, draw = 0;

  HostRow(const float* raw, int64_t V, const double* values, const int64_t* numbers, bool* all_seen)
      : scores(raw,
               raw + (numbers[Settings::kVocabSize] > 0 ? std::min(V, numbers[Settings::kVocabSize]) : V)) {
    for (float& score : scores) score = sampling::without_nan(score);
    const auto penalty = static_cast<float>(values[Settings::kPenalty]);
    if (all_seen && penalty > 0 && penalty != 1) {
      seen = all_seen + numbers[Settings::kSeenLine] * V;
      for (size_t id = 0; id < scores.size(); ++id)
        if (seen[id]) scores[id] = sampling::penalised(scores[id], penalty);
    }
    greedy = !(values[Settings::kTemperature] > 0);
    if (!greedy) per_score = sampling::exponents_per_score(values[Settings::kTemperature]);
    if (numbers[Settings::kTopK] > 0) top_k = static_cast<size_t>(numbers[Settings::kTopK]);
    if (top_k >= scores.size()) top_k = 0;
    top_p = values[Settings::kTopP];
    least_weight = sampling::least_weight(values[Settings::kMinP]);
    const auto words = philox(static_cast<uint64_t>(numbers[Settings::kSeed]),
                              static_cast<uint64_t>(numbers[Settings::kPosition]),
                              static_cast<uint64_t>(numbers[Settings::kSample]));
    draw = sampling::draw_of(words[0], words[1]);
  }

  uint64_t rank(size_t id) const { return sampling::rank_of(scores[id], static_cast<int64_t>(id)); }
};

/// sampling::weight_of, eight at a time.
void weigh(const std::vector<float>& scores, float best, float per_score, std::vector<uint64_t>& weights) {
  using namespace sampling;
  using cpu::Bits, cpu::broadcast, cpu::fma;
  const auto size = static_cast<int64_t>(scores.size());
  weights.resize(scores.size());
  const Vec top = broadcast(best), per = broadcast(per_score), rounding = broadcast(kRounding);
  cpu::for_vectors(size, [&](int64_t i, auto lanes) {
    const Vec score = cpu::load(scores.data() + i, lanes), below = score - top;
    const Vec shifted = fma(below, per, rounding), whole = shifted - kRounding,
              rest = fma(below, per, -whole);
    Vec power = fma(broadcast(kPower5), rest, broadcast(kPower4));
    power = fma(power, rest, broadcast(kPower3));
    power = fma(power, rest, broadcast(kPower2));
    power = fma(power, rest, broadcast(kPower1));
    power = fma(power, rest, broadcast(kPower0));
    power = fma(power, rest, broadcast(1.0f));
    const Bits bits = std::bit_cast<Bits>(power);
    const Bits right = 127 - (bits >> 23) - (std::bit_cast<Bits>(shifted) - bits_of(kRounding));
    const Bits digits = (bits & 0x7fffff) | 0x800000;
    const auto some = below * per > broadcast(kLeastExponent), all = score == top;
    for (int64_t j = 0; j < lanes; ++j)
      weights[static_cast<size_t>(i + j)] = all[j]    ? kOne
                                            : some[j] ? uint64_t{digits[j]} << (kOneBits - 23) >> right[j]
                                                      : 0;
  });
}

/// The least rank that top_k and top_p keep.
uint64_t least_kept(const HostRow& row, const std::vector<uint64_t>& weights) {
  std::vector<uint64_t> ranks(row.scores.size());
  for (size_t id = 0; id < ranks.size(); ++id) ranks[id] = row.rank(id);
  auto end = ranks.end();
  uint64_t least = 0;
  if (row.top_k > 0) {
    end = ranks.begin() + static_cast<int64_t>(row.top_k);
    std::nth_element(ranks.begin(), end - 1, ranks.end(), std::greater<>());
    least = end[-1];
  }
  if (!(row.top_p < 1)) return least;
  const auto weight = [&](uint64_t rank) { return weights[static_cast<size_t>(sampling::id_of(rank))]; };
  uint64_t total = 0, sum = 0;
  for (auto rank = ranks.begin(); rank != end; ++rank) total += weight(*rank);
  const uint64_t wanted = sampling::wanted_of(total, row.top_p);
  // The likeliest few are mostly enough: they alone are sorted.
  auto sorted = ranks.begin();
  for (int64_t more = 64; sorted != end; more *= 4) {
    const auto to = end - sorted > more ? sorted + more : end;
    if (to != end) std::nth_element(sorted, to, end, std::greater<>());
    std::sort(sorted, to, std::greater<>());
    for (; sorted != to; ++sorted)
      if ((sum += weight(*sorted)) >= wanted) return *sorted;
  }
  return least;
}

int64_t choose(const HostRow& row, std::vector<uint64_t>& weights) {
  const auto& scores = row.scores;
  const auto best = std::ranges::max_element(scores);
  if (row.greedy) return best - scores.begin();
  weigh(scores, *best, row.per_score, weights);
  const bool cut = row.top_k > 0 || row.top_p < 1;
  const uint64_t least = cut ? least_kept(row, weights) : 0;
  uint64_t total = 0;
  for (size_t id = 0; id < weights.size(); ++id) {
    if (weights[id] < row.least_weight || (cut && row.rank(id) < least)) weights[id] = 0;
    total += weights[id];
  }
  uint64_t rest = sampling::target_of(row.draw, total);
  size_t id = 0;
  for (; rest >= weights[id]; ++id) rest -= weights[id];
  return static_cast<int64_t>(id);
}

/// The same with everything sorted.
int64_t choose_plain(const HostRow& row) {
  struct Token {
    uint64_t rank, weight;
  };
  std::vector<Token> tokens;
  float best = -std::numeric_limits<float>::infinity();
  for (const float score : row.scores) best = std::max(best, score);
  for (size_t id = 0; id < row.scores.size(); ++id)
    tokens.push_back({row.rank(id), sampling::weight_of(row.scores[id], best, row.per_score)});
  std::ranges::sort(tokens, std::greater<>(), &Token::rank);
  const auto total = [&] {
    uint64_t sum = 0;
    for (const Token& token : tokens) sum += token.weight;
    return sum;
  };
  if (row.greedy) tokens.resize(1);
  if (row.top_k > 0) tokens.resize(std::min(tokens.size(), row.top_k));
  if (row.top_p < 1) {
    const uint64_t wanted = sampling::wanted_of(total(), row.top_p);
    uint64_t sum = 0;
    size_t count = 0;
    while (sum < wanted) sum += tokens[count++].weight;
    tokens.resize(count);
  }
  std::erase_if(tokens, [&](const Token& token) { return token.weight < row.least_weight; });
  std::ranges::sort(tokens, {}, [](const Token& token) { return sampling::id_of(token.rank); });
  uint64_t rest = sampling::target_of(row.draw, total());
  size_t at = 0;
  for (; rest >= tokens[at].weight; ++at) rest -= tokens[at].weight;
  return sampling::id_of(tokens[at].rank);
}

/// Of the plain softmax over the first `size` scores.
float log_probability(const float* raw, size_t size, int64_t chosen) {
  float best = -std::numeric_limits<float>::infinity();
  double sum = 0;
  for (size_t id = 0; id < size; ++id) best = std::max(best, sampling::without_nan(raw[id]));
  for (size_t id = 0; id < size; ++id) sum += std::exp(sampling::without_nan(raw[id]) - best);
  return sampling::without_nan(raw[chosen]) - best - static_cast<float>(std::log(sum));
}

template <class Choose>
std::tuple<Tensor, Tensor> sample_on_host(const Tensor& logits_in, const Tensor& values_in,
                                          const Tensor& numbers_in, const std::optional<Tensor>& seen,
                                          bool logprobs, const Choose& choose_of) {
  const Tensor logits = logits_in.to(at::kFloat).contiguous();
  const Tensor values = values_in.contiguous(), numbers = numbers_in.contiguous();
  const int64_t N = logits.size(0), V = logits.size(1);
  Tensor ids = at::empty({N}, logits.options().dtype(at::kLong)), chances;
  if (logprobs) chances = at::empty({N}, logits.options());
  const auto one = [&](int64_t i) {
    const float* const raw = logits.const_data_ptr<float>() + i * V;
    const HostRow row(raw, V, values.const_data_ptr<double>() + i * Settings::kValues,
                      numbers.const_data_ptr<int64_t>() + i * Settings::kNumbers,
                      seen ? seen->mutable_data_ptr<bool>() : nullptr);
    const int64_t chosen = choose_of(row);
    ids.mutable_data_ptr<int64_t>()[i] = chosen;
    if (row.seen) row.seen[chosen] = true;
    if (logprobs) chances.mutable_data_ptr<float>()[i] = log_probability(raw, row.scores.size(), chosen);
  };
  at::parallel_for(0, N, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) one(i);
  });
  return {ids, chances};
}

std::tuple<Tensor, Tensor> sample_cpu(const Tensor& logits, const Tensor& values, const Tensor& numbers,
                                      const std::optional<Tensor>& seen, bool logprobs) {
  return sample_on_host(logits, values, numbers, seen, logprobs, [](const HostRow& row) {
    static thread_local std::vector<uint64_t> weights;
    return choose(row, weights);
  });
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) { m.impl("sample_tokens", sample_cpu); }

void check(const Tensor& logits, const SampleSettings& settings) {
  const int64_t N = logits.dim() == 2 ? logits.size(0) : 0;
  TORCH_CHECK(logits.dim() == 2 && logits.size(1) > 0 && logits.size(1) <= sampling::kMostTokens,
              "sample_tokens: scores of ", logits.sizes(), "; (rows, vocabulary up to ",
              sampling::kMostTokens, ") are wanted");
  const auto is = [&](const Tensor& x, at::ScalarType dtype, at::IntArrayRef sizes) {
    return x.defined() && x.scalar_type() == dtype && x.sizes() == sizes && x.device() == logits.device();
  };
  TORCH_CHECK(is(settings.values, at::kDouble, {N, Settings::kValues}) &&
                  is(settings.numbers, at::kLong, {N, Settings::kNumbers}),
              "sample_tokens: settings for ", N,
              " rows are fp64 (N, 4) and int64 (N, 6) on the scores' device");
  TORCH_CHECK(
      !settings.seen.defined() || (settings.seen.is_contiguous() && settings.seen.dim() == 2 &&
                                   is(settings.seen, at::kBool, {settings.seen.size(0), logits.size(1)})),
      "sample_tokens: the tokens seen are a dense bool (lines, ", logits.size(1), ") on the scores' device");
}

}  // namespace

SampledTokens sample_tokens(const Tensor& logits_NV, const SampleSettings& settings, bool logprobs) {
  check(logits_NV, settings);
  if (plain() || !registered(sample_op(), logits_NV))
    return sample_tokens_plain(logits_NV, settings, logprobs);
  at::AutoDispatchBelowADInplaceOrView below;
  const auto [ids, chances] =
      sample_op().call(logits_NV, settings.values, settings.numbers, given(settings.seen), logprobs);
  return {ids, chances};
}

SampledTokens sample_tokens_plain(const Tensor& logits_NV, const SampleSettings& settings, bool logprobs) {
  check(logits_NV, settings);
  at::AutoDispatchBelowADInplaceOrView below;
  const auto device = logits_NV.device();
  std::optional<Tensor> seen;
  if (settings.seen.defined()) seen = settings.seen.cpu();
  auto [ids, chances] = sample_on_host(logits_NV.cpu(), settings.values.cpu(), settings.numbers.cpu(), seen,
                                       logprobs, choose_plain);
  if (seen && !device.is_cpu()) settings.seen.copy_(*seen);
  return {ids.to(device), chances.defined() ? chances.to(device) : chances};
}

}  // namespace tightloop::ops
