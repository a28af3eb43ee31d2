#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/values/value.h"

namespace tightloop::jinja {

enum class LexKind : uint8_t {
  kData,
  kOutputBegin,
  kOutputEnd,
  kTagBegin,
  kTagEnd,
  kName,
  kConstant,
  kSign,
  kEnd
};

struct LexToken {
  LexKind kind;
  int line;
  std::string text;  // data, a name, a sign such as "//"
  Value value{};     // of a constant: text, integer or float
};

/// What is wrong with a template, and in which line.
struct SyntaxFault {
  int line;
  std::string what;
};

/// Cuts a template into tokens, with white space as jinja2's trim_blocks and lstrip_blocks leave it. The last
/// token is kEnd. Throws SyntaxFault.
std::vector<LexToken> cut_tokens(std::string_view template_text);

}  // namespace tightloop::jinja
