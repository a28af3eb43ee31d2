#pragma once

#include <string>

#include "core/random.h"

namespace tightloop {

/// Made-up records, one JSON object each, with the fields of public datasets: for trying a recipe without
/// them.
struct SampleRecords {
  /// Some sentences; paragraphs of a text file.
  static std::string paragraph(Random& random);
  /// {"text": ...}, under that name.
  static std::string text(Random& random, const std::string& field);
  /// SmolTalk: {"messages": [{"content", "role"}, ...], "source"}; some begin with a system prompt.
  static std::string chat(Random& random);
  /// MiniMind: {"conversations": [...]}.
  static std::string minimind_chat(Random& random);
  /// The same with thinking (reasoning_content), and with tools, tool_calls (texts that hold JSON) and a
  /// tool's answer.
  static std::string minimind_thinking(Random& random);
  static std::string minimind_tools(Random& random);
  /// MMLU: {"question", "subject", "choices", "answer": its number}.
  static std::string choice(Random& random);
  /// GSM8K: {"question", "answer"}, with <<48/2=24>> for each calculation and #### before the result.
  static std::string gsm8k(Random& random);
};

/// A sentence, and the same in a made-up language: words turned round, in the opposite order.
struct SamplePair {
  std::string source, target;
};
SamplePair sample_pair(Random& random);

}  // namespace tightloop
