#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex_split.h"

#include <pcre2.h>

#include <algorithm>
#include <cstdint>

#include "core/error.h"

namespace tightloop {

namespace {

std::string reason(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

/// What one thread matches with: made once a thread, whatever the pattern.
struct Match {
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 16 << 20, nullptr);
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  Match() { pcre2_jit_stack_assign(context, nullptr, stack); }
  ~Match() {
    pcre2_match_data_free(data);
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
  }
};

}  // namespace

struct RegexSplit::Compiled {
  pcre2_code* code = nullptr;
  std::string pattern;
};

RegexSplit::RegexSplit(const std::string& pattern) : compiled_(std::make_unique<Compiled>()) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled_->pattern = pattern;
  // MULTILINE: Hugging Face's engine takes ^ and $ for the ends of lines.
  compiled_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_MULTILINE, &error,
                                  &offset, nullptr);
  if (!compiled_->code)
    throw data_error("the split pattern '{}' is not a regular expression that PCRE2 knows: {} at byte {}.",
                     pattern, reason(error), offset);
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);
}

RegexSplit::~RegexSplit() { pcre2_code_free(compiled_->code); }

void RegexSplit::split(std::string_view text, const std::function<void(std::string_view)>& emit) const {
  thread_local const Match match;
  // Long runs cost steps, patterns that explode cost many more.
  constexpr uint64_t kMost = UINT32_MAX;
  pcre2_set_match_limit(match.context,
                        static_cast<uint32_t>(std::min(kMost, 10'000'000 + 64 * uint64_t{text.size()})));
  size_t emitted = 0, from = 0;
  while (from < text.size()) {
    const int count = pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                  from, 0, match.data, match.context);
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0)
      throw data_error("the split pattern '{}' could not be matched at byte {} of a text: {}.",
                       compiled_->pattern, from, reason(count));
    // Copied, because emit may split again, with the same match data.
    const size_t begin = pcre2_get_ovector_pointer(match.data)[0],
                 end = pcre2_get_ovector_pointer(match.data)[1];
    if (end <= begin) {  // an empty match splits nothing
      from = std::max(from, begin) + 1;
      while (from < text.size() && (static_cast<uint8_t>(text[from]) & 0xC0) == 0x80) ++from;
      continue;
    }
    if (begin > emitted) emit(text.substr(emitted, begin - emitted));
    emit(text.substr(begin, end - begin));
    emitted = from = end;
  }
  if (emitted < text.size()) emit(text.substr(emitted));
}

}  // namespace tightloop
