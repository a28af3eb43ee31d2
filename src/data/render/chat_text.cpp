#include "data/render/chat_text.h"

#include <algorithm>

namespace tightloop {

namespace {

constexpr std::string_view kEmptyThinking = "<think>\n\n</think>\n\n";

}  // namespace

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
  for (size_t at = 0; (at = text.find(kThink, at)) != text.npos;) {
    size_t end = text.find(kThought, at);
    if (end == text.npos) break;
    end = std::min(text.find_first_not_of('\n', end + kThought.size()), text.size());
    found.push_back({at, end, 0});
    at = end;
  }
  return found;
}

void encode_chat(const ChatText& chat, const Tokenizer& tokenizer, std::vector<int32_t>& ids,
                 std::vector<uint32_t>& ends) {
  if (tokenizer.encode_with_ends(chat.text, ids, ends)) return;
  const std::string_view text = chat.text;
  const auto add = [&](size_t begin, size_t end) {
    tokenizer.encode(text.substr(begin, end - begin), ids, SpecialText::kParse);
    ends.resize(ids.size(), static_cast<uint32_t>(end));
  };
  size_t from = 0;
  for (const ChatText::Span& answer : chat.answers) {
    add(from, answer.begin);
    add(answer.begin, answer.end);
    from = answer.end;
  }
  add(from, text.size());
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

}  // namespace tightloop
