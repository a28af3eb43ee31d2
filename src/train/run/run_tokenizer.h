#pragma once

#include <memory>

#include "data/training_text.h"
#include "tokenizer/bpe_train.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/tokenizer.h"
#include "train/run/run_folder.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// How much text a tokenizer is trained on (tokenizer.train_bytes, tokenizer.document_bytes); 0: all.
struct TextLimits {
  int64_t total = 0, document = 0;
};

/// Trains a byte-level BPE on the plain texts of the data, with progress on the terminal. Of pairs, on one
/// side or on both. Warns where the vocabulary stays smaller than asked; `bad` gets what was left out.
std::unique_ptr<Tokenizer> train_tokenizer(BpeTrainOptions options, const DataConfig& data,
                                           const TasksConfig& tasks, PairSide side = PairSide::kBoth,
                                           BadRecords* bad = nullptr, bool size_is_chosen = false,
                                           const TextLimits& limits = {});
/// The same for a SentencePiece model.
std::unique_ptr<Tokenizer> train_tokenizer(const SentencePieceTrainOptions& options, const DataConfig& data,
                                           const TasksConfig& tasks, PairSide side = PairSide::kBoth,
                                           BadRecords* bad = nullptr, bool size_is_chosen = false,
                                           const TextLimits& limits = {});

/// The tokenizer that the recipe names, or one trained on its data.
std::unique_ptr<Tokenizer> make_tokenizer(const Recipe& recipe);
/// The template that chat.template names, if it does, in the place of the tokenizer's own.
void give_chat_template(const ChatConfig& config, Tokenizer& tokenizer);

/// The run's own tokenizer where it has one already, else the one that the recipe names, else one trained on
/// the recipe's data. It is saved in the run's folder, so that the run needs nothing from outside later.
std::unique_ptr<Tokenizer> prepare_tokenizer(const Recipe& recipe, const RunFolder& run);

/// Those of a run that translates. One may serve both sides.
struct PairTokenizers {
  std::unique_ptr<Tokenizer> source, own_target;
  const Tokenizer& target() const { return own_target ? *own_target : *source; }
};

/// Those that the recipe names, or trained on its data: of pairs, as tokenizer.joint says; else one.
PairTokenizers make_tokenizers(const Recipe& recipe);

/// The same for pairs: in the run's folder, tokenizer/ is that of the sources, or of both sides where there
/// is no tokenizer_target/. Trained ones are as tokenizer.joint says. A usage error where two are to share
/// embeddings.
PairTokenizers prepare_pair_tokenizers(const Recipe& recipe, const RunFolder& run);
/// As they are in a run's folder.
PairTokenizers load_pair_tokenizers(const RunFolder& run);

}  // namespace tightloop
