#pragma once

#include <memory>
#include <span>
#include <vector>

#include "data/render/render.h"
#include "data/store/documents.h"
#include "data/store/indexed_files.h"
#include "data/store/record_index.h"

namespace tightloop {

/// Documents of raw files that are read, rendered and tokenized by whoever asks for their tokens. Each thread
/// keeps up to 32 MB of what it made last. Tokens are those that the index was made from; a data error when
/// another number of them comes out, because the file was changed.
class LiveDocuments : public Documents {
 public:
  /// The tokenizer that is in the renderer's hands must outlive it.
  LiveDocuments(std::shared_ptr<const RecordIndex::Part> index, std::shared_ptr<const IndexedFiles> files,
                std::shared_ptr<const Renderer> renderer, const Tokenizer& tokenizer);

  uint64_t size() const override { return index_->documents; }
  uint64_t begin(uint64_t document) const override;
  void read(uint64_t position, uint64_t count, int32_t* ids) const override;
  uint64_t read_mask(uint64_t position, uint64_t count, uint8_t* mask) const override;
  int32_t source(uint64_t) const override { return 0; }
  int32_t source_at(uint64_t) const override { return 0; }
  std::string origin(uint64_t document) const override;

 private:
  struct Tokens {
    std::span<const int32_t> ids;
    std::span<const uint8_t> mask;  // empty: all to be learned
  };

  uint64_t entry_at(uint64_t position) const;
  Tokens tokens_of(uint64_t entry) const;
  void make(uint64_t entry, Rendered& out) const;
  template <class Take>
  void for_each(uint64_t position, uint64_t count, const Take& take) const;

  std::shared_ptr<const RecordIndex::Part> index_;
  std::shared_ptr<const IndexedFiles> files_;
  std::shared_ptr<const Renderer> renderer_;
  const Tokenizer& tokenizer_;
  const uint64_t number_;  // of this object among all, for the threads' memory
};

}  // namespace tightloop
