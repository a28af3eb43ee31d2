#include "serve/api/answer_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "serve/api/fields.h"

namespace tightloop::serve {

namespace {

constexpr std::string_view kThink = "<think>", kThought = "</think>";
constexpr std::string_view kCall = "<tool_call>", kCallEnd = "</tool_call>";
constexpr std::string_view kMistral = "[TOOL_CALLS]", kPython = "<|python_tag|>";
constexpr std::string_view kSpace = " \n\r\t";

/// Bytes at the end of `text` that may be the beginning of `mark`.
size_t begun(std::string_view text, std::string_view mark) {
  for (size_t size = std::min(text.size(), mark.size() - 1); size > 0; --size)
    if (text.ends_with(mark.substr(0, size))) return size;
  return 0;
}

std::string_view without_space(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

/// Whether a text that only begins may go on as this.
bool may_become(std::string_view text, std::string_view mark) {
  return text.size() < mark.size() && mark.starts_with(text);
}

/// White space at the end, which does not belong to the text where a mark follows.
size_t trailing(std::string_view text) {
  const size_t last = text.find_last_not_of(kSpace);
  return last == text.npos ? text.size() : text.size() - last - 1;
}

}  // namespace

std::vector<ToolCall> calls_of(std::string_view text, const std::set<std::string>* known) {
  const OrderedJson json = parse_ordered(text);
  std::vector<ToolCall> calls;
  const auto add = [&](const OrderedJson& one) {
    if (!one.is_object() || !one.contains("name") || !one["name"].is_string()) return false;
    const char* key = one.contains("arguments") ? "arguments" : "parameters";
    const std::string name = one["name"].get<std::string>();
    if (known && (!known->contains(name) || !one.contains(key))) return false;
    const auto arguments = one.contains(key) ? one[key] : OrderedJson::object();
    calls.push_back({name, arguments.is_string()
                               ? arguments.get<std::string>()
                               : arguments.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)});
    return true;
  };
  if (json.is_array() ? !std::ranges::all_of(json, add) : !add(json)) return {};
  return calls;
}

AnswerParts::AnswerParts(bool thinks, std::set<std::string> tools)
    : state_(thinks ? State::kThinking : State::kStart), tools_(std::move(tools)) {}

void AnswerParts::give(std::string& to, size_t bytes) {
  to.append(pending_, 0, bytes);
  pending_.erase(0, bytes);
}

void AnswerParts::add_calls(AnswerDelta& delta, std::vector<ToolCall> calls) {
  has_calls_ |= !calls.empty();
  std::ranges::move(calls, std::back_inserter(delta.calls));
}

AnswerDelta AnswerParts::add(std::string_view text) {
  AnswerDelta delta;
  pending_ += text;
  while (step(delta, false)) {
  }
  return delta;
}

AnswerDelta AnswerParts::finish() {
  AnswerDelta delta;
  while (step(delta, true)) {
  }
  return delta;
}

/// True where it is to be asked again: something was taken, or the state has changed.
bool AnswerParts::step(AnswerDelta& delta, bool last) {
  switch (state_) {
    case State::kStart:
    case State::kAfterThinking:
      return step_start(delta, last);
    case State::kThinking:
      return step_thinking(delta, last);
    case State::kText:
      return step_text(delta, last);
    case State::kCall:
      return step_call(delta, last);
    case State::kWhole:
      break;
  }
  if (!last || pending_.empty()) return false;
  std::string_view rest = without_space(pending_);
  for (const auto mark : {kMistral, kPython})
    if (rest.starts_with(mark)) rest.remove_prefix(mark.size());
  auto calls = calls_of(rest, &tools_);
  if (calls.empty())
    give(delta.content, pending_.size());
  else
    add_calls(delta, std::move(calls)), pending_.clear();
  return false;
}

/// Before the first word: what follows is thinking, a call that is the whole answer, or text.
bool AnswerParts::step_start(AnswerDelta&, bool last) {
  const std::string_view rest = without_space(pending_);
  const bool may_think = state_ == State::kStart;
  if (!last && (rest.empty() || (may_think && may_become(rest, kThink)))) return false;
  if (may_think && rest.starts_with(kThink)) {
    pending_.erase(0, pending_.find(kThink) + kThink.size());
    state_ = State::kThinking;
    return true;
  }
  if (!tools_.empty() && !last)
    for (const auto mark : {kMistral, kPython})
      if (may_become(rest, mark)) return false;
  const bool whole = rest.starts_with('{') || rest.starts_with(kMistral) || rest.starts_with(kPython);
  if (!may_think) pending_.erase(0, std::min(pending_.find_first_not_of(kSpace), pending_.size()));
  state_ = !tools_.empty() && whole ? State::kWhole : State::kText;
  return true;
}

bool AnswerParts::step_thinking(AnswerDelta& delta, bool last) {
  if (fresh_) pending_.erase(0, std::min(pending_.find_first_not_of("\n"), pending_.size()));
  if (pending_.empty()) return false;
  const size_t close = pending_.find(kThought);
  if (close != pending_.npos) {
    const size_t text = close - trailing(std::string_view(pending_).substr(0, close));
    give(delta.thinking, text);
    pending_.erase(0, close - text + kThought.size());
    state_ = State::kAfterThinking;
    return true;
  }
  const size_t mark = last ? 0 : begun(pending_, kThought);
  const size_t held =
      last ? 0 : mark + trailing(std::string_view(pending_).substr(0, pending_.size() - mark));
  if (held < pending_.size()) fresh_ = false;
  give(delta.thinking, pending_.size() - held);
  return false;
}

bool AnswerParts::step_text(AnswerDelta& delta, bool last) {
  if (pending_.empty()) return false;
  if (tools_.empty()) {
    give(delta.content, pending_.size());
    return false;
  }
  const size_t open = pending_.find(kCall);
  if (open != pending_.npos) {
    const size_t text = open - trailing(std::string_view(pending_).substr(0, open));
    give(delta.content, text);
    gap_ = pending_.substr(0, open - text);
    pending_.erase(0, open - text);
    state_ = State::kCall;
    return true;
  }
  const size_t mark = last ? 0 : begun(pending_, kCall);
  const std::string_view before = std::string_view(pending_).substr(0, pending_.size() - mark);
  // Behind a call white space is nothing that is said.
  const size_t held = last && has_calls_ && trailing(before) == before.size() ? before.size()
                      : last                                                  ? 0
                                                                              : mark + trailing(before);
  give(delta.content, pending_.size() - held);
  if (last) pending_.clear();
  return false;
}

/// pending_ begins with <tool_call>.
bool AnswerParts::step_call(AnswerDelta& delta, bool last) {
  const size_t close = pending_.find(kCallEnd);
  if (close == pending_.npos && !last) return false;
  const std::string_view json =
      without_space(std::string_view(pending_).substr(kCall.size(), close - std::min(close, kCall.size())));
  auto calls = calls_of(json, nullptr);
  const size_t whole = close == pending_.npos ? pending_.size() : close + kCallEnd.size();
  if (calls.empty())
    delta.content += gap_, give(delta.content, whole);
  else
    add_calls(delta, std::move(calls)), pending_.erase(0, whole);
  state_ = State::kText;
  return true;
}

}  // namespace tightloop::serve
