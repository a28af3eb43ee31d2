#include "serve/engine/served_model.h"

#include <ctime>

#include "tokenizer/jinja/template_files.h"
#include "train/engine/precision.h"

namespace tightloop::serve {

namespace {

/// A tokenizer may well have tokens for conversations of which the model has seen none.
std::unique_ptr<ChatTemplate> learned_chat(const LoadedRun& run) {
  if (has_seen_no_conversation(run) && run.tokenizer->chat().empty()) return nullptr;
  return chat_template(for_questions(run.recipe.chat), *run.tokenizer);
}

}  // namespace

ServedModel::ServedModel(std::string name, LoadedRun run, const DecoderConfig& config)
    : name_(std::move(name)),
      created_(static_cast<int64_t>(std::time(nullptr))),
      run_(std::move(run)),
      chat_(learned_chat(run_)),
      stop_tokens_(tightloop::stop_tokens(run_)),
      calculator_(*run_.tokenizer),
      decoder_(*run_.model, config),
      thread_([this](const std::stop_token& stop) { this->run(stop); }) {}

ServedModel::~ServedModel() {
  thread_.request_stop();
  wake();
  thread_.join();
}

int64_t ServedModel::context() const {
  return std::min(run_.recipe.model.context, longest_sequence(run_.recipe.model));
}

void ServedModel::wake() {
  const std::lock_guard lock(mutex_);
  asked_ = true;
  changed_.notify_all();
}

Decoder::Ticket ServedModel::submit(DecodeRequest request) {
  const auto ticket = decoder_.submit(std::move(request));
  wake();
  return ticket;
}

void ServedModel::cancel(Decoder::Ticket ticket) {
  decoder_.cancel(ticket);
  wake();
}

void ServedModel::call(std::function<void(LanguageModel&)> work) {
  {
    const std::lock_guard lock(mutex_);
    called_.push_back(std::move(work));
  }
  wake();
}

/// One of them, so that answers go on between two.
bool ServedModel::do_called() {
  std::function<void(LanguageModel&)> work;
  {
    const std::lock_guard lock(mutex_);
    if (called_.empty()) return false;
    work = std::move(called_.front());
    called_.pop_front();
  }
  work(*run_.model);
  return true;
}

void ServedModel::run(const std::stop_token& stop) {
  use_threads(run_.recipe.train.threads);  // of this thread
  while (!stop.stop_requested()) {
    const bool called = do_called(), decoded = decoder_.advance();
    if (called || decoded) continue;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, stop, [&] { return asked_; });
    asked_ = false;
  }
}

}  // namespace tightloop::serve
