#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <list>

#include "core/error.h"
#include "infer/decode/sequence_reader.h"

namespace tightloop {

namespace {

class CacheReader : public SequenceReader {
 public:
  CacheReader(LanguageModel& model, const DecoderConfig& config) : model_(model), config_(config) {}

  void open(Sequence& sequence) override {
    auto best = kept_.end();
    int64_t most = 0;
    for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
      const int64_t same = std::ranges::mismatch(kept->ids, sequence.ids).in1 - kept->ids.begin();
      if (same > most) best = kept, most = same;
    }
    sequence.cache.reset(), sequence.read = 0;
    if (best != kept_.end()) {
      sequence.cache = std::move(best->cache);
      kept_.erase(best);
      sequence.cache->truncate(std::min(most, sequence.size() - 1));
      sequence.read = sequence.cache->length();
    }
    if (sequence.read == 0) sequence.cache.emplace(model_.config().layers);
    sequence.reserved = sequence.read;
    used_ += sequence.reserved;
  }

  bool reserve(Sequence& sequence, int64_t tokens) override {
    const int64_t more = tokens - sequence.reserved;
    if (more <= 0) return true;
    if (used_ + more > config_.cache_tokens) return false;
    sequence.reserved += more, used_ += more;
    int64_t kept = 0;
    for (const Kept& one : kept_) kept += static_cast<int64_t>(one.ids.size());
    for (; kept + used_ > config_.cache_tokens; kept_.pop_front())
      kept -= static_cast<int64_t>(kept_.front().ids.size());
    return true;
  }

  Reading read(std::span<const Chunk> chunks) override {
    std::vector<at::Tensor> states;
    for (const Chunk& chunk : chunks) {
      const bool due = chunk.due();
      const auto& [sequence, tokens] = chunk;
      const auto first = sequence->ids.begin() + sequence->read;
      const auto ids = at::tensor(std::vector<int64_t>(first, first + tokens)).unsqueeze(0);
      const auto hidden = model_.forward(ids.to(model_.device()), {.cache = &*sequence->cache}).hidden_BTD;
      sequence->read += tokens;
      if (sequence->cache->length() != sequence->read)
        throw usage_error(
            "model.family {} reads {} tokens and leaves {} in the cache: a forward pass with Pass::cache "
            "adds "
            "its tokens' keys and values to it (AttentionScope does), or later ones are computed from wrong "
            "inputs.",
            model_.config().family, sequence->read, sequence->cache->length());
      if (due) states.push_back(hidden.select(1, tokens - 1));
    }
    return states.empty() ? Reading{} : Reading{model_.logits(at::cat(states))};
  }

  void close(Sequence& sequence) override {
    used_ -= sequence.reserved, sequence.reserved = 0;
    if (config_.share_prefixes && sequence.cache && sequence.read > 0)
      kept_.push_back(
          {{sequence.ids.begin(), sequence.ids.begin() + sequence.read}, std::move(*sequence.cache)});
    sequence.cache.reset();
    sequence.read = 0;
  }

  void forget() override { kept_.clear(); }
  int64_t passes_ahead() const override { return 0; }
  int64_t capacity() const override { return config_.cache_tokens; }
  int64_t used() const override { return used_; }

 private:
  struct Kept {
    std::vector<int32_t> ids;
    KvCache cache;
  };
  LanguageModel& model_;
  const DecoderConfig& config_;
  std::list<Kept> kept_;  // of closed sequences, the last one last
  int64_t used_ = 0;
};

}  // namespace

std::unique_ptr<SequenceReader> make_cache_reader(LanguageModel& model, const DecoderConfig& config) {
  return std::make_unique<CacheReader>(model, config);
}

}  // namespace tightloop
