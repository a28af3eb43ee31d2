#pragma once

#include <string>

#include "model/language_model.h"
#include "train/run/saved_model.h"

namespace tightloop {

/// README.md of an exported model, with the front matter that Hugging Face reads: how to load it, and of a
/// run what it recorded: where it started from, data and counts, metrics up to the checkpoint's step, and the
/// settings that are not the default ones. Files are named without their folders. `name` is the title, `chat`
/// tells whether the tokenizer has a chat template.
std::string model_card(const SavedModel& saved, const LanguageModel& model, const std::string& name,
                       bool chat);

}  // namespace tightloop
