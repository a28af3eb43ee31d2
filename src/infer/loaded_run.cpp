#include "infer/loaded_run.h"

#include "core/error.h"
#include "train/engine/precision.h"
#include "train/run/run_folder.h"
#include "train/run/saved_model.h"

namespace tightloop {

LoadedRun load_model(const std::filesystem::path& path, const std::string& device_name,
                     std::optional<int64_t> step, std::optional<Precision> precision) {
  const SavedModel saved(path, step);
  Device& target = device(device_name);
  LoadedRun loaded{saved.recipe(), saved.tokenizer(), nullptr, saved.step(), saved.metadata()};
  if (!loaded.tokenizer) {
    throw data_error("'{}' has no tokenizer: copy its tokenizer.json there.", path.string());
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
