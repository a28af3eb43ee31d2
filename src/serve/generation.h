#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/api/answer_json.h"
#include "serve/api/answer_parts.h"
#include "serve/api/fields.h"
#include "serve/api/generation_request.h"
#include "serve/engine/answer_feed.h"
#include "serve/engine/served_model.h"
#include "serve/http/http_server.h"
#include "serve/prompts_of.h"

namespace tightloop::serve {

/// The answers to one request, from its prompts to the last byte. On the server's thread alone.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  using Clock = std::chrono::steady_clock;
  /// Does this on another thread, soon.
  using Aside = std::function<void(std::function<void()>)>;
  Generation(HttpServer& server, Aside aside, std::shared_ptr<Exchange> exchange, ServedModel& model,
             GenerationRequest request, std::vector<ReadPrompt> prompts, Clock::time_point until);

  /// Hands all to the decoder. Throws ApiError, and nothing goes on.
  void start();
  /// What has come of the answers goes to the client.
  void pump();
  /// Ends what takes too long.
  void look_after(Clock::time_point now);
  /// Ends it; the client is told why.
  void stop(const ApiError& why);
  bool done() const { return done_; }
  const std::shared_ptr<Exchange>& exchange() const { return exchange_; }
  const std::string& model() const { return model_.name(); }
  const UsageCounts& usage() const { return usage_; }
  /// Also of answers that are not finished.
  int64_t made_tokens() const;
  size_t answers() const { return answers_.size(); }

 private:
  struct Made {
    std::shared_ptr<AnswerFeed> feed;
    Decoder::Ticket ticket = 0;
    AnswerParts parts;
    // Without a stream: all that there is of it.
    std::string text{}, thinking{};
    std::vector<ToolCall> calls{};
    std::vector<DecodedToken> tokens{};
    size_t characters = 0, called = 0;  // given so far: of tokens with log probabilities, calls
    bool opened = false;
    std::optional<DecodeEnd> end{};
  };

  DecodeRequest decode_request(const ReadPrompt& prompt, uint64_t sample) const;
  void take(size_t index);
  void give(size_t index, const AnswerDelta& delta, std::span<const DecodedToken> tokens);
  void give_end(size_t index);
  nlohmann::json choice(size_t index);
  HttpReply whole_reply();
  void send(const nlohmann::json& object);
  void finish();
  void cancel();
  const ReadPrompt& prompt_of(size_t index) const {
    return prompts_[index / static_cast<size_t>(request_.n)];
  }

  HttpServer& server_;
  const Aside aside_;
  const std::shared_ptr<Exchange> exchange_;
  ServedModel& model_;
  const GenerationRequest request_;
  const std::vector<ReadPrompt> prompts_;
  const Clock::time_point until_;
  AnswerHead head_;
  std::vector<Made> answers_;
  UsageCounts usage_;
  bool written_ = false;  // or about to be, from all answers: they change no more
  bool done_ = false;
};

}  // namespace tightloop::serve
