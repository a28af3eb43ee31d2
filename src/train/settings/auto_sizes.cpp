#include "train/settings/auto_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/counted.h"
#include "core/error.h"
#include "core/files.h"
#include "core/terminal/terminal.h"
#include "core/threads.h"
#include "data/read/byte_stream.h"
#include "data/read/data_files.h"
#include "model/model_size.h"
#include "tokenizer/tokenizer.h"
#include "train/engine/precision.h"
#include "train/settings/memory_plan.h"

namespace tightloop {

namespace {

constexpr double kCpuSeconds = 15 * 60, kGpuSeconds = 60 * 60;  // that a run may take
constexpr double kCoreFlops = 40e9;  // of a CPU core in training: half of what one with AVX-512 reaches
constexpr double kGpuShare = 0.3;    // of its data sheet's products
constexpr double kGpuFlops = 3e13;   // where there is no data sheet
constexpr double kPairEpochs = 8;    // times those of text: pairs are few, and bear more

struct Shape {
  int64_t layers, width, heads;
  /// Those of blocks, and of a head over `vocabulary`.
  double parameters(int64_t vocabulary) const {
    return static_cast<double>(width * (12 * layers * width + vocabulary));
  }
};

constexpr std::array<Shape, 7> kShapes{
    {{2, 64, 2}, {4, 128, 4}, {4, 192, 6}, {6, 256, 8}, {8, 512, 8}, {12, 768, 12}, {16, 1024, 16}}};

double budget(const SizeFacts& facts) { return facts.flops * (facts.gpu ? kGpuSeconds : kCpuSeconds); }

double two_digits(double value) {
  if (value <= 0) return 0;
  const double unit = std::pow(10, std::floor(std::log10(value)) - 1);
  // 1.8 from 18 and 0.1 would be 1.8000000000000003.
  return unit < 1 ? std::round(value / unit) / std::round(1 / unit) : std::round(value / unit) * unit;
}

/// Text in the files to learn from; for what is generated, a guess.
double text_bytes(const Recipe& recipe) {
  constexpr double kGenerated = 1e6, kUnpacked = 3, kShardTokenBytes = 2;
  if (recipe.data.mixture.empty() && recipe.data.train.empty() && !recipe.data.generated())
    throw usage_error(
        "data.train names no file to learn from, and the sizes of this recipe depend on it: give "
        "--data.train "
        "FILE.");
  double bytes = 0;
  const auto files = data_files(recipe.data);
  if (files.empty()) return kGenerated;
  for (const DataFile& file : files) {
    if (!file.part.starts_with("train") || !is_file(file.path)) continue;
    const std::string ending = file.path.extension().string();
    const auto size = static_cast<double>(file_bytes(file.path));
    if (ending == ".shard")
      bytes += size / kShardTokenBytes * bytes_per_token(32768);
    else
      bytes += size * (ending == ".parquet" || is_compressed(file.path) ? kUnpacked : 1);
  }
  return std::max(bytes, 1.0);
}

SizeFacts facts_of(const Recipe& recipe, const Device& device) {
  SizeFacts facts{.bytes = text_bytes(recipe), .gpu = device.is_cuda()};
  const auto threads =
      static_cast<double>(recipe.train.threads > 0 ? recipe.train.threads : available_cores());
  const double sheet = kGpuShare * device.data_sheet_flops();
  facts.flops = !facts.gpu ? kCoreFlops * threads : sheet > 0 ? sheet : kGpuFlops;
  return facts;
}

/// The most heads of at least 32 that divide the width.
int64_t heads_for(int64_t width) {
  for (int64_t heads = std::max<int64_t>(1, width / 32); heads > 1; --heads)
    if (width % heads == 0 && width / heads % 2 == 0) return heads;
  return 1;
}

void resolve_model(ModelConfig& model, const AutoSizes& sizes, const Config& config) {
  const auto set = [&](const char* key, int64_t& field, int64_t value) {
    if (!config.given(std::string("model.") + key)) field = value;
  };
  // A translator has an encoder of so many layers besides, and attention across.
  set("layers", model.layers, model.translates() ? std::max<int64_t>(2, sizes.layers / 2) : sizes.layers);
  set("width", model.width, sizes.width);
  set("heads", model.heads, config.given("model.width") ? heads_for(model.width) : sizes.heads);
  model.preset.clear();
}

/// Rows of a step such that the training makes updates enough, where the data allow it. A power of two, for
/// processes to share.
int64_t rows_for_updates(int64_t most, double rows_of_training) {
  constexpr double kUpdates = 60;
  int64_t rows = most;
  while (rows > 1 && static_cast<double>(rows) * kUpdates > rows_of_training) rows /= 2;
  return rows;
}

/// The largest micro-batch whose steps fit into the device's memory, of those that divide a process's rows.
void fit_batch(Recipe& recipe, const ModelConfig& model, const Device& device, int64_t rows) {
  const auto element = static_cast<int64_t>(c10::elementSize(compute_dtype(recipe.train.precision, device)));
  auto& train = recipe.train;
  const auto fits = [&] {
    const auto planner = MemoryPlanner(model, train, recipe.data.seq_len, element, device.is_cuda())
                             .among(recipe.dist, recipe.world);
    return planner.plan(planner.written()).total() <=
           kUsableMemory * static_cast<double>(device.total_memory());
  };
  for (int64_t micro_batch = rows; micro_batch > 0; --micro_batch) {
    if (rows % micro_batch != 0) continue;
    train.micro_batch = micro_batch;
    if (fits()) return;
  }
}

/// The rows of a step do not depend on how many processes share them.
void resolve_batch(Recipe& recipe, const ModelConfig& model, const Device& device, const Config& config,
                   int64_t rows) {
  auto& train = recipe.train;
  const int64_t seq_len = recipe.data.seq_len, world = recipe.world;
  if (train.step_tokens == 0 && config.given("train.accumulate") && train.accumulate > 1) {
    fit_batch(recipe, model, device, rows);
    train.accumulate *= rows / train.micro_batch;
    return;
  }
  if (train.step_tokens == 0) train.step_tokens = (rows + world - 1) / world * world * seq_len;
  const int64_t share = train.step_tokens / (seq_len * world);
  fit_batch(recipe, model, device, std::max<int64_t>(1, std::min(share, rows)));
  while (share % train.micro_batch != 0) --train.micro_batch;
  train.accumulate = std::max<int64_t>(1, share / train.micro_batch);
}

bool leaves_sizes_open(const Recipe& recipe) {
  const auto& train = recipe.train;
  return recipe.model.leaves_sizes_open() || recipe.data.seq_len == 0 || recipe.tokenizer.vocab_size == 0 ||
         train.micro_batch == 0 || (train.steps == 0 && train.epochs == 0);
}

std::string bytes_text(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.3g} GB", bytes / 1e9);
  if (bytes < 1e3) return "less than 1 kB";
  return bytes >= 1e6 ? fmt::format("{:.3g} MB", bytes / 1e6) : fmt::format("{:.3g} kB", bytes / 1e3);
}

std::string about_seconds(double seconds) {
  return seconds < 60 ? "less than a minute" : "about " + human_seconds(seconds);
}

}  // namespace

double bytes_per_token(int64_t vocab_size) {
  // 1 for bytes, 2 at 512 tokens, 0.45 more with each doubling.
  if (vocab_size <= 257) return 1;
  return std::min(4.5, 2 + 0.45 * std::max(0.0, std::log2(static_cast<double>(vocab_size) / 512)));
}

AutoSizes choose_sizes(const SizeFacts& facts) {
  const double decades = std::clamp(std::log10(std::max(facts.bytes, 1.0) / 1e4), 0.0, 6.0);
  const auto decade = static_cast<int64_t>(decades + 0.5);
  const int64_t most_vocabulary = facts.gpu ? 32768 : 4096;
  size_t shape = static_cast<size_t>(decade);
  // A token for each parameter is the least that the device must have time for.
  const auto affordable = [&](const Shape& tried) {
    const double parameters = tried.parameters(most_vocabulary);
    return 6 * parameters * parameters <= budget(facts);
  };
  while (shape > 1 && !affordable(kShapes[shape])) --shape;
  const int64_t rows_on_gpu[]{8, 16, 32, 32, 64, 64, 64}, seq_on_gpu[]{64, 128, 128, 256, 512, 1024, 1024};
  return {.vocab_size = std::min<int64_t>(most_vocabulary, 512 << decade),
          .layers = kShapes[shape].layers,
          .width = kShapes[shape].width,
          .heads = kShapes[shape].heads,
          .seq_len = facts.gpu     ? seq_on_gpu[decade]
                     : decade == 0 ? 64
                     : decade < 3  ? 128
                                   : 256,
          .rows = facts.gpu     ? rows_on_gpu[decade]
                  : decade == 0 ? 8
                                : 16,
          .most_epochs = std::max(1.0, 20 * std::pow(10, -decades / 3))};
}

double choose_epochs(const SizeFacts& facts, double tokens, double flops_per_token, double most_epochs) {
  return two_digits(std::min(most_epochs, budget(facts) / (tokens * flops_per_token)));
}

double choose_holdout(double tokens, int64_t seq_len) {
  constexpr double kRows = 2.5, kMost = 0.3;
  return two_digits(std::clamp(kRows * static_cast<double>(seq_len) / tokens, 0.05, kMost));
}

double choose_finetune_lr(double parameters, bool adapters) {
  // 2e-5 at a billion, 1e-4 at 64M, 8e-4 at 2M; adapters take ten times as much.
  const double lr = 2e-5 * std::pow(1e9 / parameters, 0.6) * (adapters ? 10 : 1);
  const double unit = std::pow(10, std::floor(std::log10(lr)));
  return std::clamp(std::round(lr / unit) * unit, 1e-6, 1e-2);
}

bool has_auto_sizes(const Recipe& recipe) {
  return leaves_sizes_open(recipe) || recipe.data.holdout_by == HoldoutBy::kAuto;
}

std::string resolve_sizes(Recipe& recipe, const Config& config) {
  const bool open = leaves_sizes_open(recipe);
  const Device& device = training_device(recipe.train, -1);
  const SizeFacts facts = facts_of(recipe, device);
  const AutoSizes sizes = choose_sizes(facts);
  DataConfig& data = recipe.data;
  TrainConfig& train = recipe.train;
  if (recipe.tokenizer.vocab_size == 0)
    recipe.tokenizer.vocab_size = sizes.vocab_size, recipe.tokenizer.size_is_chosen = true;
  if (recipe.model.leaves_sizes_open()) resolve_model(recipe.model, sizes, config);
  if (data.seq_len == 0) data.seq_len = sizes.seq_len;

  const auto& path = recipe.tokenizer.path;
  const int64_t vocabulary = path.empty() ? recipe.tokenizer.vocab_size : load_tokenizer(path)->vocab_size();
  const bool pairs = recipe.model.translates();
  const double tokens = facts.bytes / bytes_per_token(vocabulary) / (pairs ? 2 : 1);  // of pairs: of a side
  if (data.holdout_by == HoldoutBy::kAuto) {
    // A text may be one document, which a hash would hold out whole or not at all.
    data.holdout_by = data.source == DataSource::kText ? HoldoutBy::kTail : HoldoutBy::kHash;
    if (data.holdout_by == HoldoutBy::kTail && !config.given("data.holdout"))
      data.holdout = choose_holdout(tokens, data.seq_len);
  }
  if (!open) return {};
  ModelConfig model = recipe.model;
  pairs ? model.resolve_pair(vocabulary, vocabulary, data.seq_len) : model.resolve(vocabulary, data.seq_len);
  const bool tunes = !train.init_from.empty();
  if (!pairs && train.micro_batch == 0) {
    constexpr int64_t kTuned = 8;  // rows, of a model that has learned from many
    const double epochs = train.epochs > 0 ? train.epochs : sizes.most_epochs;
    const bool filled = !is_one_of(data.rows, {RowKind::kPad, RowKind::kFitPad}) && train.steps == 0;
    const int64_t most = tunes ? std::min(kTuned, sizes.rows) : sizes.rows;
    resolve_batch(
        recipe, model, device, config,
        filled ? rows_for_updates(most, epochs * tokens / static_cast<double>(data.seq_len)) : most);
  }
  const double flops = flops_per_token(model, data.seq_len);
  if (train.steps == 0 && train.epochs == 0)
    train.epochs = choose_epochs(facts, tokens, flops, sizes.most_epochs * (pairs ? kPairEpochs : 1));
  const int64_t world = recipe.world, rows = train.micro_batch * train.accumulate * world;
  const int64_t step_tokens = pairs ? data.batch_tokens * train.accumulate * world : rows * data.seq_len;
  const double seen =
      train.epochs > 0 ? train.epochs * tokens : static_cast<double>(train.steps * step_tokens);
  // Processes on CPUs may share the cores of one machine.
  const double seconds = seen * flops / facts.flops / static_cast<double>(facts.gpu ? world : 1);
  recipe.expected_tokens = tokens, recipe.expected_seconds = seconds;
  const auto planned =
      tunes ? std::string()
            : fmt::format("vocabulary {}{}, {} of {} (about {} parameters), ",
                          recipe.tokenizer.size_is_chosen ? "up to " : "", vocabulary,
                          pairs ? fmt::format("{} + {} layers", model.encoder_layers, model.layers)
                                : counted(model.layers, "layer"),
                          model.width, human_count(static_cast<double>(model_size(model).total)));
  return fmt::format("{} of text, about {} tokens{} before it is read. Planned: {}{} a step, {}; {} on {}.",
                     bytes_text(facts.bytes), human_count(tokens), pairs ? " a side" : "", planned,
                     pairs ? counted(step_tokens, "token")
                           : fmt::format("{} of {} tokens", counted(rows, "row"), data.seq_len),
                     train.epochs > 0 ? counted(train.epochs, "epoch") : counted(train.steps, "step"),
                     about_seconds(seconds),
                     !facts.gpu   ? counted(std::llround(facts.flops / kCoreFlops), "CPU core")
                     : world == 1 ? "this GPU"
                                  : fmt::format("{} GPUs", world));
}

std::string corrected_sizes(const Recipe& recipe, uint64_t tokens) {
  constexpr double kClose = 0.25;
  const double share = static_cast<double>(tokens) / std::max(recipe.expected_tokens, 1.0);
  if (recipe.expected_tokens == 0 || std::abs(share - 1) <= kClose) return {};
  return fmt::format("The files gave {} tokens, not the {} that were planned for{}.",
                     human_count(static_cast<double>(tokens)), human_count(recipe.expected_tokens),
                     recipe.train.epochs > 0 ? ": " + about_seconds(share * recipe.expected_seconds) : "");
}

}  // namespace tightloop
