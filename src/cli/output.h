#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tightloop::cli {

/// Writes to standard output at once. Where nobody reads it any more the verb ends quietly with exit code
/// 141, as a program does that SIGPIPE ends; any other failure is an error.
void put(std::string_view text);
/// Text of a model or of data as it is to be written: where standard output is a terminal, made printable.
std::string shown(std::string_view text);
/// The end of every verb: what standard output still holds is written, or it is an error.
void finish_output();

/// JSON as text; bytes that are not UTF-8 become U+FFFD.
std::string dump(const nlohmann::json& json, int indent = 2);

/// The file that a user names to be read: "-" is standard input.
std::string input_named(const std::string& name);
/// All of standard input. An error above 64 MiB.
std::string read_standard_input();

}  // namespace tightloop::cli
