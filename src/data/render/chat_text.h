#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tightloop {

inline constexpr std::string_view kThink = "<think>", kThought = "</think>";
inline constexpr std::string_view kEmptyThinking = "<think>\n\n</think>\n\n";

/// A conversation as one text, and what of it the assistant produces.
struct ChatText {
  struct Span {
    size_t begin, end;  // bytes of `text`
    size_t message;     // which one
  };
  std::string text;
  std::vector<Span> answers;  // in order, apart from each other

  /// Takes the empty <think> blocks out.
  void drop_empty_thinking();
  /// Of the answers: from <think> to </think>, with the line ends behind it.
  std::vector<Span> thinking() const;
};

/// Sets the mask of the tokens that have a byte in one of the spans. Both are in order.
void mark(const std::vector<ChatText::Span>& spans, const std::vector<uint32_t>& ends, uint8_t value,
          uint8_t* mask);

/// As far as two texts are the same, without the beginning of a token's name in which they part.
size_t common_tokens(std::string_view left, std::string_view right);

/// Whether a template reads a field of this name: it stands there as a word.
bool names(std::string_view jinja, std::string_view field);

}  // namespace tightloop
