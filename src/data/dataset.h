#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/data_config.h"
#include "data/generate/tasks.h"
#include "data/read/bad_records.h"
#include "data/render/chat.h"
#include "data/store/documents.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

/// What a configuration's `data` section names, tokenized: a part to learn from and a part to evaluate on,
/// which share no document.
struct Dataset {
  std::shared_ptr<const Documents> train, val;  // val may be empty
  std::vector<std::string> sources;             // names of the numbers in Batch::sources
  BadRecords bad;                               // what was skipped; bad.report() is for the log
};

/// Of pairs, documents 2i and 2i + 1 are a sentence and its translation (see data/batch/pairs.h).
///
/// Reads and tokenizes all of it, on data.tokenizer_threads threads. A data error names a file that cannot be
/// read. With data.tokenize `live` the documents are tokenized when they are asked for: the tokenizers must
/// outlive them. The index for that is kept in data.cache, or in `index_folder`; with neither, not at all.
Dataset load_dataset(const DataConfig& config, const TasksConfig& tasks, const Tokenizer& tokenizer,
                     const ChatConfig& chat = {}, const Tokenizer* target_tokenizer = nullptr,
                     const std::filesystem::path& index_folder = {});

}  // namespace tightloop
