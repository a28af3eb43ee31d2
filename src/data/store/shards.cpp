#include "data/store/shards.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/hash.h"

namespace tightloop {

namespace {
constexpr uint64_t kReadTogether = 1 << 16;
}

Shard::Shard(const fs::path& path) : file_(path), data_(file_.text().data()) {
  const uint64_t size = file_.text().size();
  const auto broken = [&](const char* why) {
    return data_error("'{}' is not a whole shard: {}. Prepare it again.", path.string(), why);
  };
  if (size < sizeof footer_) throw broken("it is too short");
  std::memcpy(&footer_, data_ + size - sizeof footer_, sizeof footer_);
  if (footer_.magic != ShardFooter::kMagic)
    throw broken("it does not end as a shard does (cut short, or not a shard)");
  if (footer_.hash != hash64(&footer_, offsetof(ShardFooter, hash))) throw broken("its footer is damaged");
  // A footer with a good hash can still lie; every section must be inside the file and large enough.
  const uint64_t end = footer_.checksums_at, blocks = (end + ShardFooter::kBlock - 1) / ShardFooter::kBlock;
  const auto holds = [&](uint64_t at, uint64_t count, uint64_t each) {
    return at % 8 == 0 && at <= end && count <= (end - at) / each;
  };
  const bool sound =
      (footer_.id_bytes == 2 || footer_.id_bytes == 4) && end <= size - sizeof footer_ &&
      (size - sizeof footer_ - end) / 8 == blocks && holds(0, footer_.tokens, footer_.id_bytes) &&
      footer_.documents < size && holds(footer_.begins_at, footer_.documents + 1, 8) &&
      (footer_.sources_at == 0 || holds(footer_.sources_at, footer_.documents, 4)) &&
      (footer_.mask_at == 0 || holds(footer_.mask_at, (footer_.tokens + 63) / 64, 8)) && end % 8 == 0;
  if (!sound) throw broken("its footer does not fit its size");
  checksums_ = reinterpret_cast<const uint64_t*>(data_ + end);
  if (hash64(checksums_, blocks * 8) != footer_.checksums_hash) throw broken("its checksums are damaged");
  // Rows are read in random order: no reading ahead, but whole blocks at once (see verify).
  ::madvise(const_cast<char*>(data_), size, MADV_RANDOM);
  verified_ = std::make_unique<std::atomic<bool>[]>(blocks);
  if (footer_.id_bytes == 2) {
    view_.narrow = reinterpret_cast<const uint16_t*>(data_);
  } else {
    view_.wide = reinterpret_cast<const uint32_t*>(data_);
  }
  if (footer_.mask_at) view_.mask_bits = reinterpret_cast<const uint64_t*>(data_ + footer_.mask_at);
  begins_ = reinterpret_cast<const uint64_t*>(data_ + footer_.begins_at);
  sources_ = reinterpret_cast<const int32_t*>(data_ + footer_.sources_at);
  if (begin(0) != 0 || begin(footer_.documents) != footer_.tokens)
    throw broken("its documents do not add up");
}

void Shard::verify(uint64_t block) const {
  const uint64_t from = block * ShardFooter::kBlock;
  const uint64_t size = std::min(ShardFooter::kBlock, footer_.checksums_at - from);
  // Disks prefer larger reads than one block, and the neighbours will be wanted too.
  const uint64_t region = from / kReadTogether * kReadTogether;
  ::madvise(const_cast<char*>(data_ + region), std::min(kReadTogether, footer_.checksums_at - region),
            MADV_WILLNEED);
  if (hash64(data_ + from, size) != checksums_[block]) {
    throw data_error("'{}' is damaged between bytes {} and {}: the checksum differs. Prepare it again.",
                     path().string(), from, from + size);
  }
  const uint64_t first = from / footer_.id_bytes;
  const uint64_t last = std::min(footer_.tokens, (from + size) / footer_.id_bytes);
  uint32_t largest = 0;
  for (uint64_t i = first; i < last; ++i)
    largest = std::max<uint32_t>(largest, view_.narrow ? view_.narrow[i] : view_.wide[i]);
  if (first < last && largest >= footer_.vocab_size) {
    throw data_error("'{}' holds the id {}, beyond its vocabulary of {}, between bytes {} and {}.",
                     path().string(), largest, footer_.vocab_size, from, from + size);
  }
  // Documents must follow one another, or lengths computed from their begins would be wild.
  if (from + size > footer_.begins_at) {
    const uint64_t one = from > footer_.begins_at ? (from - footer_.begins_at) / 8 : 0;
    const uint64_t end = std::min(footer_.documents + 1, (from + size - footer_.begins_at) / 8);
    for (uint64_t i = one; i < end; ++i)
      if (begins_[i] > footer_.tokens || (i > 0 && begins_[i] < begins_[i - 1])) {
        throw data_error("'{}': document {} does not follow the one before it. Prepare it again.",
                         path().string(), i);
      }
  }
  verified_[block].store(true, std::memory_order_release);
}

void Shard::touch(uint64_t byte, uint64_t size) const {
  if (size == 0) return;
  const uint64_t last = (byte + size - 1) / ShardFooter::kBlock;
  for (uint64_t block = byte / ShardFooter::kBlock; block <= last; ++block)
    if (!verified_[block].load(std::memory_order_acquire)) verify(block);
}

uint64_t Shard::begin(uint64_t document) const {
  touch(footer_.begins_at + document * 8, 8);
  return begins_[document];
}

int32_t Shard::source(uint64_t document) const {
  if (footer_.sources_at == 0) return static_cast<int32_t>(footer_.source);
  touch(footer_.sources_at + document * 4, 4);
  return sources_[document];
}

void Shard::read(uint64_t position, uint64_t count, int32_t* ids) const {
  touch(position * footer_.id_bytes, count * footer_.id_bytes);
  view_.read(position, count, ids);
}

uint64_t Shard::read_mask(uint64_t position, uint64_t count, uint8_t* mask) const {
  if (footer_.mask_at && count > 0) {
    touch(footer_.mask_at + position / 64 * 8, ((position + count - 1) / 64 - position / 64 + 1) * 8);
  }
  return view_.read_mask(position, count, mask);
}

ShardSet::ShardSet(const std::vector<fs::path>& paths, std::optional<uint64_t> tokenizer) {
  for (const fs::path& path : paths) {
    const Shard& shard = *shards_.emplace_back(std::make_unique<Shard>(path));
    if (tokenizer && shard.footer().tokenizer != *tokenizer) {
      throw data_error(
          "'{}' was made with another tokenizer ({}, not {}). Prepare it with this one, or use its own.",
          path.string(), hex64(shard.footer().tokenizer), hex64(*tokenizer));
    }
    first_document_.push_back(first_document_.back() + shard.footer().documents);
    first_token_.push_back(first_token_.back() + shard.footer().tokens);
  }
}

uint64_t ShardSet::begin(uint64_t document) const {
  const size_t part = part_of(first_document_, document);
  if (part == shards_.size()) return first_token_.back();
  return first_token_[part] + shards_[part]->begin(document - first_document_[part]);
}

int32_t ShardSet::source(uint64_t document) const {
  const size_t part = part_of(first_document_, document);
  return shards_[part]->source(document - first_document_[part]);
}

int32_t ShardSet::source_at(uint64_t position) const {
  const Shard& shard = *shards_[part_of(first_token_, position)];
  if (shard.footer().sources_at == 0) return static_cast<int32_t>(shard.footer().source);
  return Documents::source_at(position);
}

std::string ShardSet::origin(uint64_t document) const {
  const size_t part = part_of(first_document_, document);
  return fmt::format("'{}', document {}", shards_[part]->path().string(),
                     document - first_document_[part] + 1);
}

void ShardSet::read(uint64_t position, uint64_t count, int32_t* ids) const {
  for (size_t part = part_of(first_token_, position); count > 0; ++part) {
    const uint64_t here = std::min(count, first_token_[part + 1] - position);
    shards_[part]->read(position - first_token_[part], here, ids);
    position += here, ids += here, count -= here;
  }
}

uint64_t ShardSet::read_mask(uint64_t position, uint64_t count, uint8_t* mask) const {
  uint64_t ones = 0;
  for (size_t part = part_of(first_token_, position); count > 0; ++part) {
    const uint64_t here = std::min(count, first_token_[part + 1] - position);
    ones += shards_[part]->read_mask(position - first_token_[part], here, mask);
    position += here, mask += here, count -= here;
  }
  return ones;
}

}  // namespace tightloop
