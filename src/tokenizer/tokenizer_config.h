#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tightloop {

class Fields;

/// Section "tokenizer": an existing one, or how to train one from the run's own data.
struct TokenizerConfig {
  std::string path, target_path;
  int64_t vocab_size = 4096;
  std::string pattern = "gpt2";
  std::vector<std::string> special_tokens{"<|endoftext|>"};

  void describe(Fields& fields);
};

}  // namespace tightloop
