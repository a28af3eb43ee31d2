#include "data/batch/pack.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/random.h"

namespace tightloop {

namespace {

constexpr uint64_t kWindowDocuments = 16384;  // documents: each window ends with a row that is not full

struct Open {
  std::vector<Piece> pieces;
  int64_t room;
};

void pack_window(std::vector<Piece>& window, int64_t length, RowPacking& packing) {
  // Ties keep their shuffled order, so that the result does not depend on the sort.
  std::ranges::stable_sort(window, [](const Piece& a, const Piece& b) { return a.count > b.count; });
  std::vector<Open> rows;
  std::set<std::pair<int64_t, size_t>> by_room;  // room, row
  for (const Piece& piece : window) {
    const auto best = by_room.lower_bound({piece.count, 0});
    size_t row = rows.size();
    if (best == by_room.end()) {
      rows.push_back({{}, length});
    } else {
      row = best->second;
      by_room.erase(best);
    }
    rows[row].pieces.push_back(piece);
    rows[row].room -= piece.count;
    if (rows[row].room > 0) by_room.insert({rows[row].room, row});
    packing.filled += piece.count;
  }
  for (const Open& row : rows) {
    packing.pieces.insert(packing.pieces.end(), row.pieces.begin(), row.pieces.end());
    packing.row_begins.push_back(packing.pieces.size());
  }
  window.clear();
}

}  // namespace

RowPacking::RowPacking(const Documents& documents, int64_t length, uint64_t seed) {
  const Permutation order(documents.size(), seed);
  std::vector<Piece> window;
  for (uint64_t i = 0; i < documents.size(); ++i) {
    const uint64_t document = order[i];
    uint64_t position = documents.begin(document);
    auto positions = static_cast<int64_t>(documents.length(document)) - 1;
    if (positions > length) ++long_documents;
    for (; positions > 0; position += length, positions -= length)
      window.push_back({position, std::min(positions, length)});
    if ((i + 1) % kWindowDocuments == 0) pack_window(window, length, *this);
  }
  pack_window(window, length, *this);
}

}  // namespace tightloop
