#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"

namespace tightloop {

/// The section `data`: what is read, how it becomes rows, and who does the work.
struct DataConfig {
  std::string source = "text";
  std::vector<std::string> train, val, train_target, val_target;
  std::string missing;
  double holdout = 0.05;
  std::string holdout_by = "hash";
  std::vector<std::string> mixture;
  std::string tokenize = "auto";
  std::string cache;
  std::string documents = "blank_line";
  std::string separator = "<|endoftext|>";
  std::string format = "auto";
  std::string text_field = "text", messages_field, question_field = "question", answer_field = "answer";
  std::string choices_field = "choices", source_field = "source", target_field = "target";
  std::vector<std::string> ignore_fields;
  std::string rows = "stream";
  int64_t seq_len = 256;
  int64_t batch_tokens = 4096;
  int64_t bucket = 0;
  std::string loss_after;
  int64_t num_workers = 2;
  int64_t prefetch_factor = 2;
  bool pin_memory = true;
  int64_t tokenizer_threads = 0;
  int64_t tokenizer_batch_size = 128;
  std::string on_bad_record = "auto";
  int64_t max_record_bytes = int64_t{64} << 20;

  /// Whether records are made here, without files.
  bool generated() const { return source == "tasks" || source == "spelling" || source == "toy_pairs"; }
  /// Whether they are sentences and their translations.
  bool holds_pairs() const { return source == "pairs" || source == "toy_pairs"; }

  void describe(Fields& fields);
};

}  // namespace tightloop
