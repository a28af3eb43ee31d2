#include "infer/beam.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "core/device.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/random.h"
#include "core/terminal/terminal.h"
#include "model/parts/kv_pages.h"
#include "ops/decode/likeliest_tokens.h"

namespace tightloop {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr int64_t kCheckEvery = 8;  // tokens between two looks at what is done
// A step of a GPU's costs the same for a hundred sentences as for one, and several times as much for a
// thousand.
constexpr int64_t kGpuBatchTokens = 65536, kCpuBatchTokens = 16384;
constexpr int64_t kMostScoreBytes = 1 << 30;  // of a batch's scores of the whole vocabulary, fp32
constexpr int64_t kPositionsAtOnce = 32;      // that the pages get room for

/// The sources padded to one length, with their lengths, on a device.
struct PaddedSources {
  at::Tensor ids_BS, lengths_B;
  int64_t longest = 0;
};

PaddedSources pad(std::span<const std::vector<int32_t>> sources, at::Device device) {
  PaddedSources padded;
  for (const auto& ids : sources) padded.longest = std::max(padded.longest, std::ssize(ids));
  const int64_t B = std::ssize(sources), S = (padded.longest + 7) / 8 * 8;  // as attention's kernels like it
  auto ids = at::zeros({B, S}, at::kLong), lengths = at::empty({B}, at::kLong);
  for (int64_t row = 0; row < B; ++row) {
    std::ranges::copy(sources[row], ids.mutable_data_ptr<int64_t>() + row * S);
    lengths.mutable_data_ptr<int64_t>()[row] = std::ssize(sources[row]);
  }
  padded.ids_BS = ids.to(device), padded.lengths_B = lengths.to(device);
  return padded;
}

/// Whether each id may not be chosen: bool (V).
at::Tensor forbidden(const TargetTokens& tokens, int64_t V, at::Device device) {
  auto never = at::zeros({V}, at::kBool);
  bool* out = never.mutable_data_ptr<bool>();
  for (const int64_t id : tokens.never) out[id] = true;
  if (tokens.begin != tokens.end) out[tokens.begin] = true;
  if (tokens.vocab_size > 0 && tokens.vocab_size < V) std::fill(out + tokens.vocab_size, out + V, true);
  return never.to(device);
}

/// Rows `index` (B, N) of x (B, K, ...).
at::Tensor pick(const at::Tensor& x, const at::Tensor& index) {
  if (x.dim() == 2) return x.gather(1, index);
  return x.gather(1, index.unsqueeze(-1).expand({-1, -1, x.size(2)}));
}

/// Sources that are being translated, K translations of each: rows i K and following are source i's.
///
/// Keys and values stay where they were written, one token to a page: the page of position t of row r is
/// t x (rows at first) + r. A row's table names the pages of its ancestors, so that where a beam goes on from
/// another row, its table is copied and nothing else. What the host knows of a step is nothing but that there
/// is one: its number is on the device, too.
class Search {
 public:
  Search(Seq2Seq& model, std::span<const std::vector<int32_t>> sources, const TargetTokens& tokens,
         const DecodeConfig& config, std::span<const uint64_t> numbers)
      : model_(model),
        tokens_(tokens),
        config_(config),
        K_(config.sample ? config.nbest : config.beam),
        torch_device_(model.device()),
        device_(device(torch_device_.str())),
        graphs_(config.graphs && !config.sample && device_.is_cuda()),
        first_rows_(std::ssize(sources) * K_),
        pages_(model.config().layers, /*pages=*/0, /*page=*/1),
        results_(sources.size()) {
    const auto padded = pad(sources, torch_device_);
    const int64_t B = std::ssize(sources);
    most_ = padded.longest + config.extra_tokens;
    limits_B_ = padded.lengths_B + config.extra_tokens;
    memory_ = model.encode(padded.ids_BS, padded.lengths_B);
    model.remember(memory_);
    V_ = model.config().vocab_size;
    never_ = forbidden(tokens, V_, torch_device_);
    const auto longs = at::TensorOptions(at::kLong).device(torch_device_), floats = longs.dtype(at::kFloat);
    step_ = at::zeros({1}, longs);
    auto divisors = at::empty({most_ + 2}, at::kFloat);
    for (int64_t t = 0; t < most_ + 2; ++t)
      divisors.mutable_data_ptr<float>()[t] = static_cast<float>(length_divisor(t, config.length_penalty));
    divisors_ = divisors.to(torch_device_);
    tables_ = at::zeros({first_rows_, most_}, longs.dtype(at::kInt));
    last_ = at::full({B * K_, 1}, tokens.begin, longs);
    ids_BKT_ = at::full({B, K_, most_}, tokens.end, longs);
    sums_BK_ = at::full({B, K_}, config.sample ? 0 : kNever, floats);
    if (!config.sample) sums_BK_.select(1, 0).zero_();  // the first token has one place to go on from
    ended_scores_BK_ = at::full({B, K_}, kNever, floats);
    ended_sums_BK_ = at::full({B, K_}, kNever, floats);
    ended_ids_BKT_ = ids_BKT_.clone();
    ended_lengths_BK_ = at::zeros({B, K_}, longs);
    done_B_ = at::zeros({B}, longs.dtype(at::kBool));
    rows_.resize(sources.size());
    std::iota(rows_.begin(), rows_.end(), size_t{0});
    for (const auto& ids : sources) limits_.push_back(std::ssize(ids) + config.extra_tokens);
    count_rows();
    if (config.sample) draws_BKT_ = draws(numbers);
  }

  std::vector<std::vector<Translation>> run() {
    for (int64_t t = 0; t < most_ && !rows_.empty(); ++t) {
      throw_if_interrupted();
      const int64_t blocks = graphs_ ? most_ : (t / kPositionsAtOnce + 1) * kPositionsAtOnce;
      pages_.reserve(std::min(most_, blocks) * first_rows_);
      if (config_.sample)
        draw(next_scores().to(at::kFloat), t), step_.add_(1);
      else
        extend();
      if ((t + 1) % kCheckEvery == 0 || t + 1 == most_) retire(/*all=*/t + 1 == most_);
    }
    return std::move(results_);
  }

 private:
  int64_t sources() const { return std::ssize(rows_); }

  /// What follows from the rows that are in the batch.
  void count_rows() {
    nearest_limit_ = most_;
    for (const size_t row : rows_) nearest_limit_ = std::min(nearest_limit_, limits_[row]);
    graph_.reset(), warm_ = false;
    const auto longs = last_.options(), ints = longs.dtype(at::kInt);
    first_B1_ = at::arange(sources(), longs).unsqueeze(1) * K_;
    numbers_R_ = at::arange(sources() * K_, ints);
    positions_R_ = at::empty({sources() * K_}, ints);
  }

  /// Reads the tokens chosen last. Gives the scores (rows, V) of what follows.
  at::Tensor next_scores() {
    positions_R_.copy_(step_.expand_as(positions_R_));
    tables_.index_copy_(1, step_, (positions_R_ * first_rows_ + numbers_R_).unsqueeze(1));
    const PagedTokens paged{.pages = pages_,
                            .positions_N = positions_R_,
                            .rows_N = numbers_R_,
                            .tables = tables_,
                            .longest = most_,
                            .apart = true};
    return model_.logits(model_.decode(last_, memory_, {.paged = &paged}).select(1, 0));
  }

  /// One token of beam search: the first time for a batch as it is, then captured, then replayed.
  void extend() {
    if (graphs_ && warm_ && !graph_) try_capture();
    if (graph_) return graph_->replay();
    extend_by(next_scores());
    warm_ = true;
  }

  void try_capture() {
    try {
      graph_ = device_.capture([&] { extend_by(next_scores()); });
    } catch (const std::exception& error) {
      log::warn(
          "Translations are looked for without CUDA graphs from here on, as a step cannot be captured: {}",
          first_line(error.what()));
      graphs_ = false;
    }
  }

  /// The tokens that follow by these scores. It changes tensors in place and reads nothing of the host that
  /// changes from token to token: it may be captured.
  void extend_by(const at::Tensor& logits) {
    const int64_t B = sources();
    // Twice the beam: at most a beam of them are ends. First of each translation, then of all. Where a source
    // has no room for more, that is the end alone.
    const int64_t N = std::min(2 * K_, V_);
    const auto only_B = at::full_like(limits_B_, -1).masked_fill_(limits_B_ <= step_ + 1, tokens_.end);
    const auto only = only_B.unsqueeze(1).expand({B, K_}).reshape(-1).contiguous();
    const auto [ids, each] = ops::likeliest_tokens(logits, N, {never_, only});
    const auto scores = (each.view({B, K_, N}) + sums_BK_.unsqueeze(-1)).view({B, K_ * N});
    const auto [sums, positions] = at::topk(scores, std::min(2 * K_, K_ * N));
    const auto from = positions.floor_divide(N), token = ids.view({B, K_ * N}).gather(1, positions);
    const auto is_end = token == tokens_.end;

    // Ends among the first: they join those that ended before, and the best stay.
    const auto ends = is_end & done_B_.logical_not().unsqueeze(1);
    const auto new_sums = sums.masked_fill(ends.logical_not(), kNever).slice(1, 0, K_);
    const auto new_scores = new_sums / divisors_.index_select(0, step_ + 1);
    const auto all_scores = at::cat({ended_scores_BK_, new_scores}, 1);
    const auto [best, index] = at::topk(all_scores, K_);
    ended_scores_BK_.copy_(best);
    ended_sums_BK_.copy_(pick(at::cat({ended_sums_BK_, new_sums}, 1), index));
    const auto lengths = step_.expand({B, new_sums.size(1)});
    ended_lengths_BK_.copy_(pick(at::cat({ended_lengths_BK_, lengths}, 1), index));
    const auto histories = pick(ids_BKT_, from.slice(1, 0, K_));
    ended_ids_BKT_.copy_(pick(at::cat({ended_ids_BKT_, histories}, 1), index));

    // The likeliest others go on.
    const auto [live, chosen] = at::topk(sums.masked_fill(is_end, kNever), K_);
    sums_BK_.copy_(live);
    // A beam of ended ones is enough once the best that goes on, were it to end next, is no better than any
    // of them. (Nothing to follow, kNever, is never better.)
    const auto worst = ended_scores_BK_.select(1, K_ - 1);
    const auto within_reach = live.select(1, 0) / divisors_.index_select(0, step_ + 2);
    done_B_.logical_or_(within_reach <= worst);
    const auto parents = pick(from, chosen), next = pick(token, chosen);
    ids_BKT_.copy_(pick(ids_BKT_, parents));
    ids_BKT_.index_copy_(2, step_, next.unsqueeze(2));
    tables_.copy_(tables_.index_select(0, (parents + first_B1_).flatten()));
    last_.copy_(next.view({B * K_, 1}));
    step_.add_(1);
  }

  /// Leaves what may follow in scores (B K, V). Where a source has no room for more, that is the end alone.
  void forbid(const at::Tensor& scores, int64_t t) const {
    scores.masked_fill_(never_, kNever);
    if (nearest_limit_ > t + 1) return;
    const auto at_limit = (limits_B_ <= t + 1).view({-1, 1, 1});
    const auto is_end = at::arange(V_, limits_B_.options()) == tokens_.end;
    scores.view({sources(), K_, V_}).masked_fill_(at_limit & is_end.logical_not(), kNever);
  }

  // One token of each sample.
  void draw(const at::Tensor& logits, int64_t t) {
    const int64_t B = sources();
    const auto log_p = at::log_softmax(logits, -1);
    const auto warm = logits / config_.temperature;
    forbid(warm, t);
    const int64_t kept = config_.top_k > 0 ? std::min(config_.top_k, V_) : V_;
    const auto [values, ids] = at::topk(warm, kept);
    auto p = at::softmax(values, -1);
    // A token stays while those before it have less than top_p, and the first in any case.
    const double most = std::max<double>(config_.top_p, std::numeric_limits<float>::min());
    if (most < 1) p = p.masked_fill(p.cumsum(-1) - p >= most, 0);
    const auto cumulative = p.cumsum(-1);
    const auto wanted = draws_BKT_.select(2, t).reshape({-1, 1}) * cumulative.slice(1, kept - 1);
    const auto position = (cumulative <= wanted).sum(-1, /*keepdim=*/true).clamp_max(kept - 1);
    const auto token = ids.gather(1, position);
    // A sample that has ended stays as it is.
    const auto ended = ended_scores_BK_ != kNever;
    sums_BK_ = at::where(ended, sums_BK_, sums_BK_ + log_p.gather(1, token).view({B, K_}));
    const auto next = token.view({B, K_}), ends = (next == tokens_.end) & ended.logical_not();
    ended_scores_BK_ = at::where(ends, sums_BK_, ended_scores_BK_);
    ended_lengths_BK_ = at::where(ends, at::full_like(next, t), ended_lengths_BK_);
    ids_BKT_.select(2, t).copy_(next);
    done_B_ = (ended_scores_BK_ != kNever).all(1);
    last_ = token;
  }

  /// Takes what is done out of the batch.
  void retire(bool all) {
    const auto done = done_B_.cpu();
    std::vector<int64_t> stay, leave;
    for (int64_t i = 0; i < sources(); ++i)
      (all || done.const_data_ptr<bool>()[i] ? leave : stay).push_back(i);
    // Another size means another graph: worth it when the batch is half as large.
    if (leave.empty() || (graphs_ && 2 * std::ssize(stay) > sources())) return;
    report(leave);
    std::vector<size_t> rows;
    for (const int64_t i : stay) rows.push_back(rows_[static_cast<size_t>(i)]);
    rows_ = std::move(rows);
    if (rows_.empty()) return;
    const auto kept = at::tensor(stay, at::kLong).to(torch_device_);
    memory_.select_rows(kept);
    for (auto* state : {&limits_B_, &ids_BKT_, &sums_BK_, &ended_scores_BK_, &ended_sums_BK_, &ended_ids_BKT_,
                        &ended_lengths_BK_, &done_B_, &draws_BKT_})
      if (state->defined()) *state = state->index_select(0, kept);
    const auto beams = (kept.unsqueeze(1) * K_ + at::arange(K_, kept.options())).flatten();
    for (auto* state : {&tables_, &last_}) *state = state->index_select(0, beams);
    count_rows();
  }

  void report(const std::vector<int64_t>& leave) {
    const auto& ids = config_.sample ? ids_BKT_ : ended_ids_BKT_;
    const auto& sums = config_.sample ? ended_scores_BK_ : ended_sums_BK_;
    const auto picked = at::tensor(leave, at::kLong).to(torch_device_);
    const auto on_host = [&](const at::Tensor& x) { return x.index_select(0, picked).cpu().contiguous(); };
    const auto ids_host = on_host(ids), lengths = on_host(ended_lengths_BK_),
               scores = on_host(ended_scores_BK_), log_p = on_host(sums);
    for (size_t i = 0; i < leave.size(); ++i) {
      auto& found = results_[rows_[static_cast<size_t>(leave[i])]];
      for (int64_t k = 0; k < K_; ++k) {
        const int64_t cell = static_cast<int64_t>(i) * K_ + k;
        const double score = scores.const_data_ptr<float>()[cell];
        if (score == kNever) continue;
        const int64_t* first = ids_host.const_data_ptr<int64_t>() + cell * most_;
        Translation translation{{}, score, log_p.const_data_ptr<float>()[cell]};
        translation.ids.assign(first, first + lengths.const_data_ptr<int64_t>()[cell]);
        found.push_back(std::move(translation));
      }
      std::ranges::stable_sort(found, std::ranges::greater{}, &Translation::score);
      if (std::ssize(found) > config_.nbest) found.resize(static_cast<size_t>(config_.nbest));
    }
  }

  at::Tensor draws(std::span<const uint64_t> numbers) const {
    auto table = at::empty({sources(), K_, most_}, at::kFloat);
    float* out = table.mutable_data_ptr<float>();
    for (size_t i = 0; i < rows_.size(); ++i) {
      for (int64_t k = 0; k < K_; ++k) {
        Random random(static_cast<uint64_t>(config_.seed), numbers[i] << 20 | static_cast<uint64_t>(k));
        for (int64_t t = 0; t < most_; ++t)
          *out++ = std::min(static_cast<float>(random.uniform()), 0x1.fffffep-1f);
      }
    }
    return table.to(torch_device_);
  }

  Seq2Seq& model_;
  const TargetTokens& tokens_;
  const DecodeConfig& config_;
  const int64_t K_;
  const at::Device torch_device_;
  Device& device_;
  bool graphs_, warm_ = false;  // warm: a step of this batch's size has run
  int64_t most_ = 0, V_ = 0, nearest_limit_ = 0;
  Memory memory_;
  const int64_t first_rows_;
  KvPages pages_;
  std::vector<size_t> rows_;     // the sources still in the batch
  std::vector<int64_t> limits_;  // of all sources
  at::Tensor limits_B_, never_, divisors_, first_B1_, draws_BKT_;
  at::Tensor step_;                                     // int64 (1): the tokens of each row so far
  at::Tensor numbers_R_, positions_R_, tables_, last_;  // of the rows: int32; last_ int64 (R, 1)
  at::Tensor ids_BKT_, sums_BK_;                        // being followed
  at::Tensor ended_scores_BK_, ended_sums_BK_, ended_ids_BKT_, ended_lengths_BK_, done_B_;
  std::unique_ptr<Graph> graph_;  // of a step, by the tensors above
  std::vector<std::vector<Translation>> results_;
};

}  // namespace

double length_divisor(int64_t length, double penalty) {
  return std::pow((5.0 + static_cast<double>(length)) / 6.0, penalty);
}

std::vector<std::vector<Translation>> decode_batch(Seq2Seq& model,
                                                   std::span<const std::vector<int32_t>> sources,
                                                   const TargetTokens& tokens, const DecodeConfig& config,
                                                   std::span<const uint64_t> numbers) {
  if (sources.empty()) return {};
  c10::InferenceMode inference;
  std::vector<uint64_t> counted(sources.size());
  std::iota(counted.begin(), counted.end(), uint64_t{0});
  return Search(model, sources, tokens, config, numbers.empty() ? counted : numbers).run();
}

std::vector<std::vector<Translation>> decode_all(Seq2Seq& model,
                                                 std::span<const std::vector<int32_t>> sources,
                                                 const TargetTokens& tokens, const DecodeConfig& config,
                                                 int64_t batch_tokens, uint64_t first_number,
                                                 const std::function<void(size_t)>& done) {
  std::vector<std::vector<Translation>> results(sources.size());
  std::vector<size_t> order;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].size() > 2)
      order.push_back(i);
    else
      results[i].emplace_back();
  }
  size_t finished = sources.size() - order.size();
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](size_t i) { return sources[i].size(); });
  const int64_t followed = config.sample ? config.nbest : config.beam;
  size_t most_rows = order.size();
  if (batch_tokens == 0) {
    batch_tokens = model.device().is_cuda() ? kGpuBatchTokens : kCpuBatchTokens;
    const int64_t scores = followed * model.config().vocab_size * static_cast<int64_t>(sizeof(float));
    most_rows = static_cast<size_t>(std::max<int64_t>(1, kMostScoreBytes / scores));
  }
  for (size_t first = 0; first < order.size();) {
    throw_if_interrupted();
    const int64_t longest = std::ssize(sources[order[first]]);
    const auto rows =
        std::min(most_rows, static_cast<size_t>(std::max<int64_t>(1, batch_tokens / (longest * followed))));
    const size_t last = std::min(order.size(), first + rows);
    std::vector<std::vector<int32_t>> batch;
    std::vector<uint64_t> numbers;
    for (size_t i = first; i < last; ++i)
      batch.push_back(sources[order[i]]), numbers.push_back(first_number + order[i]);
    auto found = decode_batch(model, batch, tokens, config, numbers);
    for (size_t i = first; i < last; ++i) results[order[i]] = std::move(found[i - first]);
    first = last;
    if (done) done(finished + last);
  }
  return results;
}

}  // namespace tightloop
