#include "infer/loaded_run.h"

#include "core/counted.h"
#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "model/quantized_weights.h"
#include "train/engine/precision.h"

namespace tightloop {

LoadedRun load_model(const std::filesystem::path& path, const std::string& device_name,
                     std::optional<int64_t> step, std::optional<Precision> precision,
                     std::optional<ops::WeightFormat> weights) {
  return load_model(SavedModel(path, step), device_name, precision, weights);
}

LoadedRun load_model(const SavedModel& saved, const std::string& device_name,
                     std::optional<Precision> precision, std::optional<ops::WeightFormat> weights) {
  Device& target = device(device_name);
  LoadedRun loaded{saved.recipe(), saved.tokenizer(), nullptr, saved.step(), saved.metadata()};
  if (!loaded.tokenizer) {
    if (is_file(saved.path()))
      throw data_error("'{}' has no tokenizer, which a GGUF file holds itself: make it again with one.",
                       saved.path().string());
    throw data_error("'{}' has no tokenizer: copy its tokenizer.json there.", saved.path().string());
  }
  use_threads(loaded.recipe.train.threads);
  loaded.recipe.ops.apply();
  loaded.recipe.model.resolve(loaded.tokenizer->vocab_size(), loaded.recipe.data.seq_len);
  loaded.model = make_model(loaded.recipe.model, loaded.recipe.train.seed);
  saved.load_weights(*loaded.model);
  const auto dtype = inference_dtype(precision, loaded.recipe.train.precision, target);
  warn_of_slow_products(dtype, target);
  const at::Device place(target.name());
  if (weights) {  // of the weights before they are rounded to the dtype
    const auto made = quantize_weights(*loaded.model, *weights, place);
    log::info("{} packed into {}: {} instead of {}.", counted(made.matrices, "weight"), name_of(*weights),
              human_bytes(static_cast<double>(made.bytes)),
              human_bytes(static_cast<double>(made.elements) * static_cast<double>(c10::elementSize(dtype))));
  }
  loaded.model->parameters().to(place, dtype);
  return loaded;
}

bool has_seen_no_conversation(const LoadedRun& run) {
  const DataConfig& data = run.recipe.data;
  return data.mixture.empty() && (data.source == DataSource::kText || data.source == DataSource::kTasks ||
                                  data.format == RecordFormat::kText);
}

}  // namespace tightloop
