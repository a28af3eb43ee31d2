#pragma once

#include <string>
#include <vector>

#include "cli/verbs.h"
#include "train/settings/recipe.h"

namespace tightloop::cli {

/// The file of a recipe: `name`, or, where there is none here, the one that was installed with the program.
std::string recipe_file(const std::string& name);

/// The recipe in a file (see recipe_file()), with the command line's settings on top. Where it starts from
/// another model (train.init_from), that one's sizes and tokenizer come first. data.source is resolved
/// (train/settings/resolve_source.h), and sizes that it leaves open are chosen by the data and the device.
/// `notes` gets sentences about that; without it, those about the source go to the log.
Recipe read_recipe(const std::string& name, const Settings& settings,
                   std::vector<std::string>* notes = nullptr);

/// Fills in what follows from model.depth (train/settings/depth_dial.h) and train.step_tokens, and says what
/// of the former.
std::string follow_depth(Recipe& recipe, const Config& config);

/// A data error that says where to get them (data.missing) where files that the recipe itself names are not
/// there. For verbs that read them.
void require_files(const DataConfig& data);

/// Resolves the recipe's model as its training would: with the vocabulary of its tokenizer, or with the size
/// that one would be trained to.
void resolve_model(Recipe& recipe);

}  // namespace tightloop::cli
