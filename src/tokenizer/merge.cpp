#include "tokenizer/merge.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <unordered_map>

#include "core/error.h"

namespace tightloop {

MergeTable::MergeTable(std::span<const MergeRule> rules, bool same_rank) {
  if (rules.size() >= kNoRank)
    throw data_error("a tokenizer can have {} merges at most, this one has {}.", kNoRank - 1, rules.size());
  const size_t slots = std::bit_ceil(std::max<size_t>(16, rules.size() * 2));
  entries_.assign(slots, kEmpty);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  results_.reserve(rules.size());
  std::unordered_map<int32_t, uint32_t> first_rank;
  for (const MergeRule& rule : rules) {
    auto rank = static_cast<uint32_t>(results_.size());
    results_.push_back(rule.result);
    if (same_rank) rank = first_rank.try_emplace(rule.result, rank).first->second;
    const uint64_t key = static_cast<uint64_t>(rule.left) << 21 | static_cast<uint64_t>(rule.right);
    uint64_t slot = hash(key);
    while (entries_[slot & mask_] != kEmpty && entries_[slot & mask_] >> 22 != key) ++slot;
    entries_[slot & mask_] = key << 22 | rank;  // of two equal pairs the last counts, as in Hugging Face's
  }
}

size_t merge_short(const MergeTable& table, uint32_t* symbols, size_t count) {
  if (count < 2) return count;
  constexpr uint32_t kNone = 0xFFFFFFFF;
  // Rank and place in one number, so that the smallest is the next rule to apply.
  alignas(64) uint32_t order[64];
  typedef uint32_t Eight __attribute__((vector_size(32)));
  const size_t groups = (count + 7) / 8;
  const auto order_at = [&](size_t i, uint32_t left, uint32_t right) {
    const uint32_t rank = table.rank(left, right);
    return rank == kNoRank ? kNone : rank << 6 | static_cast<uint32_t>(i);
  };
  for (size_t i = 0; i + 1 < count; ++i) order[i] = order_at(i, symbols[i], symbols[i + 1]);
  for (size_t i = count - 1; i < groups * 8; ++i) order[i] = kNone;
  uint64_t alive = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  const auto* vectors = reinterpret_cast<const Eight*>(order);
  for (;;) {
    Eight least = vectors[0];
    for (size_t g = 1; g < groups; ++g) least = vectors[g] < least ? vectors[g] : least;
    uint32_t smallest = kNone;
    for (int i = 0; i < 8; ++i) smallest = std::min<uint32_t>(smallest, least[i]);
    if (smallest == kNone) break;
    const size_t at = smallest & 63;
    const uint64_t after = alive & ~((uint64_t{2} << at) - 1);
    const size_t right = std::countr_zero(after);
    symbols[at] = table.result(smallest >> 6);
    alive ^= uint64_t{1} << right;
    order[right] = kNone;
    const uint64_t beyond = after & (after - 1);
    order[at] = beyond ? order_at(at, symbols[at], symbols[std::countr_zero(beyond)]) : kNone;
    const uint64_t before = alive & ((uint64_t{1} << at) - 1);
    if (before) {
      const size_t left = 63 - std::countl_zero(before);
      order[left] = order_at(left, symbols[left], symbols[at]);
    }
  }
  size_t kept = 0;
  for (; alive; alive &= alive - 1) symbols[kept++] = symbols[std::countr_zero(alive)];
  return kept;
}

size_t merge_heap(const MergeTable& table, uint32_t* symbols, size_t count, MergeScratch& scratch) {
  if (count < 2) return count;
  constexpr uint32_t kEnd = 0xFFFFFFFF;
  auto &previous = scratch.previous, &next = scratch.next, &ranks = scratch.ranks;
  auto& heap = scratch.heap;
  previous.resize(count), next.resize(count), ranks.resize(count);
  heap.clear();
  const auto consider = [&](uint32_t at) {
    ranks[at] = next[at] == kEnd ? kNoRank : table.rank(symbols[at], symbols[next[at]]);
    return ranks[at] != kNoRank;
  };
  for (uint32_t i = 0; i < count; ++i) {
    previous[i] = i == 0 ? kEnd : i - 1;
    next[i] = i + 1 == count ? kEnd : i + 1;
    if (consider(i)) heap.push_back(uint64_t{ranks[i]} << 32 | i);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](uint32_t at) {
    if (!consider(at)) return;
    heap.push_back(uint64_t{ranks[at]} << 32 | at);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const auto rank = static_cast<uint32_t>(heap.front() >> 32), at = static_cast<uint32_t>(heap.front());
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    if (ranks[at] != rank) continue;
    const uint32_t gone = next[at];
    symbols[at] = table.result(rank);
    ranks[gone] = kNoRank;
    next[at] = next[gone];
    if (next[at] != kEnd) previous[next[at]] = at;
    push(at);
    if (previous[at] != kEnd) push(previous[at]);
  }
  size_t kept = 0;
  for (uint32_t i = 0; i != kEnd; i = next[i]) symbols[kept++] = symbols[i];
  return kept;
}

void merge_long(const MergeTable& table, std::string_view bytes, std::span<const int32_t> byte_ids,
                std::span<const uint32_t> token_bytes, std::vector<int32_t>& ids, MergeScratch& scratch,
                size_t window) {
  const size_t first = ids.size();
  size_t done = 0;         // bytes that the ids from `first` on stand for
  size_t back_tokens = 4;  // how far the next window starts back
  while (done < bytes.size()) {
    size_t join = ids.size(), begin = done;
    for (size_t i = 0; i < back_tokens && join > first; ++i) begin -= token_bytes[ids[--join]];
    const size_t end = std::min(bytes.size(), done + window);
    auto& symbols = scratch.window;
    symbols.resize(end - begin);
    for (size_t i = begin; i < end; ++i) symbols[i - begin] = byte_ids[static_cast<uint8_t>(bytes[i])];
    symbols.resize(merge_heap(table, symbols.data(), symbols.size(), scratch));
    size_t old_at = begin, new_at = begin, i = 0;
    bool same = join == first;
    while (!same && join < ids.size() && i < symbols.size()) {
      if (old_at == new_at && static_cast<uint32_t>(ids[join]) == symbols[i])
        same = true;
      else if (old_at <= new_at)
        old_at += token_bytes[ids[join++]];
      else
        new_at += token_bytes[symbols[i++]];
    }
    if (!same) {  // nothing in common: look at more of what is there
      back_tokens *= 2;
      continue;
    }
    ids.resize(join);
    ids.insert(ids.end(), symbols.begin() + i, symbols.end());
    done = end;
    back_tokens = 4;
  }
}

}  // namespace tightloop
