#include "data/render/generated_answers.h"

#include "tokenizer/unicode/python_text.h"

namespace tightloop {

bool add_generated(const JinjaTemplate::Rendering& made, const JinjaTemplate::Rendering::Turn& turn,
                   size_t header, size_t message, ChatText& out) {
  const std::string_view text = std::string_view(out.text).substr(0, turn.end);
  size_t from = turn.begin + header;
  for (size_t i = 0; i < made.generated.size(); ++i) {
    auto [begin, end] = made.generated[i];
    if (begin < turn.begin || begin >= turn.end || begin == end) continue;
    std::string_view block = made.generated_texts[i];
    if (text.substr(begin, end - begin) != block) {
      begin = text.find(block, from);
      if (begin == text.npos) begin = text.find(block = python_text::strip(block), from);
      if (begin == text.npos) return false;
      end = begin + block.size();
    }
    if (begin < end) out.answers.push_back({begin, end, message});
    from = end;
  }
  return true;
}

void add_generated_in_order(const JinjaTemplate::Rendering& made, std::span<const size_t> assistants,
                            ChatText& out) {
  for (size_t i = 0; i < made.generated.size(); ++i) {
    const auto [begin, end] = made.generated[i];
    const bool there = std::string_view(out.text).substr(begin, end - begin) == made.generated_texts[i];
    if (begin < end && there && i < assistants.size()) out.answers.push_back({begin, end, assistants[i]});
  }
}

}  // namespace tightloop
