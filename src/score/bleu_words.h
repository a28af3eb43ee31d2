#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/choice.h"

namespace tightloop {

/// How a sentence becomes the words that BLEU counts, each as sacreBLEU 2 defines it.
enum class BleuTokens {
  kNone,  // as they are, separated by spaces
  k13a,   // mteval-v13a: punctuation on its own; the default
  kZh,    // Chinese characters one by one, the rest as 13a has it
  kChar,  // every character
};
template <>
inline constexpr auto kChoices<BleuTokens> = std::to_array<Choice<BleuTokens>>({
    {BleuTokens::kNone, "none"},
    {BleuTokens::k13a, "13a"},
    {BleuTokens::kZh, "zh"},
    {BleuTokens::kChar, "char"},
});

/// The sentence with spaces between its tokens.
std::string tokenize_for_bleu(std::string_view sentence, BleuTokens tokens);

/// The parts between white space, as Python's str.split() sees it.
std::vector<std::string_view> split_words(std::string_view text);

}  // namespace tightloop
