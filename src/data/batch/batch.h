#pragma once

#include <cstdint>

namespace tightloop {

/// One micro-batch of a language model. Row r predicts targets[r][t] from inputs[r][0..t] wherever
/// loss_mask[r][t] is 1. The arrays are (rows, length), row-major, and belong to the loader's ring: valid
/// until the batch is given back.
struct Batch {
  int64_t index = 0;  // which micro-batch of the run this is, from 0
  int64_t rows = 0, length = 0;
  int32_t* inputs = nullptr;
  int32_t* targets = nullptr;
  uint8_t* loss_mask = nullptr;
  int32_t* sources = nullptr;  // (rows): which source each row came from
  int64_t supervised = 0;      // sum of loss_mask, so that nobody must ask the device
  int64_t bytes = 0;           // of text in the supervised targets; 0 where the loader knows no token's
  int64_t padding = 0;         // positions that hold no token of any document

  /// Documents inside the rows, for attention that does not look across: document d covers the flat positions
  /// bounds[d] to bounds[d + 1] of inputs. bounds[0] is 0, bounds[documents] is rows * length; no document
  /// crosses a row, and padding counts as a document of its own.
  int32_t* bounds = nullptr;
  int64_t documents = 0;
};

}  // namespace tightloop
