#include "core/hash.h"

#include <fmt/format.h>

#include <array>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/interrupt.h"
#include "core/terminal/progress_line.h"

namespace tightloop {

namespace {

constexpr std::array<uint32_t, 256> kCrc32c = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0u);
    table[byte] = crc;
  }
  return table;
}();

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) crc = crc >> 8 ^ kCrc32c[(crc ^ static_cast<uint8_t>(byte)) & 0xFF];
  return ~crc;
}

uint64_t hash64(const void* data, size_t size, uint64_t seed) {
  return XXH3_64bits_withSeed(data, size, seed);
}

uint64_t hash64(std::string_view bytes, ProgressLine& progress) {
  constexpr size_t kPiece = 16 << 20;
  Hasher hasher;
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    throw_if_interrupted();
    const std::string_view piece = bytes.substr(at, kPiece);
    hasher.update(piece.data(), piece.size());
    progress.add(piece.size());
  }
  return hasher.digest();
}

Hasher::Hasher() : state_(XXH3_createState()) { XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_)); }
Hasher::~Hasher() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void Hasher::update(const void* data, size_t size) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_), data, size);
}
uint64_t Hasher::digest() const { return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_)); }

std::string hex64(uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace tightloop
