#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/recipe.h"
#include "core/files.h"
#include "train/settings/recipe.h"

namespace tightloop::cli {

/// A folder for runs that nobody keeps.
struct Scratch {
  std::filesystem::path path = temporary_folder() / fmt::format("tightloop-bench-{}", ::getpid());
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

inline double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

/// The recipe to measure; `synthetic`: on random ids instead of its data.
inline Recipe recipe_to_measure(const std::string& file, const Settings& settings, bool synthetic) {
  Recipe recipe = read_recipe(file, settings);
  if (synthetic) recipe.data.source = "random", recipe.data.rows = "stream";
  return recipe;
}

}  // namespace tightloop::cli
