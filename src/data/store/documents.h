#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tightloop {

/// Tokenized documents, in a fixed order, end to end: the stream of tokens that rows are made from. Document
/// i covers the positions begin(i) to begin(i + 1) of it. Everything is safe to call from many threads, and
/// no call allocates where the tokens are in memory or in a mapped file.
class Documents {
 public:
  virtual ~Documents() = default;

  virtual uint64_t size() const = 0;
  /// Where document i starts; begin(size()) is the number of tokens in all.
  virtual uint64_t begin(uint64_t document) const = 0;
  /// The tokens at [position, position + count).
  virtual void read(uint64_t position, uint64_t count, int32_t* ids) const = 0;
  /// 1 where a token is to be learned, 0 where it is only read. Returns how many are 1.
  virtual uint64_t read_mask(uint64_t position, uint64_t count, uint8_t* mask) const = 0;
  /// Which source a document came from: an index into names that whoever made this keeps.
  virtual int32_t source(uint64_t document) const = 0;

  /// The source of the document that holds a position; quicker than looking for the document where all are of
  /// one.
  virtual int32_t source_at(uint64_t position) const { return source(document_at(position)); }
  /// Where a document was read from, for messages: "'books.jsonl', line 17". As far as it is known; else its
  /// number.
  virtual std::string origin(uint64_t document) const;

  uint64_t tokens() const { return begin(size()); }
  uint64_t length(uint64_t document) const { return begin(document + 1) - begin(document); }
  /// The document that holds a position of the stream.
  uint64_t document_at(uint64_t position) const;
};

/// Which of several parts an index falls in. `firsts` holds the first index of each, and the total; parts may
/// be empty.
size_t part_of(const std::vector<uint64_t>& firsts, uint64_t index);

/// Where documents are written to, one after another.
class DocumentSink {
 public:
  virtual ~DocumentSink() = default;
  /// Adds to the document that is being written. An empty mask means that all of it is to be learned.
  virtual void extend(std::span<const int32_t> ids, std::span<const uint8_t> mask) = 0;
  /// Ends it.
  virtual void close(int32_t source) = 0;
  /// Where the documents that are closed from here on start: a file of the reader, by its number, and a line.
  virtual void set_origin(uint32_t /*file*/, uint64_t /*line*/) {}
  void append(std::span<const int32_t> ids, std::span<const uint8_t> mask, int32_t source = 0) {
    extend(ids, mask);
    close(source);
  }
};

/// A bit per token of a growing stream, kept only from the first 0 on.
class MaskBits {
 public:
  /// `mask` (empty: all ones) belongs to the tokens [first, first + count).
  void extend(uint64_t first, uint64_t count, std::span<const uint8_t> mask);
  const std::vector<uint64_t>& words() const { return words_; }

 private:
  std::vector<uint64_t> words_;
};

/// A look at tokens in memory or in a mapped file, 16 or 32 bits each, with an optional bit per
/// token.
struct TokenView {
  const uint16_t* narrow = nullptr;
  const uint32_t* wide = nullptr;
  const uint64_t* mask_bits = nullptr;  // absent: every token is to be learned

  void read(uint64_t position, uint64_t count, int32_t* ids) const;
  uint64_t read_mask(uint64_t position, uint64_t count, uint8_t* mask) const;
};

/// Documents in memory, appended one by one. 16 bits a token where the vocabulary allows.
class TokenStore : public Documents, public DocumentSink {
 public:
  explicit TokenStore(int64_t vocab_size) : narrow_ids_(vocab_size <= 65536) {}

  void extend(std::span<const int32_t> ids, std::span<const uint8_t> mask) override;
  void close(int32_t source) override;
  void set_origin(uint32_t file, uint64_t line) override { origin_ = {line, file}; }
  /// The names of the files that set_origin() numbers.
  void name_files(const std::vector<std::string>& files) {
    if (files_.empty()) files_ = files;
  }

  uint64_t size() const override { return begins_.size() - 1; }
  uint64_t begin(uint64_t document) const override { return begins_[document]; }
  void read(uint64_t position, uint64_t count, int32_t* ids) const override {
    view_.read(position, count, ids);
  }
  uint64_t read_mask(uint64_t position, uint64_t count, uint8_t* mask) const override {
    return view_.read_mask(position, count, mask);
  }
  int32_t source(uint64_t document) const override { return sources_[document]; }
  std::string origin(uint64_t document) const override;

 private:
  struct Origin {
    uint64_t line = 0;  // 0: not known
    uint32_t file = 0;
  };

  bool narrow_ids_;
  std::vector<uint16_t> narrow_;
  std::vector<uint32_t> wide_;
  MaskBits mask_bits_;
  std::vector<uint64_t> begins_{0};
  uint64_t tokens_ = 0;
  std::vector<int32_t> sources_;
  Origin origin_;
  std::vector<Origin> origins_;
  std::vector<std::string> files_;
  TokenView view_;
};

}  // namespace tightloop
