#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/data_config.h"
#include "data/store/documents.h"

namespace tightloop {

/// Where one row goes. The arrays are `length` long.
struct RowSpace {
  int32_t* inputs;
  int32_t* targets;
  uint8_t* loss_mask;
  int32_t* bounds;  // room for length + 1: where each document of the row ends
  int32_t first;    // the row's first flat position in the batch, added to every bound
};

struct RowFacts {
  int64_t documents = 0, supervised = 0, padding = 0;
  int32_t source = 0;
};

/// How documents become rows: a table that is computed from document lengths alone, so that any row can be
/// filled at any time, by anybody, without the rows before it.
class RowPlan {
 public:
  virtual ~RowPlan() = default;
  /// Rows in one pass over the data.
  virtual uint64_t rows() const = 0;
  /// Writes a row. row < rows(). Rows of a stream start `shift` < length() tokens later, so that each pass
  /// can cut the stream elsewhere; others know no shift. Does not allocate.
  virtual RowFacts fill(uint64_t row, uint64_t shift, const RowSpace& space) const = 0;
  /// Where the documents of that row come from, for messages; of many, the first few.
  virtual std::string origin(uint64_t row, uint64_t shift) const = 0;
  /// Positions of one pass that hold no token, of all positions.
  virtual double padding_share() const = 0;
  /// Tokens that no row holds, of documents that were cut off ("pad", "fit_crop", "fit_pad").
  virtual uint64_t cut_tokens() const { return 0; }
  /// Documents that were longer than a row: cut into several ("stream", "pack") or cut off ("pad").
  /// Of "fit_crop" and "fit_pad", those that were cut off.
  virtual uint64_t long_documents() const = 0;

  int64_t length() const { return length_; }

 protected:
  explicit RowPlan(int64_t length) : length_(length) {}
  const int64_t length_;
};

/// "stream": all documents end to end, cut into rows of seq_len inputs; a row's last target is the next row's
/// first input. "pad": a row is a document, cut off at seq_len tokens, seq_len - 1 positions. "pack": whole
/// documents laid side by side, best fit first, into rows of seq_len positions; one that is longer is cut
/// with a token of overlap. "fit_crop" and "fit_pad": nanochat's rows (data/batch/fit.h). A data error says
/// so when there is not enough for a single row. `seed` decides which documents meet in a row of "pack" and
/// "fit"; nothing: documents are taken in their order.
std::unique_ptr<RowPlan> make_row_plan(RowKind kind, std::shared_ptr<const Documents> documents,
                                       int64_t seq_len, int32_t pad_id, std::optional<uint64_t> seed);

/// "'a.txt', line 1; 'a.txt', line 9; 5 more", of documents by their numbers.
std::string origins_of(const Documents& documents, const std::vector<uint64_t>& numbers);

}  // namespace tightloop
