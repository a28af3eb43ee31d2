#pragma once

#include <cstdint>

namespace tightloop {

/// A shard is one file: token ids (16 or 32 bits each), a mask bit per token (optional), where each document
/// begins, its source, a checksum per block of all that, and this footer at the very end. A file that was cut
/// short has no footer, so it is never taken for a whole one. Numbers are little-endian; sections start at
/// multiples of 8.
struct ShardFooter {
  static constexpr uint64_t kMagic = 0x3144524148534c54;  // "TLSHARD1"
  static constexpr uint64_t kBlock = 1 << 14;             // bytes under one checksum

  uint64_t magic = kMagic;
  uint64_t id_bytes = 2;
  uint64_t vocab_size = 0;
  uint64_t tokenizer = 0;  // Tokenizer::fingerprint()
  uint64_t documents = 0;
  uint64_t tokens = 0;
  uint64_t mask_at = 0;  // bytes from the start; 0: no mask, every token is to be learned
  uint64_t begins_at = 0;
  uint64_t sources_at = 0;  // 0: all documents are of `source`
  uint64_t source = 0;
  uint64_t checksums_at = 0;    // one 64-bit hash per block of [0, checksums_at)
  uint64_t checksums_hash = 0;  // of the checksums
  uint64_t hash = 0;            // of the footer up to here
};

}  // namespace tightloop
