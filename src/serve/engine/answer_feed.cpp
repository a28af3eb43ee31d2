#include "serve/engine/answer_feed.h"

#include <algorithm>
#include <iterator>

namespace tightloop::serve {

AnswerFeed::AnswerFeed(const Tokenizer& tokenizer, std::vector<std::string> stops,
                       std::span<const int32_t> prompt, bool logprobs, bool eager, AnswerTimes& times,
                       Clock::time_point asked, std::function<void()> wake)
    : logprobs_(logprobs),
      eager_(eager),
      times_(times),
      wake_(std::move(wake)),
      stream_(tokenizer, std::move(stops), prompt),
      last_(asked) {}

void AnswerFeed::tell(std::unique_lock<std::mutex>& lock) {
  if (told_ || (!eager_ && !news_.end)) return;
  told_ = true;
  lock.unlock();
  wake_();
}

bool AnswerFeed::on_token(const DecodedToken& token) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  std::string text = stream_.add(token.id);
  if (logprobs_) held_.push_back(token);
  std::unique_lock lock(mutex_);
  (made_++ > 0 ? times_.between_tokens : times_.first_token).observe(seconds);
  if (!text.empty()) {
    news_.text += text;
    std::ranges::move(held_, std::back_inserter(news_.tokens));
    held_.clear();
    tell(lock);
  }
  return !stream_.stopped();
}

void AnswerFeed::on_end(const DecodeEnd& end) {
  std::unique_lock lock(mutex_);
  if (!stream_.stopped()) {
    news_.text += stream_.finish();
    std::ranges::move(held_, std::back_inserter(news_.tokens));
  }
  news_.end = end;
  tell(lock);
}

AnswerNews AnswerFeed::take() {
  const std::lock_guard lock(mutex_);
  told_ = false;
  return std::exchange(news_, {});
}

int64_t AnswerFeed::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

}  // namespace tightloop::serve
