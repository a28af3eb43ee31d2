#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/files.h"
#include "data/store/documents.h"
#include "data/store/shard_format.h"

namespace tightloop {

/// One shard, mapped. Opening reads the footer and the checksums alone; every block is verified when it is
/// first touched, ids against the vocabulary too. Errors name the file and the byte.
class Shard {
 public:
  explicit Shard(const fs::path& path);

  const ShardFooter& footer() const { return footer_; }
  const fs::path& path() const { return file_.path(); }
  uint64_t begin(uint64_t document) const;
  int32_t source(uint64_t document) const;
  void read(uint64_t position, uint64_t count, int32_t* ids) const;
  uint64_t read_mask(uint64_t position, uint64_t count, uint8_t* mask) const;

 private:
  void touch(uint64_t byte, uint64_t size) const;
  void verify(uint64_t block) const;

  MappedFile file_;
  const char* data_;
  ShardFooter footer_;
  TokenView view_;
  const uint64_t* begins_;
  const int32_t* sources_;
  const uint64_t* checksums_;
  std::unique_ptr<std::atomic<bool>[]> verified_;
};

/// Many shards as one set of documents, in the order given.
class ShardSet : public Documents {
 public:
  /// A data error when a shard was made with another tokenizer than `tokenizer` (a fingerprint).
  ShardSet(const std::vector<fs::path>& paths, std::optional<uint64_t> tokenizer);

  uint64_t size() const override { return first_document_.back(); }
  uint64_t begin(uint64_t document) const override;
  void read(uint64_t position, uint64_t count, int32_t* ids) const override;
  uint64_t read_mask(uint64_t position, uint64_t count, uint8_t* mask) const override;
  int32_t source(uint64_t document) const override;
  int32_t source_at(uint64_t position) const override;
  std::string origin(uint64_t document) const override;

 private:
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<uint64_t> first_document_{0}, first_token_{0};  // of each shard; the last is the total
};

}  // namespace tightloop
