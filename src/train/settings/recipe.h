#pragma once

#include "core/config.h"
#include "data/data_config.h"
#include "data/generate/tasks.h"
#include "data/render/chat.h"
#include "model/language_model.h"
#include "model/parts/lora.h"
#include "ops/config.h"
#include "tokenizer/tokenizer_config.h"
#include "train/dist_config.h"
#include "train/report/log_config.h"
#include "train/run/run_folder.h"
#include "train/train_config.h"

namespace tightloop {

/// Everything a run is made of: the configuration file as structs.
struct Recipe {
  Recipe() { data.source = DataSource::kAuto; }  // resolve_source() finds out what the files hold

  RunConfig run;
  DataConfig data;
  TasksConfig tasks;
  ChatConfig chat;
  TokenizerConfig tokenizer;
  ModelConfig model;
  LoraConfig lora;
  TrainConfig train;
  DistConfig dist;
  EvalConfig eval;
  LogConfig log;
  WandbConfig wandb;
  ops::OpsConfig ops;

  /// Processes that train together, for predictions of memory; whoever knows fills it in.
  int64_t world = 1;
  /// What resolve_sizes() expects of the files, to be corrected once they are read; 0: nothing was said.
  double expected_tokens = 0, expected_seconds = 0;

  /// All sections, bound to this object.
  Config bind();
};

}  // namespace tightloop
