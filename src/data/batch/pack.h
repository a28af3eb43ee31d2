#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/store/documents.h"

namespace tightloop {

/// A stretch of one document inside a packed row: `count` positions, which need count + 1 tokens.
struct Piece {
  uint64_t position;
  int64_t count;
};

/// Which stretches share a row: row r holds pieces[row_begins[r]] to pieces[row_begins[r + 1]].
///
/// Documents are taken in an order shuffled by `seed` (without one: in their own), a window of them at a time
/// (so that memory and time stay linear and the result is the same however many are packed later); within a
/// window, longest first, each goes into the row that it fills best. Documents of fewer than two tokens
/// predict nothing and are left out. Windows are packed by all cores at once; the result does not depend on
/// how many there are.
struct RowPacking {
  RowPacking(const Documents& documents, int64_t length, std::optional<uint64_t> seed);

  std::vector<Piece> pieces;
  std::vector<uint64_t> row_begins{0};
  uint64_t filled = 0, long_documents = 0;
};

}  // namespace tightloop
