#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tightloop {

/// GPT-2's way to write any byte as a printable character ("Ġ" is a space), used in vocab.json and
/// tokenizer.json.
std::string to_byte_alphabet(std::string_view bytes);
/// The bytes; nothing when a character is not of the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace tightloop
