#pragma once

#include <cstdint>
#include <string>

#include "train/settings/recipe.h"

namespace tightloop {

/// What automatic sizes are chosen from.
struct SizeFacts {
  double bytes = 0;  // of text to learn from
  bool gpu = false;  // else CPU cores
  double flops = 0;  // that the device is expected to reach in training, per second
};

/// Sizes of a model and of its rows that suit so much text and such a device: more text never gives a smaller
/// one.
struct AutoSizes {
  int64_t vocab_size, layers, width, heads;
  int64_t seq_len, rows;  // of a step
  double most_epochs;     // more passes would learn the text by heart
};
AutoSizes choose_sizes(const SizeFacts& facts);

/// Bytes of English text in a token of a byte-level BPE.
double bytes_per_token(int64_t vocab_size);
/// Passes over `tokens` that a device can do in minutes (a CPU) or in an hour (a GPU), at most `most_epochs`;
/// two digits.
double choose_epochs(const SizeFacts& facts, double tokens, double flops_per_token, double most_epochs);
/// The share of the text to hold out so that it fills a few rows: 0.05 unless there is little text.
double choose_holdout(double tokens, int64_t seq_len);

/// The peak learning rate that suits fine-tuning a model of so many parameters with AdamW, all of them or
/// adapters; one digit.
double choose_finetune_lr(double parameters, bool adapters);

/// Whether a recipe leaves a size to be chosen: model.preset auto, data.holdout_by auto, or 0 for
/// tokenizer.vocab_size, data.seq_len, train.micro_batch, train.steps without train.epochs.
bool has_auto_sizes(const Recipe& recipe);
/// Fills those in with numbers, from the size of the data files and the device; what `config` was given stays
/// as it is. Gives a sentence about it, empty where only the held-out part was to be chosen. A usage error
/// where no file is named.
std::string resolve_sizes(Recipe& recipe, const Config& config);
/// A sentence where the files have given more than a quarter more or fewer tokens than it expected; else
/// empty.
std::string corrected_sizes(const Recipe& recipe, uint64_t tokens);

}  // namespace tightloop
