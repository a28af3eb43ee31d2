#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "infer/calculator_calls.h"
#include "infer/chat_session.h"
#include "infer/decoder.h"
#include "infer/loaded_run.h"
#include "serve/metrics.h"

namespace tightloop::serve {

/// A model that answers, with the thread on which it computes. From any thread, where nothing else is said.
class ServedModel {
 public:
  ServedModel(std::string name, LoadedRun run, const DecoderConfig& config);
  /// What has not ended does so.
  ~ServedModel();
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;

  const std::string& name() const { return name_; }
  int64_t created() const { return created_; }  // when it was loaded, in seconds since 1970
  const ModelConfig& config() const { return run_.recipe.model; }
  const ChatConfig& chat_config() const { return run_.recipe.chat; }
  const Tokenizer& tokenizer() const { return *run_.tokenizer; }
  /// Null where the model learned from texts and has no template, or its tokenizer no tokens for
  /// conversations.
  const ChatTemplate* chat() const { return chat_.get(); }
  const std::vector<int32_t>& stop_tokens() const { return stop_tokens_; }
  const CalculatorCalls* calculator() const { return calculator_.possible() ? &calculator_ : nullptr; }
  /// Most tokens of prompt and answer together.
  int64_t context() const;
  AnswerTimes& times() { return times_; }

  /// As of Decoder.
  Decoder::Ticket submit(DecodeRequest request);
  void cancel(Decoder::Ticket ticket);
  DecoderLoad load() const { return decoder_.load(); }
  /// Does this on the model's thread, between passes; it must not throw.
  void call(std::function<void(LanguageModel&)> work);

 private:
  void run(const std::stop_token& stop);
  void wake();
  bool do_called();

  const std::string name_;
  const int64_t created_;
  LoadedRun run_;
  const std::unique_ptr<ChatTemplate> chat_;
  const std::vector<int32_t> stop_tokens_;
  const CalculatorCalls calculator_;
  AnswerTimes times_;
  Decoder decoder_;
  std::mutex mutex_;  // what follows
  std::condition_variable_any changed_;
  bool asked_ = false;
  std::deque<std::function<void(LanguageModel&)>> called_;
  std::jthread thread_;
};

}  // namespace tightloop::serve
