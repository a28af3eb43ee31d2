#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/files.h"
#include "data/store/documents.h"
#include "data/store/shard_format.h"

namespace tightloop {

/// folder/train-00000.shard
fs::path shard_path(const fs::path& folder, const std::string& part, uint64_t number);

/// Writes one shard, document by document. The file appears under its name when finish() returns, or not at
/// all.
class ShardWriter : public DocumentSink {
 public:
  ShardWriter(fs::path path, int64_t vocab_size, uint64_t tokenizer);
  ~ShardWriter() override;

  /// An id outside of the vocabulary is a data error.
  void extend(std::span<const int32_t> ids, std::span<const uint8_t> mask) override;
  void close(int32_t source) override;
  void finish();

  uint64_t tokens() const { return tokens_; }
  uint64_t documents() const { return sources_.size(); }

 private:
  void write(const void* data, uint64_t size);
  void flush_block();
  void align();

  fs::path path_, partial_;
  ShardFooter footer_;
  std::unique_ptr<FileWriter> file_;
  std::string block_;
  uint64_t written_ = 0;
  uint64_t tokens_ = 0;
  MaskBits mask_bits_;
  std::vector<uint64_t> checksums_, begins_{0};
  std::vector<int32_t> sources_;
  std::vector<uint16_t> narrow_;
};

}  // namespace tightloop
