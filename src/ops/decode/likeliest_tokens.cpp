#include "ops/decode/likeliest_tokens.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "ops/decode/sampling_math.h"
#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using cpu::Vec;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kMostByKernel = 128;  // tokens of a row

TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def("likeliest_tokens(Tensor logits, int count, Tensor? forbidden, Tensor? only) -> (Tensor, Tensor)");
}
using Likeliest = std::tuple<Tensor, Tensor>(const Tensor&, int64_t, const std::optional<Tensor>&,
                                             const std::optional<Tensor>&);

const auto& likeliest_op() {
  static const auto op = find_operator<Likeliest>("tightloop::likeliest_tokens");
  return op;
}

/// The likeliest tokens seen so far, in order. Ids come in ascending order, so one that is no likelier than
/// the last place's is not wanted.
class BestTokens {
 public:
  BestTokens(int64_t* ids, float* scores, int64_t count) : ids_(ids), scores_(scores), count_(count) {}

  /// The score that is not enough; below -inf (NaN) while there is room.
  float wanted() const { return used_ < count_ ? std::nanf("") : scores_[count_ - 1]; }
  void see(int64_t id, float score) {
    if (used_ == count_ && !(score > scores_[count_ - 1])) return;
    int64_t place = used_ < count_ ? used_++ : count_ - 1;
    for (; place > 0 && score > scores_[place - 1]; --place)
      ids_[place] = ids_[place - 1], scores_[place] = scores_[place - 1];
    ids_[place] = id, scores_[place] = score;
  }
  int64_t used() const { return used_; }

 private:
  int64_t* ids_;
  float* scores_;
  int64_t count_, used_ = 0;
};

bool any(cpu::Bits lanes) {
  const auto halves = std::bit_cast<std::array<uint64_t, sizeof lanes / 8>>(lanes);
  return (halves[0] | halves[1] | halves[2] | halves[3]) != 0;
}

Vec without_nan(Vec scores) { return scores == scores ? scores : cpu::broadcast(-kInfinity); }

template <class T>
void likeliest_of_row(const T* row, int64_t V, const bool* forbidden, int64_t only, int64_t count,
                      int64_t* ids, float* log_p) {
  Vec most = cpu::broadcast(-kInfinity);
  cpu::for_vectors(V, [&](int64_t i, auto lanes) {
    most = cpu::larger(most, without_nan(cpu::load(row + i, lanes, -kInfinity)));
  });
  const float best = cpu::largest(most);
  const Vec top = cpu::broadcast(best);
  Vec sums{};
  BestTokens places(ids, log_p, count);
  cpu::for_vectors(V, [&](int64_t i, auto lanes) {
    const Vec score = without_nan(cpu::load(row + i, lanes, -kInfinity));
    Vec weight = score == top ? cpu::broadcast(1.0f) : cpu::exp(score - top);  // both may be infinite
    for (int64_t j = lanes; j < cpu::kLanes; ++j) weight[j] = 0;
    sums += weight;
    if (only >= 0 || !any(std::bit_cast<cpu::Bits>(~(score <= places.wanted())))) return;
    for (int64_t j = 0; j < lanes; ++j)
      if (!(forbidden && forbidden[i + j])) places.see(i + j, score[j]);
  });
  if (only >= 0 && only < V && !(forbidden && forbidden[only]))
    places.see(only, sampling::without_nan(static_cast<float>(row[only])));
  const float log_sum = std::log(cpu::sum(sums));
  for (int64_t place = 0; place < count; ++place) {
    if (place >= places.used())
      ids[place] = 0, log_p[place] = -kInfinity;
    else
      log_p[place] = (log_p[place] == best ? 0 : log_p[place] - best) - log_sum;
  }
}

std::tuple<Tensor, Tensor> likeliest_cpu(const Tensor& logits_in, int64_t count,
                                         const std::optional<Tensor>& forbidden,
                                         const std::optional<Tensor>& only) {
  const Tensor logits = logits_in.stride(1) == 1 ? logits_in : logits_in.contiguous();
  const int64_t N = logits.size(0), V = logits.size(1);
  Tensor ids = at::empty({N, count}, logits.options().dtype(at::kLong));
  Tensor log_p = at::empty({N, count}, logits.options().dtype(at::kFloat));
  const bool* never = forbidden ? forbidden->const_data_ptr<bool>() : nullptr;
  const int64_t* alone = only ? only->const_data_ptr<int64_t>() : nullptr;
  cpu::with_dtype(logits.scalar_type(), [&]<class T>(T) {
    const T* rows = logits.const_data_ptr<T>();
    const int64_t stride = logits.stride(0);
    at::parallel_for(0, N, cpu::grain(V), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n)
        likeliest_of_row(rows + n * stride, V, never, alone ? alone[n] : -1, count,
                         ids.mutable_data_ptr<int64_t>() + n * count,
                         log_p.mutable_data_ptr<float>() + n * count);
    });
  });
  return {ids, log_p};
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) { m.impl("likeliest_tokens", likeliest_cpu); }

void check(const Tensor& logits, int64_t count, const TokenLimits& limits) {
  TORCH_CHECK(logits.dim() == 2 && logits.size(1) > 0 && logits.size(1) <= sampling::kMostTokens,
              "likeliest_tokens: scores of ", logits.sizes(), "; (rows, vocabulary up to ",
              sampling::kMostTokens, ") are wanted");
  TORCH_CHECK(count > 0 && count <= logits.size(1), "likeliest_tokens: ", count, " of ", logits.size(1),
              " tokens cannot be given");
  const auto is = [&](const Tensor& x, at::ScalarType dtype, int64_t size) {
    return !x.defined() || (x.scalar_type() == dtype && x.dim() == 1 && x.size(0) == size &&
                            x.is_contiguous() && x.device() == logits.device());
  };
  TORCH_CHECK(
      is(limits.forbidden_V, at::kBool, logits.size(1)) && is(limits.only_N, at::kLong, logits.size(0)),
      "likeliest_tokens: limits are dense bool (", logits.size(1), ") and int64 (", logits.size(0),
      ") on the scores' device");
}

}  // namespace

LikeliestTokens likeliest_tokens(const Tensor& logits_NV, int64_t count, const TokenLimits& limits) {
  check(logits_NV, count, limits);
  if (!has_kernel(logits_NV) || count > kMostByKernel || !registered(likeliest_op(), logits_NV))
    return likeliest_tokens_plain(logits_NV, count, limits);
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto [ids, log_p] =
      likeliest_op().call(logits_NV, count, given(limits.forbidden_V), given(limits.only_N));
  return {ids, log_p};
}

LikeliestTokens likeliest_tokens_plain(const Tensor& logits_NV, int64_t count, const TokenLimits& limits) {
  check(logits_NV, count, limits);
  const Tensor raw = logits_NV.to(compute_dtype(logits_NV));
  const Tensor scores = raw.masked_fill(raw != raw, -kInfinity);
  const Tensor best = scores.amax(1, true);
  const Tensor below = (scores - best).masked_fill(scores == best, 0);  // both may be infinite
  const Tensor log_p = below - below.exp().sum(1, true).log();
  Tensor allowed = at::ones(scores.sizes(), scores.options().dtype(at::kBool));
  if (limits.forbidden_V.defined()) allowed = allowed & limits.forbidden_V.logical_not();
  if (limits.only_N.defined()) {
    const Tensor only = limits.only_N.unsqueeze(1);
    allowed = allowed & ((only < 0) | (at::arange(scores.size(1), only.options()) == only));
  }
  // By score, then what is allowed before the rest: stable sorts keep the order of ids and then of scores.
  const Tensor likely = std::get<1>(at::sort(scores, /*stable=*/true, 1, /*descending=*/true));
  const Tensor order = likely.gather(1, std::get<1>(at::sort(allowed.gather(1, likely).to(at::kInt),
                                                             /*stable=*/true, 1, /*descending=*/true)));
  const Tensor ids = order.slice(1, 0, count), given = allowed.gather(1, ids);
  return {ids.masked_fill(given.logical_not(), 0),
          log_p.gather(1, ids).masked_fill(given.logical_not(), -kInfinity).to(at::kFloat)};
}

}  // namespace tightloop::ops
