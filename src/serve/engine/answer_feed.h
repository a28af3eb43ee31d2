#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "infer/decoder.h"
#include "infer/text_stream.h"
#include "serve/metrics.h"

namespace tightloop::serve {

/// What has become of an answer since it was asked last.
struct AnswerNews {
  std::string text{};
  std::vector<DecodedToken> tokens{};  // of that text, where log probabilities were asked for
  std::optional<DecodeEnd> end{};
};

/// One answer on its way from the decoder's thread to the server's.
class AnswerFeed {
 public:
  /// `stops`: the text ends before the first of these. `wake` is called on the decoder's thread when there is
  /// news, once until take(); `eager`: for each token, otherwise for the end alone. `asked`: when the request
  /// came, from where the time to the first token is counted.
  AnswerFeed(const Tokenizer& tokenizer, std::vector<std::string> stops, std::span<const int32_t> prompt,
             bool logprobs, bool eager, AnswerTimes& times, std::chrono::steady_clock::time_point asked,
             std::function<void()> wake);

  /// The two of a DecodeRequest.
  bool on_token(const DecodedToken& token);
  void on_end(const DecodeEnd& end);

  AnswerNews take();
  /// Tokens that are there already.
  int64_t made() const;

 private:
  void tell(std::unique_lock<std::mutex>& lock);

  using Clock = std::chrono::steady_clock;
  const bool logprobs_, eager_;
  AnswerTimes& times_;
  const std::function<void()> wake_;
  // The decoder's thread alone touches these.
  TextStream stream_;
  std::vector<DecodedToken> held_;  // whose text is not certain
  Clock::time_point last_;
  mutable std::mutex mutex_;  // what follows
  AnswerNews news_;
  bool told_ = false;
  int64_t made_ = 0;
};

}  // namespace tightloop::serve
