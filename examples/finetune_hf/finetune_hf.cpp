// Fine-tunes a Hugging Face folder on conversations and writes another one, which transformers loads.
//   finetune_hf MODEL CHATS.jsonl RUN TO        {"messages": [{"role": "user", "content": "..."}, ...]} a
//   line
#include <tightloop/error.h>
#include <tightloop/infer.h>
#include <tightloop/log.h>
#include <tightloop/trainer.h>

#include <cstdio>

using namespace tightloop;

namespace {

Recipe recipe_for(const std::string& model, const std::string& chats) {
  // Sizes, tokenizer and chat template are those of the model that there is.
  const SavedModel parent(model);
  Recipe recipe;
  recipe.model = parent.recipe().model;
  recipe.chat = parent.recipe().chat;
  recipe.tokenizer.path = parent.tokenizer_path().string();
  // The rest as a recipe says it; recipe.bind().load("finetune.yaml") would read a file.
  Config config = recipe.bind();
  config.apply({"--train.init_from",    model,  "--data.train",        chats, "--data.source", "jsonl",
                "--data.rows",          "pack", "--data.seq_len",      "64",  "--train.stage", "sft",
                "--train.steps",        "60",   "--train.micro_batch", "8",   "--train.lr",    "1e-3",
                "--train.warmup_steps", "5",    "--train.device",      "cpu"});
  return recipe;
}

std::string answer(const std::string& model, const std::string& question) {
  LoadedRun loaded = load_model(model, "cpu");
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.sampling.max_tokens = 16;
  options.stop_tokens = {loaded.tokenizer->end_of_text()};
  const Prompt prompt{loaded.tokenizer->encode(question)};
  return loaded.tokenizer->decode(generate(*loaded.model, {&prompt, 1}, options)[0].ids);
}

void run(const std::string& model, const std::string& chats, const std::string& folder,
         const std::string& to) {
  const Recipe recipe = recipe_for(model, chats);
  Trainer trainer(recipe, RunFolder::create(folder, /*overwrite=*/true));
  const TrainResult result = trainer.run();
  export_model(folder, to, {.dtype = at::kFloat});
  log::shut_down();
  std::printf("the exported model goes on: %s\n", answer(to, "Hello").c_str());
  std::printf("finetune_hf: loss %.3f to %.3f in %d steps, exported\n", result.losses.front(),
              result.losses.back(), static_cast<int>(result.step));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: finetune_hf MODEL CHATS.jsonl RUN TO\n");
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3], argv[4]);
  } catch (const Error& error) {
    std::fprintf(stderr, "finetune_hf: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
