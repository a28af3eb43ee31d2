#include "infer/loaded_run.h"

#include "train/checkpoint.h"
#include "train/optimizer.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace tightloop {

LoadedRun load_run(const std::filesystem::path& folder, const std::string& device_name,
                   std::optional<int64_t> step) {
  const auto run = RunFolder::open(folder);
  LoadedRun loaded;
  loaded.recipe.bind().load(run.config());
  Device& place = device(device_name);
  use_threads(loaded.recipe.train.threads);
  loaded.recipe.ops.apply();
  loaded.tokenizer = load_tokenizer(run.tokenizer());
  loaded.recipe.model.resolve(loaded.tokenizer->vocab_size(), loaded.recipe.data.seq_len);
  const auto checkpoint = load_checkpoint(run.checkpoints(), step, /*weights_only=*/true);
  loaded.step = checkpoint.step;
  loaded.model = make_model(loaded.recipe.model, loaded.recipe.train.seed);
  load_weights(loaded.model->parameters(), checkpoint.weights, "model.safetensors");
  loaded.model->parameters().to(at::Device(place.name()),
                                compute_dtype(loaded.recipe.train.precision, place));
  return loaded;
}

}  // namespace tightloop
