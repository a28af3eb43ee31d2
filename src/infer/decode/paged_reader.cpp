#include <ATen/ops/empty.h>

#include <algorithm>

#include "core/device.h"
#include "infer/decode/page_pool.h"
#include "infer/decode/paged_pass.h"
#include "infer/decode/sequence_reader.h"

namespace tightloop {

namespace {

constexpr int64_t kPage = KvPages::kPage;

/// Bytes of a page's keys, or values, in one layer.
int64_t page_bytes(const LanguageModel& model) {
  const auto& shape = model.config();
  return kPage * shape.kv_heads * shape.head_size *
         static_cast<int64_t>(model.parameters().all().front().value.element_size());
}

/// As many as the configuration asks for, where the device has the memory.
int64_t pages_for(const LanguageModel& model, const DecoderConfig& config) {
  constexpr double kShare = 0.8;  // of what is free; the rest is for passes
  const int64_t wanted = std::max<int64_t>(1, (config.cache_tokens + kPage - 1) / kPage);
  if (model.device().is_cpu()) return wanted;  // memory that nobody has written to is not there yet
  const auto room = static_cast<double>(device(model.device().str()).room()) * kShare;
  return std::clamp<int64_t>(static_cast<int64_t>(room) / (2 * model.config().layers * page_bytes(model)), 1,
                             wanted);
}

/// The memory of the pages, which the first pass makes: until then it is nobody else's, or two models that
/// are loaded one after the other would both count on it.
std::vector<at::Tensor> memory_for(const LanguageModel& model, int64_t pages) {
  std::vector<at::Tensor> pieces;
  if (model.device().is_cpu()) return pieces;
  const auto bytes = at::TensorOptions(at::kByte).device(model.device());
  for (int64_t i = 0; i < 2 * model.config().layers; ++i)
    pieces.push_back(at::empty({pages * page_bytes(model)}, bytes));
  return pieces;
}

class PagedReader : public SequenceReader {
 public:
  PagedReader(LanguageModel& model, const DecoderConfig& config)
      : config_(config),
        pool_(pages_for(model, config), kPage),
        kept_free_(memory_for(model, pool_.size())),
        pass_(model, pool_.size(), config.running, config.graphs),
        ahead_(config.ahead >= 0         ? config.ahead
               : model.device().is_cpu() ? 0
                                         : kAhead) {
    for (int64_t seat = config.running; seat-- > 0;) seats_.push_back(static_cast<int32_t>(seat));
  }

  void open(Sequence& sequence) override {
    sequence.seat = seats_.back();
    seats_.pop_back();
    if (config_.share_prefixes)
      sequence.pages = pool_.find(std::span(sequence.ids).first(sequence.ids.size() - 1));
    for (size_t i = 0; i < sequence.pages.size(); ++i)
      pass_.place(sequence.seat, static_cast<int64_t>(i), sequence.pages[i]);
    const auto& request = sequence.request;
    pass_.sampling().set(sequence.seat, request.sampling, request.sample, request.vocab_size);
    sequence.seen = false;
    sequence.offered = static_cast<int64_t>(sequence.pages.size());
    sequence.read = sequence.offered * kPage;
  }

  bool reserve(Sequence& sequence, int64_t tokens) override {
    const auto pages = static_cast<size_t>((tokens + kPage - 1) / kPage);
    // Before anything that others may find is given up for it.
    if (static_cast<int64_t>(pages) - std::ssize(sequence.pages) > pool_.size() - pool_.held()) return false;
    while (sequence.pages.size() < pages) {
      const int32_t page = *pool_.take();
      pass_.place(sequence.seat, std::ssize(sequence.pages), page);
      sequence.pages.push_back(page);
    }
    return true;
  }

  Reading read(std::span<const Chunk> chunks) override {
    std::vector<PassToken> tokens;
    PassWish wish{.apart = true};
    for (const Chunk& chunk : chunks) {
      Sequence& sequence = *chunk.sequence;
      for (int64_t at = sequence.read; at < sequence.read + chunk.tokens; ++at)
        tokens.push_back({.id = id_at(sequence, at),
                          .before = at > 0 ? id_at(sequence, at - 1) : 0,
                          .position = static_cast<int32_t>(at),
                          .seat = sequence.seat,
                          .place = static_cast<int32_t>(sequence.made() + sequence.under_way)});
      wish.apart = wish.apart && chunk.tokens == 1 && chunk.due();
      if (!chunk.due()) continue;
      wish.due.push_back(static_cast<int32_t>(tokens.size()) - 1);
      if (sequence.request.sampling.repetition_penalty == 1) continue;
      wish.penalised = true;
      if (!sequence.seen) pass_.sampling().set_seen(sequence.seat, sequence.ids);
      sequence.seen = true;
    }
    kept_free_.clear();
    const PassResult result = pass_.run(tokens, wish);
    for (const Chunk& chunk : chunks) {
      chunk.sequence->read += chunk.tokens;
      share(*chunk.sequence);
    }
    if (wish.due.empty()) return {};
    return {result.logits_BV, std::make_shared<ChosenTokens>(result.ids_B)};
  }

  void close(Sequence& sequence) override {
    if (sequence.seat < 0) return;
    share(sequence);
    // The last ones first: without the pages before it nobody finds a page.
    for (; !sequence.pages.empty(); sequence.pages.pop_back()) pool_.give_back(sequence.pages.back());
    seats_.push_back(sequence.seat);
    sequence.seat = -1, sequence.read = 0, sequence.under_way = 0, sequence.offered = 0;
  }

  void forget() override { pool_.forget(); }
  int64_t passes_ahead() const override { return ahead_; }
  int64_t replayed() const override { return pass_.replayed(); }
  int64_t capacity() const override { return pool_.size() * kPage; }
  int64_t used() const override { return pool_.held() * kPage; }

 private:
  static constexpr int64_t kAhead = 2;

  static int32_t id_at(const Sequence& sequence, int64_t position) {
    return position < sequence.size() ? sequence.ids[static_cast<size_t>(position)] : PassToken::kChosen;
  }

  /// Pages whose tokens are known and read may be found by others.
  void share(Sequence& sequence) {
    const int64_t whole = std::min(sequence.read, sequence.size()) / kPage;
    if (!config_.share_prefixes || whole <= sequence.offered) return;
    pool_.share(sequence.ids, std::span(sequence.pages).first(static_cast<size_t>(whole)));
    sequence.offered = whole;
  }

  const DecoderConfig& config_;
  PagePool pool_;
  std::vector<at::Tensor> kept_free_;
  PagedPass pass_;
  const int64_t ahead_;
  std::vector<int32_t> seats_;  // that nobody has
};

}  // namespace

std::unique_ptr<SequenceReader> make_paged_reader(LanguageModel& model, const DecoderConfig& config) {
  return std::make_unique<PagedReader>(model, config);
}

}  // namespace tightloop
