#include "infer/thoughts.h"

#include <algorithm>

#include "data/render/chat_text.h"

namespace tightloop {

bool opens_thinking(const Tokenizer& tokenizer, std::span<const int32_t> prompt) {
  constexpr size_t kTail = 16;
  std::string text = tokenizer.decode(prompt.last(std::min(prompt.size(), kTail)));
  text.erase(text.find_last_not_of(" \n\t") + 1);
  return text.ends_with(kThink);
}

std::string_view without_thoughts(std::string_view answer, bool opened) {
  const size_t begin = std::min(answer.find_first_not_of(" \t\r\n"), answer.size());
  if (!opened && !answer.substr(begin).starts_with(kThink)) return answer;
  const size_t end = answer.find(kThought, begin);
  return end == answer.npos ? "" : answer.substr(end + kThought.size());
}

}  // namespace tightloop
