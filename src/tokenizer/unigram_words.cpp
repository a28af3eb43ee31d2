#include "tokenizer/unigram_words.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/hash.h"
#include "tokenizer/protobuf.h"

namespace tightloop {

namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // the mark that stands for a space in pieces

// As sentencepiece_model.proto numbers them.
enum PieceType : uint64_t { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };
constexpr uint64_t kUnigram = 1;

struct UnigramModel {
  std::vector<std::pair<std::string, std::pair<float, uint64_t>>> pieces;  // text, score, type
  uint64_t type = kUnigram;
  std::string normalizer;
  bool plain = true;  // spaces are treated as they usually are
};

UnigramModel read_model(std::string_view bytes) {
  UnigramModel model;
  for (ProtobufFields all(bytes); all.next();) {
    if (all.number == 1) {
      std::string text;
      float score = 0;
      uint64_t type = kNormal;
      for (ProtobufFields piece(all.bytes); piece.next();) {
        if (piece.number == 1) text = piece.bytes;
        if (piece.number == 2 && piece.bytes.size() == 4) std::memcpy(&score, piece.bytes.data(), 4);
        if (piece.number == 3) type = piece.value;
      }
      model.pieces.push_back({std::move(text), {score, type}});
    } else if (all.number == 2) {
      for (ProtobufFields trainer(all.bytes); trainer.next();) {
        if (trainer.number == 3) model.type = trainer.value;
        if (trainer.number == 24) model.plain &= trainer.value == 0;  // the mark as a suffix
      }
    } else if (all.number == 3) {
      for (ProtobufFields normalizer(all.bytes); normalizer.next();) {
        if (normalizer.number == 1) model.normalizer = normalizer.bytes;
        // The mark before the first word, runs of spaces as one, the mark for a space.
        if (normalizer.number >= 3 && normalizer.number <= 5) model.plain &= normalizer.value == 1;
      }
    }
  }
  return model;
}

std::string utf8_of(uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
}

}  // namespace

/// One thread's words. A word pushes out whatever was in its place.
struct UnigramWords::Cache {
  static constexpr size_t kBytes = 23, kIds = 6, kEntries = 1 << 16;
  struct alignas(64) Entry {
    char word[kBytes];
    uint8_t size;  // 0: nothing here
    std::array<int32_t, kIds> ids;
    uint32_t owner, count;
    float score, margin;
  };
  std::unique_ptr<Entry[]> entries{new Entry[kEntries]()};
};

std::unique_ptr<UnigramWords> UnigramWords::make(std::string_view bytes,
                                                 const std::function<bool(const std::string&)>& keeps) {
  const UnigramModel model = read_model(bytes);
  static constexpr std::string_view kKnown[] = {"nmt_nfkc", "nfkc", "identity"};
  if (model.type != kUnigram || !model.plain ||
      std::ranges::find(kKnown, model.normalizer) == std::end(kKnown))
    return nullptr;
  std::vector<std::pair<std::string, Piece>> pieces;
  bool has_space = false;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& [text, facts] = model.pieces[id];
    const auto& [score, type] = facts;
    if (type == kUnknown || type == kControl || type == kByte) continue;
    if (type != kNormal || text.empty() || score > 0 || text.find(kSpace, 1) != text.npos) return nullptr;
    has_space |= text == kSpace;
    pieces.push_back({text, {static_cast<int32_t>(id), score}});
  }
  if (!has_space) return nullptr;  // unknown pieces would run together across words
  auto words = std::make_unique<UnigramWords>();
  static std::atomic<uint32_t> number{0};
  words->number_ = number++;
  words->build(pieces);
  // Latin with its common accents, and Cyrillic: as far as each stands alone and is a piece of its own, so
  // that no unknown piece can come in.
  std::vector<std::string> single;
  for (const auto& [text, piece] : pieces) single.push_back(text);
  std::ranges::sort(single);
  for (uint32_t code = 0x21; code < words->safe_.size(); ++code) {
    if (code == 0x7f) code = 0xc0;
    if (code == 0x180) code = 0x400;
    const std::string character = utf8_of(code);
    words->safe_[code] = std::ranges::binary_search(single, character) && keeps(character);
  }
  return words;
}

void UnigramWords::build(const std::vector<std::pair<std::string, Piece>>& pieces) {
  size_t bytes = 0;
  for (const auto& [text, piece] : pieces) bytes += text.size();
  edges_.assign(std::bit_ceil(2 * bytes + 2), {~uint64_t{0}, 0});
  nodes_.assign(1, {});
  for (const auto& [text, piece] : pieces) {
    uint32_t node = 0;
    for (const char c : text) {
      uint32_t next = child(node, static_cast<unsigned char>(c));
      if (next == 0) {
        const uint64_t key = uint64_t{node} << 8 | static_cast<unsigned char>(c);
        size_t at = key * 0x9E3779B97F4A7C15ull >> 20;
        while (edges_[at &= edges_.size() - 1].second != 0) ++at;
        next = static_cast<uint32_t>(nodes_.size());
        edges_[at] = {key, next};
        if (node == 0) first_[static_cast<unsigned char>(c)] = next;
        nodes_.emplace_back();
      }
      node = next;
    }
    nodes_[node] = piece;
  }
}

// 0 where there is none: nothing leads back to the root.
uint32_t UnigramWords::child(uint32_t node, unsigned char byte) const {
  if (node == 0) return first_[byte];
  const uint64_t key = uint64_t{node} << 8 | byte;
  for (size_t at = key * 0x9E3779B97F4A7C15ull >> 20;; ++at) {
    const auto& [found, next] = edges_[at & (edges_.size() - 1)];
    if (found == key || next == 0) return next;
  }
}

// The bytes of the safe word that the text starts with.
size_t UnigramWords::safe_length(std::string_view text) const {
  size_t at = 0;
  while (at < text.size()) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      if (!safe_[byte]) break;
      ++at;
    } else {
      if (byte < 0xc2 || byte > 0xd1 || at + 1 == text.size()) break;
      const auto second = static_cast<unsigned char>(text[at + 1]);
      const uint32_t code = (byte & 31u) << 6 | (second & 63u);
      if (second >> 6 != 2 || !safe_[code]) break;
      at += 2;
    }
  }
  return at;
}

// The best segmentation of a word with the mark before it, and how far the second best is behind.
void UnigramWords::segment(std::string_view word, Segmented& out) const {
  struct Step {
    double best = -HUGE_VAL, second = -HUGE_VAL;
    uint32_t from = 0;
    int32_t id = -1;
  };
  out.count = 0;
  char text[kMaxWord];
  const size_t size = kSpace.size() + word.size();
  if (size > kMaxWord) return;
  std::memcpy(text, kSpace.data(), kSpace.size());
  std::memcpy(text + kSpace.size(), word.data(), word.size());
  std::array<Step, kMaxWord + 1> steps;
  steps[0].best = 0;
  for (uint32_t from = 0; from < size; ++from) {
    const Step& here = steps[from];
    if (here.best == -HUGE_VAL) continue;
    uint32_t node = 0;
    for (uint32_t to = from; to < size;) {
      node = child(node, static_cast<unsigned char>(text[to++]));
      if (node == 0) break;
      const Piece& piece = nodes_[node];
      if (piece.id < 0) continue;
      Step& there = steps[to];
      const double best = here.best + piece.score, second = here.second + piece.score;
      if (best > there.best) {
        there.second = std::max(there.best, second);
        there.best = best, there.from = from, there.id = piece.id;
      } else {
        there.second = std::max(there.second, best);
      }
    }
  }
  const Step& end = steps[size];
  out.score = static_cast<float>(end.best);
  out.margin = static_cast<float>(end.best - end.second);
  for (size_t at = size; at > 0; at = steps[at].from) {
    if (steps[at].id < 0) {
      out.count = 0;
      return;
    }
    out.ids[out.count++] = steps[at].id;
  }
  std::reverse(out.ids.begin(), out.ids.begin() + out.count);
}

bool UnigramWords::append(std::string_view word, double& sum, std::vector<int32_t>& ids) const {
  static thread_local Cache cache;
  const bool kept = word.size() <= Cache::kBytes;
  Cache::Entry* entry = kept ? &cache.entries[hash64(word, number_) % Cache::kEntries] : nullptr;
  Segmented fresh;
  const int32_t* found = nullptr;
  uint32_t count = 0;
  float score = 0, margin = 0;
  if (entry && entry->owner == number_ && entry->size == word.size() &&
      std::memcmp(entry->word, word.data(), word.size()) == 0) {
    found = entry->ids.data(), count = entry->count, score = entry->score, margin = entry->margin;
  } else {
    segment(word, fresh);
    found = fresh.ids.data(), count = fresh.count, score = fresh.score, margin = fresh.margin;
    if (entry && count <= Cache::kIds) {
      std::memcpy(entry->word, word.data(), word.size());
      std::copy_n(found, count, entry->ids.begin());
      entry->size = static_cast<uint8_t>(word.size());
      entry->owner = number_, entry->count = count, entry->score = score, entry->margin = margin;
    }
  }
  // The library adds up scores of the whole text in 32-bit floats. Either of two segmentations of this word
  // takes at most an addition a byte, each wrong by half a unit in the last place of the sum; the word's own
  // rounding is far below that. Twice as much is asked for.
  sum -= score;
  const double wrong = static_cast<double>(word.size() + kSpace.size()) * sum * 0x1p-23;
  if (count == 0 || !(margin > 2 * wrong)) return false;
  ids.insert(ids.end(), found, found + count);
  return true;
}

bool UnigramWords::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  double sum = 0;
  while (!text.empty()) {
    if (text[0] == ' ') {
      text.remove_prefix(1);
      continue;
    }
    const size_t size = safe_length(text);
    const bool ends = size == text.size() || text[size] == ' ';
    if (size == 0 || !ends || !append(text.substr(0, size), sum, ids)) {
      ids.resize(before);
      return false;
    }
    text.remove_prefix(size);
  }
  return true;
}

}  // namespace tightloop
