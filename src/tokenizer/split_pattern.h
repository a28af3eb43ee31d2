#pragma once

#include <cstdint>

#include "core/choice.h"

namespace tightloop {

/// The split patterns that have a hand-written scanner here. All cover every byte of the text.
enum class SplitPattern : uint8_t {
  kNone,      // the text is one piece
  kGpt2,      // GPT-2, ByteLevel of Hugging Face
  kCl100k,    // GPT-4 as tiktoken writes it today: white space at the very end stays whole
  kCl100kHf,  // GPT-4 as first published, and Llama 3: newlines first, there too
  kO200k,     // GPT-4o
  kQwen,      // Qwen 2, 2.5 and 3
  kNanochat,
  kDigit,   // every number of its own (Digits of Hugging Face), and what is between
  kDigits,  // runs of numbers, and what is between
};

template <>
inline constexpr auto kChoices<SplitPattern> = std::to_array<Choice<SplitPattern>>({
    {SplitPattern::kGpt2, "gpt2"},
    {SplitPattern::kCl100k, "cl100k", "GPT-4"},
    {SplitPattern::kCl100k, "gpt4", "the same"},
    {SplitPattern::kCl100kHf, "llama3"},
    {SplitPattern::kO200k, "o200k", "GPT-4o"},
    {SplitPattern::kQwen, "qwen", "Qwen 2, 2.5 and 3"},
    {SplitPattern::kNanochat, "nanochat"},
    {SplitPattern::kNone, "none", "the text is one piece"},
});

}  // namespace tightloop
