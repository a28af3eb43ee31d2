#include "train/settings/recipe.h"

#include "train/settings/other_names.h"

namespace tightloop {

Config Recipe::bind() {
  Config config;
  config.add_section("run", run, "Where results go");
  config.add_section("data", data, "What is read and how it becomes rows");
  config.add_section("tasks", tasks, "The built-in data set of small questions (data.source: tasks)");
  config.add_section("chat", chat, "How conversations become text");
  config.add_section("tokenizer", tokenizer, "Text to ids");
  config.add_section("model", model, "The network");
  config.add_section("lora", lora,
                     "Low-rank adapters: the model stays as it is, small matrices beside it learn");
  config.add_section("train", train, "The loop, the optimizer and the schedule");
  config.add_section("dist", dist, "Several processes that train together (torchrun, mpirun, Slurm)");
  config.add_section("eval", eval, "What the model is asked whenever it is evaluated (train.eval_steps)");
  config.add_section("log", log,
                     "What is written about a run, and how often (train.logging_steps: the loss); 0: never");
  config.add_section("wandb", wandb, "Metrics to Weights & Biases, through its Python package");
  config.add_section("ops", ops, "How operators run");
  config.set_other_names(other_names());
  return config;
}

}  // namespace tightloop
