#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/files.h"

namespace tightloop {

/// What bytes that are no UTF-8 text seem to be.
struct LikelyEncoding {
  std::string name;    // for people: "GBK (GB18030)", "a ZIP archive"; empty: UTF-8 text
  std::string iconv;   // what iconv -f takes; empty: no encoding of text
  std::string advice;  // of such a file: what to do
};

/// `start`: whether the bytes are the first of their file.
LikelyEncoding likely_encoding(std::string_view bytes, bool start = true);

/// The command, or else what to do with such a file.
std::string conversion(const LikelyEncoding& likely, const fs::path& path);

/// A sentence about the first of the files that is no UTF-8 text: what it seems to be, and the command that
/// converts it. Empty where all are text, as far as they were looked into, or cannot be read.
std::string encoding_advice(const std::vector<fs::path>& paths);

}  // namespace tightloop
