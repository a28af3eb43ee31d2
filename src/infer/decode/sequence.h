#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "infer/calculator_calls.h"
#include "infer/decoder.h"
#include "model/parts/kv_cache.h"

namespace tightloop {

/// A request as far as it is decoded.
struct Sequence {
  Decoder::Ticket ticket = 0;
  DecodeRequest request;
  std::vector<int32_t> ids{};         // prompt and answer
  int64_t under_way = 0;              // tokens behind them that are chosen, but not here yet
  int64_t read = 0;                   // of all these, keys and values are in the cache
  std::optional<int64_t> shared{};    // of the prompt, found there when it was first read
  CalculatorCalls::Progress calls{};  // in the answer
  std::optional<DecodeEnd> end{};     // once it has ended
  int64_t reserved = 0;               // CacheReader: tokens that there is room for
  std::vector<int32_t> pages{};       // PagedReader: where they are
  int64_t offered = 0;                // PagedReader: of these, as many may be found by others
  bool seen = false;                  // PagedReader: the device knows the tokens that a penalty lessens
  int32_t seat = -1;                  // PagedReader: its row there
  std::optional<KvCache> cache{};     // CacheReader

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
  int64_t unread() const { return size() + under_way - read; }
  /// Of the next tokens to be read, those of the prompt.
  int64_t of_prompt(int64_t tokens) const {
    return std::clamp<int64_t>(static_cast<int64_t>(request.prompt.size()) - read, 0, tokens);
  }
  int64_t made() const { return size() - static_cast<int64_t>(request.prompt.size()); }
};

}  // namespace tightloop
