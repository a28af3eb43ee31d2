#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/files.h"
#include "data/data_config.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

/// A text file as the tokens that a model is measured on.
struct TextTokens {
  std::vector<int32_t> ids{};
  int64_t bytes = 0;      // of the whole text
  int64_t documents = 0;  // 0: the text as it is, nothing added
};

/// Reads a file of UTF-8 text, gzip and zstd too. With `data`, it is cut into documents as training cuts it
/// (data.documents), and an end-of-text token stands before the first and behind each. A data error for
/// anything but text.
TextTokens read_text_tokens(const fs::path& file, const DataConfig* data, const Tokenizer& tokenizer);

}  // namespace tightloop
