#include "data/render/chat_text.h"

#include <algorithm>
#include <cctype>

namespace tightloop {

void ChatText::drop_empty_thinking() {
  std::string kept;
  std::vector<size_t> cuts;  // where one began
  size_t from = 0;
  for (size_t at; (at = text.find(kEmptyThinking, from)) != text.npos; from = at + kEmptyThinking.size()) {
    cuts.push_back(at);
    kept.append(text, from, at - from);
  }
  if (cuts.empty()) return;
  kept.append(text, from);
  const auto moved = [&](size_t at) {
    size_t less = 0;
    for (const size_t cut : cuts) less += std::min(kEmptyThinking.size(), at > cut ? at - cut : 0);
    return at - less;
  };
  for (Span& answer : answers) answer.begin = moved(answer.begin), answer.end = moved(answer.end);
  text = std::move(kept);
}

std::vector<ChatText::Span> ChatText::thinking() const {
  std::vector<Span> found;
  for (const Span& answer : answers) {
    const std::string_view said = std::string_view(text).substr(0, answer.end);
    for (size_t at = answer.begin; (at = said.find(kThink, at)) != said.npos;) {
      size_t end = said.find(kThought, at);
      if (end == said.npos) break;
      end = std::min(said.find_first_not_of('\n', end + kThought.size()), said.size());
      found.push_back({at, end, answer.message});
      at = end;
    }
  }
  return found;
}

void mark(const std::vector<ChatText::Span>& spans, const std::vector<uint32_t>& ends, uint8_t value,
          uint8_t* mask) {
  size_t span = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const size_t begin = i ? ends[i - 1] : 0;
    while (span < spans.size() && spans[span].end <= begin) ++span;
    if (span == spans.size()) return;
    // What came out of no byte of its own belongs to where it stands.
    if (spans[span].begin < std::max<size_t>(ends[i], begin + 1)) mask[i] = value;
  }
}

size_t common_tokens(std::string_view left, std::string_view right) {
  const size_t same = static_cast<size_t>(std::ranges::mismatch(left, right).in1 - left.begin());
  const size_t open = left.substr(0, same).find_last_of("<[");
  if (open == left.npos || same == std::min(left.size(), right.size())) return same;
  return left.substr(0, same).find_first_of(">]", open) == left.npos ? open : same;
}

bool names(std::string_view jinja, std::string_view field) {
  if (field.empty()) return false;
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = 0; (at = jinja.find(field, at)) != jinja.npos; at += field.size()) {
    const size_t end = at + field.size();
    if ((at == 0 || !is_word(jinja[at - 1])) && (end == jinja.size() || !is_word(jinja[end]))) return true;
  }
  return false;
}

}  // namespace tightloop
