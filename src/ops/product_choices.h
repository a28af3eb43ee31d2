#pragma once

#include <cublasLt.h>

#include <array>
#include <map>
#include <optional>
#include <string>

#include "core/files.h"

namespace tightloop::cuda {

/// What decides which algorithm is fastest for a product: shapes, strides, types, alignments, what is done to
/// the result. Without the device, which a file stands for.
using ProductKey = std::array<int64_t, 18>;

struct ProductChoice {
  std::optional<cublasLtMatmulAlgo_t> algorithm{};  // nothing: torch's own
  bool none = false;                                // there is no way to compute it
};

/// What was found to be fastest on one device, by earlier processes too. The file's name has the card and the
/// version of cuBLASLt in it, whose algorithms mean nothing to another. A file that is damaged or cannot be
/// written costs time, nothing else: the products are timed again.
class ProductChoices {
 public:
  /// `file` may be empty: nothing is kept.
  explicit ProductChoices(fs::path file);

  const ProductChoice* find(const ProductKey& key) const;
  void add(const ProductKey& key, const ProductChoice& choice);

  std::string to_text() const;
  void add_text(const std::string& text);

 private:
  fs::path file_;
  std::map<ProductKey, ProductChoice> known_;
};

/// In the user's cache folder ($XDG_CACHE_HOME/tightloop or ~/.cache/tightloop); empty where there is none.
fs::path product_choices_file(const std::string& device, size_t library_version);

}  // namespace tightloop::cuda
