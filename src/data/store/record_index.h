#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/files.h"
#include "data/read/bad_records.h"
#include "data/store/kept_records.h"
#include "data/store/source.h"

namespace tightloop {

/// Where the bytes are that a run of tokens comes from, and what is to be done with them. 16 bytes.
struct IndexEntry {
  uint64_t byte = 0;
  uint32_t size = 0;
  uint32_t bits = 0;  // the file, and what kind of record it is

  static constexpr uint32_t kPart = 1u << 28;                     // a part of a long text: plain tokens
  static constexpr uint32_t kSecond = 1u << 29;                   // the other side of the pair before it
  static constexpr uint32_t kFirst = 1u << 30, kLast = 1u << 31;  // as in Record
  static constexpr uint32_t kKept = kPart - 1;  // instead of a file: among the records that are kept
  uint32_t file() const { return bits & kKept; }
};

/// An index of raw files as it is on disk: for every good record (of long texts: every part), in order, its
/// entry and where its tokens start. Everything is mapped: 24 bytes a record, none of it on the heap.
struct RecordIndex {
  struct Part {
    uint64_t entries = 0, documents = 0;
    bool masked = false;  // whether any token is only read
    MappedFile begin_file, entry_file, document_file;
    std::span<const uint64_t> begins;  // of each entry, and the number of all tokens
    std::span<const IndexEntry> all;
    std::span<const uint64_t> firsts;  // the first entry of each document; empty: a document is an entry
  };

  std::vector<fs::path> files;
  std::shared_ptr<const KeptReader> kept;
  std::shared_ptr<const Part> train, val;
  BadRecords bad;
};

/// Opens the index of what `options` names, in a folder of its own under `folder` that files, settings and
/// tokenizer decide; makes it if it is not there, in one pass over the files by data.tokenizer_threads
/// threads. Without a folder it is made anew and leaves nothing behind.
RecordIndex open_index(const SourceOptions& options, const fs::path& folder);

}  // namespace tightloop
