#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/files.h"
#include "data/data_config.h"
#include "data/generate/tasks.h"
#include "data/read/record.h"
#include "data/render/chat.h"
#include "data/render/render.h"
#include "data/store/documents.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

/// All that says how raw files become documents. References must outlive what is made from it.
struct SourceOptions {
  const DataConfig& data;
  const TasksConfig& tasks;
  const ChatConfig& chat;
  const Tokenizer& tokenizer;
  const Tokenizer* target_tokenizer = nullptr;  // of pairs; without one, `tokenizer` serves both sides
};

/// What a record of a source is.
enum class RecordKind { kNone, kText, kJson, kPair };
RecordKind records_of(DataSource source);

/// The records to learn from, or those to evaluate on, as data.source says. A usage error for a source
/// without records.
std::unique_ptr<RecordReader> open_records(const DataConfig& config, const TasksConfig& tasks, bool val);
/// Of pairs: whether records are JSON, or lines.
bool pairs_are_json(const DataConfig& config);
/// Whether the source has records of its own to evaluate on; if not, some are held out (data.holdout).
bool has_val_records(const DataConfig& config);
std::unique_ptr<Renderer> make_renderer(const SourceOptions& options);

/// Of the tokenizers that made the documents: a translation may have its own.
uint64_t tokens_fingerprint(const SourceOptions& options);
/// Saves them in a folder, as `tokenizer` and, where a translation has its own, `tokenizer_target`.
void save_tokenizers(const SourceOptions& options, const fs::path& folder);

/// One more than the largest id of either side.
int64_t vocab_size_of(const SourceOptions& options);

/// Sends documents to one sink or to the other, by a hash of their content (of long ones, of the first
/// piece).
class SplitSink {
 public:
  SplitSink(DocumentSink& train, DocumentSink& val, double val_share, int32_t source)
      : train_(train), val_(val), val_share_(val_share), source_(source) {}

  void add(const Record& record, const Rendered& rendered);
  /// Ends a document whose last piece was bad.
  void finish();

 private:
  DocumentSink &train_, &val_;
  DocumentSink* open_ = nullptr;
  double val_share_;
  int32_t source_;
};

}  // namespace tightloop
