#include "data/batch/pack.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "core/random.h"
#include "core/threads.h"

namespace tightloop {

namespace {

constexpr uint64_t kWindowDocuments = 16384;  // documents: each window ends with a row that is not full

/// Rows that have room left. take() is what a std::set of (room, row) would give, in a tenth of its time.
class OpenRows {
 public:
  explicit OpenRows(int64_t length) : rows_(length), some_(length / 64 + 1) {}

  void add(int64_t room, uint32_t row) {
    rows_[room].push_back(row);
    std::ranges::push_heap(rows_[room], std::greater());
    some_[room / 64] |= uint64_t{1} << room % 64;
  }

  /// The row with the least room that is enough, the first of several; `otherwise` where none has so much.
  uint32_t take(int64_t room, uint32_t otherwise) {
    size_t word = room / 64;
    uint64_t bits = some_[word] & ~uint64_t{0} << room % 64;
    while (bits == 0 && ++word < some_.size()) bits = some_[word];
    if (bits == 0) return otherwise;
    const size_t found = word * 64 + std::countr_zero(bits);
    std::vector<uint32_t>& rows = rows_[found];
    std::ranges::pop_heap(rows, std::greater());
    const uint32_t row = rows.back();
    rows.pop_back();
    if (rows.empty()) some_[word] &= ~(uint64_t{1} << found % 64);
    return row;
  }

 private:
  std::vector<std::vector<uint32_t>> rows_;  // by room, heaps with the first row on top
  std::vector<uint64_t> some_;               // a bit of each room: there is such a row
};

/// The elements by ascending key, in the order they have where keys are the same. `ends[k]` is where key k
/// ends.
template <class Key>
std::vector<Piece> sort_by(const std::vector<Piece>& pieces, size_t keys, const Key& key,
                           std::vector<uint64_t>& ends) {
  ends.assign(keys + 1, 0);
  for (size_t i = 0; i < pieces.size(); ++i) ++ends[key(i) + 1];
  for (size_t k = 0; k < keys; ++k) ends[k + 1] += ends[k];
  std::vector<Piece> sorted(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) sorted[ends[key(i)]++] = pieces[i];
  ends.pop_back();
  return sorted;
}

struct PackedWindow {
  std::vector<Piece> pieces;
  std::vector<uint64_t> row_ends;
  uint64_t filled = 0, long_documents = 0;
};

void pack(PackedWindow& window, int64_t length) {
  // Ties keep their shuffled order, so that the result does not depend on the sort.
  window.pieces = sort_by(
      window.pieces, length, [&](size_t i) { return length - window.pieces[i].count; }, window.row_ends);
  OpenRows open(length);
  std::vector<int64_t> rooms;
  std::vector<uint32_t> row_of;
  for (const Piece& piece : window.pieces) {
    const uint32_t row = open.take(piece.count, static_cast<uint32_t>(rooms.size()));
    if (row == rooms.size()) rooms.push_back(length);
    rooms[row] -= piece.count;
    if (rooms[row] > 0) open.add(rooms[row], row);
    row_of.push_back(row);
    window.filled += piece.count;
  }
  window.pieces = sort_by(
      window.pieces, rooms.size(), [&](size_t i) { return row_of[i]; }, window.row_ends);
}

}  // namespace

RowPacking::RowPacking(const Documents& documents, int64_t length, std::optional<uint64_t> seed) {
  // Read in order once: asked for in shuffled order, each is a miss of all caches or a read of the disk.
  std::vector<uint64_t> begins(documents.size() + 1);
  parallel_for(begins.size(), 0, kWindowDocuments, [&](size_t first, size_t end, int /*worker*/) {
    for (size_t i = first; i < end; ++i) begins[i] = documents.begin(i);
  });
  const Permutation order(documents.size(), seed.value_or(0));
  std::vector<PackedWindow> windows((documents.size() + kWindowDocuments - 1) / kWindowDocuments);
  parallel_for(windows.size(), 0, 1, [&](size_t first, size_t end, int /*worker*/) {
    for (size_t w = first; w < end; ++w) {
      const uint64_t from = w * kWindowDocuments, count = std::min(documents.size() - from, kWindowDocuments);
      std::vector<Piece> whole(count);
      for (uint64_t i = 0; i < count; ++i) whole[i].position = seed ? order[from + i] : from + i;
      // On their own, so that many of these misses of all caches are under way at once.
      for (Piece& piece : whole) {
        const uint64_t* begin = &begins[piece.position];
        piece = {begin[0], static_cast<int64_t>(begin[1] - begin[0]) - 1};
      }
      PackedWindow& window = windows[w];
      for (auto [position, positions] : whole) {
        if (positions > length) ++window.long_documents;
        for (; positions > 0; position += length, positions -= length)
          window.pieces.push_back({position, std::min(positions, length)});
      }
      pack(window, length);
    }
  });
  for (PackedWindow& each : windows) {
    const PackedWindow window = std::move(each);  // gone once it is copied
    for (const uint64_t row_end : window.row_ends) row_begins.push_back(pieces.size() + row_end);
    pieces.insert(pieces.end(), window.pieces.begin(), window.pieces.end());
    filled += window.filled;
    long_documents += window.long_documents;
  }
}

}  // namespace tightloop
