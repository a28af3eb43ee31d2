#include "infer/generate.h"

#include <algorithm>
#include <exception>

#include "core/interrupt.h"

namespace tightloop {

namespace {

/// The requests of one call, none of which is left when it ends, however it does.
class Asked {
 public:
  explicit Asked(Decoder& decoder) : decoder_(decoder) {}
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
  ~Asked() {
    stop();
    while (ended_ < tickets_.size() && decoder_.advance()) {
    }
  }
  void submit(DecodeRequest request) {
    request.on_end = [this, tell = std::move(request.on_end)](const DecodeEnd& end) {
      ++ended_;
      if (end.failure && !failure_) failure_ = end.failure;
      tell(end);
    };
    tickets_.push_back(decoder_.submit(std::move(request)));
  }
  /// Ends what has not ended.
  void stop() {
    for (const auto ticket : tickets_) decoder_.cancel(ticket);
  }
  size_t ended() const { return ended_; }
  bool done() const { return ended_ == tickets_.size(); }
  const std::exception_ptr& failure() const { return failure_; }

 private:
  Decoder& decoder_;
  std::vector<Decoder::Ticket> tickets_;
  size_t ended_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

DecoderConfig decoder_for(const ModelConfig& model, std::span<const Prompt> prompts, int64_t max_tokens,
                          size_t rows) {
  constexpr int64_t kPlenty = 1 << 17, kMost = 1 << 20;  // of all texts, of one
  const int64_t longest = std::min(longest_sequence(model), kMost);
  std::vector<int64_t> tokens;
  for (const Prompt& prompt : prompts)
    tokens.push_back(std::min(std::ssize(prompt.ids) + std::min(max_tokens, kMost), longest));
  std::ranges::sort(tokens, std::greater());
  const size_t running = std::max<size_t>(1, rows == 0 ? tokens.size() : std::min(rows, tokens.size()));
  tokens.resize(std::min(running, tokens.size()));
  // Nobody waits for a first token: prompts are read in large parts.
  DecoderConfig config{.cache_tokens = 0, .running = static_cast<int64_t>(running), .prefill_tokens = 2048};
  // Whole pages, and where that is too much, as much as the longest one needs.
  for (const int64_t one : tokens) config.cache_tokens += (one / KvPages::kPage + 1) * KvPages::kPage;
  const int64_t first = tokens.empty() ? 0 : tokens.front() + KvPages::kPage;
  config.cache_tokens = std::min(config.cache_tokens, std::max(kPlenty, first));
  return config;
}

std::vector<Answer> generate(LanguageModel& model, std::span<const Prompt> prompts,
                             const GenerateOptions& options, size_t rows,
                             const std::function<void(size_t)>& done) {
  if (prompts.empty()) return {};
  DecoderConfig config = decoder_for(model.config(), prompts, options.sampling.max_tokens, rows);
  config.graphs = options.graphs;
  Decoder decoder(model, config);
  return generate(decoder, prompts, options, done);
}

std::vector<Answer> generate(Decoder& decoder, std::span<const Prompt> prompts,
                             const GenerateOptions& options, const std::function<void(size_t)>& done) {
  std::vector<Answer> answers(prompts.size());
  Asked asked(decoder);
  for (size_t row = 0; row < prompts.size(); ++row) {
    Answer& answer = answers[row];
    asked.submit({.prompt = prompts[row].ids,
                  .sampling = options.sampling,
                  .sample = prompts[row].sample,
                  .stop_tokens = options.stop_tokens,
                  .vocab_size = options.vocab_size,
                  .calculator = options.calculator,
                  .on_token =
                      [&answer, &options, row](const DecodedToken& token) {
                        answer.ids.push_back(token.id);
                        return !options.on_token || options.on_token(row, token.id);
                      },
                  .on_end =
                      [&answer](const DecodeEnd& end) {
                        answer.end = end.end, answer.shared_tokens = end.shared_tokens;
                      }});
  }
  bool stopped = false;
  for (size_t told = 0; !asked.done() && decoder.advance();) {
    if (!stopped && (interrupted() || asked.failure())) asked.stop(), stopped = true;
    if (done && asked.ended() > told) done(told = asked.ended());
  }
  if (asked.failure()) std::rethrow_exception(asked.failure());
  return answers;
}

}  // namespace tightloop
