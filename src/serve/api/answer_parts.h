#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tightloop::serve {

/// A function that an answer calls, with its arguments as JSON.
struct ToolCall {
  std::string name, arguments;
};

/// What a piece of an answer's text adds.
struct AnswerDelta {
  std::string thinking{}, content{};
  std::vector<ToolCall> calls{};
  bool empty() const { return thinking.empty() && content.empty() && calls.empty(); }
};

/// Takes the text of an answer apart as it comes: what is between <think> and </think> at its beginning, the
/// calls of tools, and the rest. Calls are written as <tool_call>{"name", "arguments"}</tool_call> (Qwen,
/// Hermes, MiniMind), or are the whole answer: {"name", "parameters"} (Llama 3), [TOOL_CALLS] and a list
/// (Mistral). What looks like one and is none stays text.
class AnswerParts {
 public:
  /// `thinks`: the prompt has opened <think> already. `tools`: the names that may be called; empty: none are
  /// looked for.
  explicit AnswerParts(bool thinks = false, std::set<std::string> tools = {});

  AnswerDelta add(std::string_view text);
  /// What was kept back, when no text follows.
  AnswerDelta finish();
  bool has_calls() const { return has_calls_; }

 private:
  enum class State { kStart, kThinking, kAfterThinking, kText, kCall, kWhole };
  bool step(AnswerDelta& delta, bool last);
  bool step_start(AnswerDelta& delta, bool last);
  bool step_thinking(AnswerDelta& delta, bool last);
  bool step_text(AnswerDelta& delta, bool last);
  bool step_call(AnswerDelta& delta, bool last);
  void give(std::string& to, size_t bytes);
  void add_calls(AnswerDelta& delta, std::vector<ToolCall> calls);

  State state_;
  const std::set<std::string> tools_;
  std::string pending_, gap_;  // gap_: white space before a call
  bool fresh_ = true;          // nothing of the thinking was given yet
  bool has_calls_ = false;
};

/// The calls that a text of JSON stands for; nothing where it is none. `known` (if not null): names that
/// count as calls.
std::vector<ToolCall> calls_of(std::string_view json, const std::set<std::string>* known);

}  // namespace tightloop::serve
