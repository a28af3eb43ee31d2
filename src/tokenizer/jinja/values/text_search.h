#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/values/run.h"

namespace tightloop::jinja {

inline constexpr size_t kNowhere = std::string_view::npos;

// In time that grows with the text alone, whatever the part is.
size_t find_first(std::string_view text, std::string_view part, size_t from = 0);
size_t find_last(std::string_view text, std::string_view part);
int64_t count_of(std::string_view text, std::string_view part);

/// Python's replace: at most `most` times, all where that is negative.
std::string replaced(Run& run, std::string_view text, std::string_view from, std::string_view to,
                     int64_t most);

/// Python's split and rsplit: at most `most` times, without limit where that is negative.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t most);
std::vector<std::string_view> split_at_last(std::string_view text, std::string_view separator, int64_t most);
std::vector<std::string_view> split_at_space(std::string_view text, int64_t most, bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

/// The text without characters of `set` at its ends.
std::string_view strip_any(std::string_view text, std::string_view set, bool left, bool right);

}  // namespace tightloop::jinja
