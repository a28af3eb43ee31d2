#include "data/store/shard_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/hash.h"

namespace tightloop {

fs::path shard_path(const fs::path& folder, const std::string& part, uint64_t number) {
  return folder / fmt::format("{}-{:05}.shard", part, number);
}

ShardWriter::ShardWriter(fs::path path, int64_t vocab_size, uint64_t tokenizer)
    : path_(std::move(path)), partial_(partial_path(path_)) {
  footer_.id_bytes = vocab_size <= 65536 ? 2 : 4;
  footer_.vocab_size = vocab_size;
  footer_.tokenizer = tokenizer;
  file_ = std::make_unique<FileWriter>(partial_, path_);
  block_.reserve(ShardFooter::kBlock);
}

ShardWriter::~ShardWriter() {
  if (!file_) return;
  file_.reset();
  std::error_code ignored;
  fs::remove(partial_, ignored);
}

void ShardWriter::flush_block() {
  checksums_.push_back(hash64(block_));
  file_->write(block_);
  block_.clear();
}

void ShardWriter::write(const void* data, uint64_t size) {
  const char* bytes = static_cast<const char*>(data);
  written_ += size;
  while (size > 0) {
    const uint64_t here = std::min(size, ShardFooter::kBlock - block_.size());
    block_.append(bytes, here);
    bytes += here;
    size -= here;
    if (block_.size() == ShardFooter::kBlock) flush_block();
  }
}

void ShardWriter::align() {
  constexpr char kZeros[8] = {};
  write(kZeros, -written_ % 8);
}

void ShardWriter::extend(std::span<const int32_t> ids, std::span<const uint8_t> mask) {
  for (const int32_t id : ids) {
    if (id < 0 || static_cast<uint64_t>(id) >= footer_.vocab_size) {
      throw data_error("'{}': id {} is beyond the vocabulary of {}.", path_.string(), id, footer_.vocab_size);
    }
  }
  if (footer_.id_bytes == 2) {
    narrow_.assign(ids.begin(), ids.end());
    write(narrow_.data(), narrow_.size() * sizeof(uint16_t));
  } else {
    write(ids.data(), ids.size_bytes());
  }
  mask_bits_.extend(tokens_, ids.size(), mask);
  tokens_ += ids.size();
}

void ShardWriter::close(int32_t source) {
  begins_.push_back(tokens_);
  sources_.push_back(source);
}

void ShardWriter::finish() {
  footer_.documents = sources_.size();
  footer_.tokens = begins_.back();
  align();
  if (!mask_bits_.words().empty()) {
    footer_.mask_at = written_;
    write(mask_bits_.words().data(), mask_bits_.words().size() * sizeof(uint64_t));
  }
  footer_.begins_at = written_;
  write(begins_.data(), begins_.size() * sizeof(uint64_t));
  if (std::ranges::adjacent_find(sources_, std::ranges::not_equal_to()) != sources_.end()) {
    footer_.sources_at = written_;
    write(sources_.data(), sources_.size() * sizeof(int32_t));
  } else if (!sources_.empty()) {
    footer_.source = sources_[0];
  }
  align();
  footer_.checksums_at = written_;
  if (!block_.empty()) flush_block();
  footer_.checksums_hash = hash64(checksums_.data(), checksums_.size() * sizeof(uint64_t));
  footer_.hash = hash64(&footer_, offsetof(ShardFooter, hash));
  file_->write(checksums_.data(), checksums_.size() * sizeof(uint64_t));
  file_->write(&footer_, sizeof footer_);
  file_->close();
  file_.reset();
  move_path(partial_, path_);
  sync_folder(path_.parent_path());
}

}  // namespace tightloop
