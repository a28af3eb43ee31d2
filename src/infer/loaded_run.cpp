#include "infer/loaded_run.h"

#include "core/error.h"
#include "train/engine/precision.h"

namespace tightloop {

LoadedRun load_model(const std::filesystem::path& path, const std::string& device_name,
                     std::optional<int64_t> step, std::optional<Precision> precision) {
  return load_model(SavedModel(path, step), device_name, precision);
}

LoadedRun load_model(const SavedModel& saved, const std::string& device_name,
                     std::optional<Precision> precision) {
  Device& target = device(device_name);
  LoadedRun loaded{saved.recipe(), saved.tokenizer(), nullptr, saved.step(), saved.metadata()};
  if (!loaded.tokenizer) {
    throw data_error("'{}' has no tokenizer: copy its tokenizer.json there.", saved.path().string());
  }
  use_threads(loaded.recipe.train.threads);
  loaded.recipe.ops.apply();
  loaded.recipe.model.resolve(loaded.tokenizer->vocab_size(), loaded.recipe.data.seq_len);
  loaded.model = make_model(loaded.recipe.model, loaded.recipe.train.seed);
  saved.load_weights(*loaded.model);
  const auto dtype = inference_dtype(precision, loaded.recipe.train.precision, target);
  warn_of_slow_products(dtype, target);
  loaded.model->parameters().to(at::Device(target.name()), dtype);
  return loaded;
}

}  // namespace tightloop
