#include "infer/decoder.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "dist/fault.h"
#include "infer/decode/sequence_reader.h"
#include "model/family.h"

namespace tightloop {

namespace {

void end_with_error(Sequence& sequence, const std::exception_ptr& failure) {
  DecodeEnd& end = sequence.end.emplace(DecodeEnd{.end = AnswerEnd::kInterrupted, .failure = failure});
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    end.error = last_words(error).what();
  } catch (...) {
    end.error = "an exception that is no std::exception.";
  }
}

void tell_end(Sequence& sequence) {
  DecodeEnd& end = *sequence.end;
  end.prompt_tokens = static_cast<int64_t>(sequence.request.prompt.size());
  end.made_tokens = sequence.made();
  end.shared_tokens = sequence.shared.value_or(0);
  if (sequence.request.on_end) sequence.request.on_end(end);
}

}  // namespace

const char* to_string(AnswerEnd end) {
  switch (end) {
    case AnswerEnd::kLength:
      return "length";
    case AnswerEnd::kStopped:
      return "stop";
    case AnswerEnd::kContextFull:
      return "context";
    case AnswerEnd::kInterrupted:
      return "interrupted";
  }
  return "";
}

int64_t longest_sequence(const ModelConfig& config) {
  return family_of(config).has.learned_positions ? config.context : std::numeric_limits<int64_t>::max();
}

int64_t longest_prompt(const ModelConfig& config) {
  constexpr int64_t kContexts = 4, kAlways = 4096;
  return std::min(longest_sequence(config) - 1, std::max(kAlways, kContexts * config.context));
}

/// A pass whose tokens are on their way.
struct StartedPass {
  std::vector<Sequence*> due;  // null: it has ended since
  std::shared_ptr<ChosenTokens> chosen;
  at::Tensor logits_BV;  // where somebody wants to see them
};

Decoder::Decoder(LanguageModel& model, const DecoderConfig& config)
    : model_(model),
      config_(config),
      reader_(family_of(model.config()).has.paged ? make_paged_reader(model, config_)
                                                  : make_cache_reader(model, config_)) {
  publish();
}

Decoder::~Decoder() {
  receive();
  for (auto& sequence : running_) sequence->end.emplace(DecodeEnd{.end = AnswerEnd::kInterrupted});
  for (auto& sequence : waiting_) sequence->end.emplace(DecodeEnd{.end = AnswerEnd::kInterrupted});
  remove_ended();
}

void Decoder::check(const DecodeRequest& request) const {
  const auto& model = model_.config();
  const int64_t tokens = static_cast<int64_t>(request.prompt.size()), longest = longest_prompt(model);
  if (tokens == 0) throw usage_error("a prompt must have at least one token.");
  if (tokens > longest) {
    throw usage_error(
        "a prompt of {} tokens is too long for the model's context of {}; at most {} are read. Shorten it.",
        tokens, model.context, longest);
  }
  if (tokens > reader_->capacity()) {
    throw usage_error(
        "a prompt of {} tokens is larger than the whole cache, which holds {}. Shorten it, or give the cache "
        "more memory.",
        tokens, reader_->capacity());
  }
  for (const int32_t id : request.prompt) {
    if (id < 0 || id >= model.vocab_size)
      throw usage_error("there is no token {}: the model's ids go from 0 to {}.", id, model.vocab_size - 1);
  }
}

Decoder::Ticket Decoder::submit(DecodeRequest request) {
  check(request);
  auto sequence = std::make_unique<Sequence>(Sequence{.request = std::move(request)});
  sequence->ids = sequence->request.prompt;
  const std::lock_guard lock(mutex_);
  const Ticket ticket = sequence->ticket = ++last_ticket_;
  submitted_.push_back(std::move(sequence));
  ++load_.waiting;
  changed_.notify_all();
  return ticket;
}

void Decoder::cancel(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(ticket);
  changed_.notify_all();
}

DecoderLoad Decoder::load() const {
  const std::lock_guard lock(mutex_);
  return load_;
}

void Decoder::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    if (advance()) continue;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, stop, [&] { return !submitted_.empty() || !cancelled_.empty(); });
  }
}

bool Decoder::advance() {
  c10::InferenceMode inference;
  const c10::DeviceGuard guard(model_.device());
  receive();
  std::vector<Chunk> chunks;
  int64_t prompt_tokens = config_.prefill_tokens;
  bool worked = true;
  try {
    plan_running(chunks, prompt_tokens);
    if (!waits_) plan_waiting(chunks, prompt_tokens);
    if (waits_) {
      waits_ = false;
      finish_passes(0);
    } else if (!chunks.empty()) {
      read(chunks);
    } else if (!started_.empty()) {
      finish_passes(static_cast<int64_t>(started_.size()) - 1);
    } else {
      worked = false;
    }
  } catch (...) {
    fail();
  }
  worked |= remove_ended();
  publish();
  return worked;
}

/// What other threads asked for since the last pass.
void Decoder::receive() {
  std::vector<std::unique_ptr<Sequence>> submitted;
  std::vector<Ticket> cancelled;
  {
    const std::lock_guard lock(mutex_);
    submitted.swap(submitted_), cancelled.swap(cancelled_);
  }
  std::ranges::move(submitted, std::back_inserter(waiting_));
  const auto interrupt = [&](Sequence& sequence) {
    if (std::ranges::find(cancelled, sequence.ticket) != cancelled.end())
      sequence.end.emplace(DecodeEnd{.end = AnswerEnd::kInterrupted});
  };
  for (auto& sequence : running_) interrupt(*sequence);
  for (auto& sequence : waiting_) interrupt(*sequence);
  remove_ended();
}

/// Whether a request whose last tokens are not here yet goes on behind them.
bool Decoder::may_read_on(const Sequence& sequence) const {
  const auto& request = sequence.request;
  if (sequence.under_way == 0) return true;
  return sequence.made() + sequence.under_way < request.sampling.max_tokens &&
         sequence.size() + sequence.under_way < longest_sequence(model_.config());
}

/// Each running request has its next token read; prompts, and what the calculator wrote, in chunks.
void Decoder::plan_running(std::vector<Chunk>& chunks, int64_t& prompt_tokens) {
  for (size_t i = 0; i < running_.size() && !waits_; ++i) {
    Sequence& sequence = *running_[i];
    if (!may_read_on(sequence)) continue;
    const int64_t unread = sequence.unread();
    const int64_t tokens = unread == 1 ? 1 : std::min(unread, prompt_tokens);
    if (tokens == 0 || !make_room(i, sequence.read + tokens)) continue;
    if (unread > 1) prompt_tokens -= tokens;
    chunks.push_back({&sequence, tokens});
  }
}

/// Room for a running request; those that came last give theirs back for it, at last it itself. Before that,
/// what was started is waited for: it may end somebody.
bool Decoder::make_room(size_t index, int64_t tokens) {
  while (!reader_->reserve(*running_[index], tokens)) {
    waits_ = !started_.empty();
    if (waits_) return false;
    if (running_.size() == 1) {  // it has the whole cache
      running_[index]->end.emplace(DecodeEnd{.end = AnswerEnd::kContextFull});
      return false;
    }
    reader_->close(*running_.back());
    ++counts_.preemptions;
    waiting_.push_front(std::move(running_.back()));
    running_.pop_back();
    if (index == running_.size()) return false;
  }
  return true;
}

/// Requests join while there is room for all their tokens. One that the whole cache has no room for, as what
/// the calculator wrote is more than one token, can go on no more.
void Decoder::plan_waiting(std::vector<Chunk>& chunks, int64_t& prompt_tokens) {
  while (!waiting_.empty() && prompt_tokens > 0 && static_cast<int64_t>(running_.size()) < config_.running) {
    Sequence& sequence = *waiting_.front();
    reader_->open(sequence);
    if (!reader_->reserve(sequence, sequence.size())) {
      reader_->close(sequence);
      if (running_.empty()) sequence.end.emplace(DecodeEnd{.end = AnswerEnd::kContextFull});
      return;
    }
    if (!sequence.shared) {
      sequence.shared = sequence.read;
      counts_.shared_tokens += sequence.read;
    }
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    const int64_t tokens = std::min(sequence.unread(), prompt_tokens);
    prompt_tokens -= tokens;
    chunks.push_back({&sequence, tokens});
  }
}

/// Reads the chunks, and has the next token chosen where a sequence is read to its end.
void Decoder::read(const std::vector<Chunk>& chunks) {
  std::vector<Sequence*> due;
  bool wait = false;  // the next pass needs this one's tokens, or somebody wants its logits
  for (const Chunk& chunk : chunks) {
    counts_.read_tokens += chunk.sequence->of_prompt(chunk.tokens);
    if (!chunk.due()) continue;
    due.push_back(chunk.sequence);
    wait |= chunk.sequence->request.logprobs >= 0;
  }
  Reading reading = reader_->read(chunks);
  if (due.empty()) return;
  if (!reading.chosen) {
    finish_passes(0);
    return choose(due, reading.logits_BV);
  }
  for (Sequence* sequence : due) ++sequence->under_way;
  started_.push_back({std::move(due), std::move(reading.chosen), wait ? reading.logits_BV : at::Tensor()});
  finish_passes(wait ? 0 : reader_->passes_ahead());
}

/// The host chooses. Some may have ended since the pass was planned.
void Decoder::choose(const std::vector<Sequence*>& due, const at::Tensor& logits_BV) {
  std::vector<SampleRow> rows;
  for (const Sequence* sequence : due) {
    const auto& request = sequence->request;
    rows.push_back({.sampling = &request.sampling,
                    .seen = sequence->ids,
                    .sample = request.sample,
                    .position = static_cast<uint64_t>(sequence->made()),
                    .vocab_size = request.vocab_size});
  }
  const auto chosen = sample(logits_BV, rows);
  for (size_t i = 0; i < due.size(); ++i)
    if (!due[i]->end) deliver(*due[i], told(due[i]->request, chosen[i], logits_BV[static_cast<int64_t>(i)]));
}

DecodedToken Decoder::told(const DecodeRequest& request, int32_t id, const at::Tensor& logits_V) const {
  DecodedToken token{.id = id};
  if (request.logprobs < 0) return token;
  auto all = log_probabilities(logits_V, id, request.vocab_size, request.logprobs);
  token.logprob = all.chosen, token.likeliest = std::move(all.likeliest);
  return token;
}

/// Tells the tokens of all passes that were started, but so many.
void Decoder::finish_passes(int64_t but) {
  for (; static_cast<int64_t>(started_.size()) > but; started_.pop_front()) {
    const StartedPass& pass = started_.front();
    const auto ids = pass.chosen->wait();
    for (size_t i = 0; i < pass.due.size(); ++i) {
      Sequence* sequence = pass.due[i];
      if (!sequence || sequence->end) continue;  // what was made beyond the end is nobody's
      --sequence->under_way;
      const auto logits = pass.logits_BV.defined() ? pass.logits_BV[static_cast<int64_t>(i)] : at::Tensor();
      deliver(*sequence, told(sequence->request, static_cast<int32_t>(ids[i]), logits));
    }
  }
}

/// What was chosen behind the sequence's last token is dropped: something else stands there.
void Decoder::take_back(Sequence& sequence) {
  for (StartedPass& pass : started_)
    std::ranges::replace(pass.due, &sequence, static_cast<Sequence*>(nullptr));
  sequence.under_way = 0, sequence.seen = false;
  sequence.read = std::min(sequence.read, sequence.size() + 1);  // with the token that is being delivered
}

/// The token, and what the calculator answers to it, join the answer.
void Decoder::deliver(Sequence& sequence, DecodedToken token) {
  const auto& request = sequence.request;
  const auto end = [&](AnswerEnd how) { sequence.end.emplace(DecodeEnd{.end = how}); };
  if (std::ranges::find(request.stop_tokens, token.id) != request.stop_tokens.end())
    return end(AnswerEnd::kStopped);
  std::vector<DecodedToken> added{std::move(token)};
  if (request.calculator)
    for (const int32_t id : request.calculator->after(sequence.calls, added.front().id))
      added.push_back({.id = id});
  if (added.size() > 1) take_back(sequence);
  for (const DecodedToken& next : added) {
    sequence.ids.push_back(next.id);
    ++counts_.made_tokens;
    try {
      if (request.on_token && !request.on_token(next)) return end(AnswerEnd::kStopped);
    } catch (...) {
      return end_with_error(sequence, std::current_exception());
    }
    if (sequence.made() >= request.sampling.max_tokens) return end(AnswerEnd::kLength);
    if (sequence.size() >= longest_sequence(model_.config())) return end(AnswerEnd::kContextFull);
  }
}

/// A pass that failed has left keys and values half written: what runs ends, and nothing of it is shared.
void Decoder::fail() {
  for (auto& sequence : running_)
    if (!sequence->end) end_with_error(*sequence, std::current_exception());
  started_.clear(), waits_ = false;
  for (auto& sequence : running_) reader_->close(*sequence);
  if (!waiting_.empty()) reader_->close(*waiting_.front());  // it may have been about to join
  reader_->forget();
}

bool Decoder::remove_ended() {
  for (StartedPass& pass : started_)
    std::ranges::replace_if(
        pass.due, [](const Sequence* one) { return one && one->end; }, nullptr);
  std::vector<std::unique_ptr<Sequence>> ended;
  const auto take = [&](auto& sequences) {
    const auto live = std::ranges::stable_partition(sequences, [](const auto& one) { return !one->end; });
    std::ranges::move(live, std::back_inserter(ended));
    sequences.erase(live.begin(), live.end());
  };
  take(running_);
  for (auto& sequence : ended) reader_->close(*sequence);
  take(waiting_);
  for (auto& sequence : ended) tell_end(*sequence);
  return !ended.empty();
}

void Decoder::publish() {
  counts_.running = static_cast<int64_t>(running_.size());
  counts_.cache_tokens = reader_->capacity();
  counts_.cache_tokens_used = reader_->used();
  counts_.replayed = reader_->replayed();
  const std::lock_guard lock(mutex_);
  counts_.waiting = static_cast<int64_t>(waiting_.size() + submitted_.size());
  load_ = counts_;
}

}  // namespace tightloop
