#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/mixture.h"
#include "data/read/bad_records.h"
#include "data/store/source.h"

namespace tightloop {

/// What `tightloop data check` tells of one part. Lengths and masks are kept, tokens are not, so memory stays
/// small.
struct PartCheck {
  uint64_t documents = 0, tokens = 0, supervised = 0;
  uint64_t rows = 0, long_documents = 0;  // as data.rows and data.seq_len make them
  uint64_t cut_tokens = 0;                // of long documents, that no row holds
  double padding_share = 0;
};

struct DataCheck {
  uint64_t records = 0;
  PartCheck train, val;
  BadRecords bad;
};

/// Reads, renders and plans all that the configuration names, and keeps only the counts. Of pairs, a pair is
/// one document and a row is a batch.
/// `pairs_in` tells of shards whether they hold pairs, which only the model's family says.
DataCheck check_data(const SourceOptions& options, bool pairs_in);
inline DataCheck check_data(const SourceOptions& options) {
  return check_data(options, loads_pairs(options.data));
}

}  // namespace tightloop
