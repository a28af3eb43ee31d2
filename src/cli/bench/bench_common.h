#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cli/recipe.h"
#include "core/device.h"
#include "core/files.h"
#include "train/settings/recipe.h"

namespace tightloop::cli {

/// A folder for runs that nobody keeps.
struct BenchFolder {
  std::filesystem::path path = temporary_folder() / fmt::format("tightloop-bench-{}", ::getpid());
  ~BenchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

inline double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

/// Milliseconds of one call: the median of some rounds of as many calls as take a few milliseconds.
inline double milliseconds_of(Device& device, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const auto round = [&](int64_t times) {
    device.synchronize();
    const auto began = Clock::now();
    for (int64_t i = 0; i < times; ++i) work();
    device.synchronize();
    return std::chrono::duration<double, std::milli>(Clock::now() - began).count() /
           static_cast<double>(times);
  };
  round(2);
  const auto times = std::clamp<int64_t>(static_cast<int64_t>(20 / std::max(round(1), 1e-3)), 1, 200);
  std::vector<double> rounds;
  for (int i = 0; i < 5; ++i) rounds.push_back(round(times));
  return median(rounds);
}

/// The recipe to measure; `synthetic`: on random ids instead of its data.
inline Recipe recipe_to_measure(const std::string& file, const Settings& settings, bool synthetic) {
  Recipe recipe = read_recipe(file, settings);
  if (synthetic) recipe.data.source = DataSource::kRandom, recipe.data.rows = RowKind::kStream;
  // As many as the tokenizer would have that the recipe trains.
  if (synthetic && recipe.model.vocab_size == 0 && recipe.tokenizer.path.empty())
    recipe.model.vocab_size = recipe.tokenizer.vocab_size;
  return recipe;
}

}  // namespace tightloop::cli
