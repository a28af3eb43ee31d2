#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/batch/rows.h"
#include "data/store/documents.h"

namespace tightloop {

/// A stretch of one document inside a row: `count` tokens.
struct FitPiece {
  uint64_t position;
  int64_t count;
};

/// nanochat's rows, planned ahead. A row has `capacity` tokens (one more than its positions) and begins with
/// a document. From a buffer of documents, in their order (or in one shuffled by `seed`), it takes the
/// longest that still fits, the earliest of several; where none fits, kFitCrop cuts the shortest one off, and
/// kFitPad leaves the rest of the row empty. The buffer is refilled before each choice: kFitCrop keeps 1,000
/// documents or more in it and adds 128 at a time, kFitPad keeps 100. At the end of the data it runs empty,
/// so that a pass has each document once.
struct RowFit {
  RowFit(const Documents& documents, RowKind kind, int64_t length, std::optional<uint64_t> seed);

  std::vector<FitPiece> pieces;
  std::vector<uint64_t> row_begins{0};  // row r holds pieces[row_begins[r]] to pieces[row_begins[r + 1]]
  uint64_t filled = 0;                  // tokens in all rows
  uint64_t cut_documents = 0, cut_tokens = 0;
};

/// Rows of `length` positions by RowFit. Nothing separates the documents of a row: they are one stretch for
/// attention, and the first token of one is a target of the one before it.
std::unique_ptr<RowPlan> make_fit_rows(RowKind kind, std::shared_ptr<const Documents> documents,
                                       int64_t length, int32_t pad_id, std::optional<uint64_t> seed);

}  // namespace tightloop
