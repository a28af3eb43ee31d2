#include "train/run_folder.h"

#include "core/config.h"
#include "core/error.h"
#include "core/files.h"

namespace tightloop {

namespace fs = std::filesystem;

void RunConfig::describe(Fields& fields) {
  fields.add("dir", dir, "Folder that holds all runs");
  fields.add("name", name, "Name of this run; empty: the configuration file's name");
}

RunFolder RunFolder::create(const fs::path& root, bool overwrite) {
  RunFolder run(root);
  if (fs::exists(root) && !fs::is_empty(root)) {
    if (!overwrite) {
      throw usage_error(
          "the run '{0}' exists already. Continue it with 'tightloop train --resume {0}', choose another "
          "--run.name, "
          "or replace it with --overwrite.",
          root.string());
    }
    if (!fs::exists(run.config())) {
      throw usage_error("'{}' has no config.yaml, so it is not a run; it is left alone.", root.string());
    }
    fs::remove_all(root);
  }
  for (const auto& folder : {root, run.tokenizer(), run.checkpoints()}) make_folder(folder);
  return run;
}

RunFolder RunFolder::open(const fs::path& root) {
  RunFolder run(root);
  if (!fs::exists(run.config())) {
    throw usage_error("'{}' is not a run: it has no config.yaml.", root.string());
  }
  return run;
}

}  // namespace tightloop
