#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::run;
using testing::TempFolder;

struct ChatCase {
  std::string form, family, settings;
};

/// Trains a tiny chat model in two stages and exports it: in fp32, as `export`.
void export_chat_model(const ChatCase& one, const fs::path& folder) {
  const std::string common =
      "--train.device cpu --train.precision fp32 --data.seq_len 320 --train.logging_steps 50 "
      "--train.threads 1 ";
  write_file_whole(folder / "base.yaml",
                   "data:\n  source: tasks\nmodel:\n  layers: 2\n  width: 48\n  heads: 4\n  kv_heads: 4\n");
  write_file_whole(folder / "chat.yaml", "data:\n  source: spelling\n  rows: pack\n");
  for (const std::string& command :
       {"train base.yaml --run.name base --tasks.questions 200 --tokenizer.vocab_size 320 --train.steps 1 "
        "--chat.form " +
            one.form + " --model.family " + one.family + " " + one.settings + " " + common,
        "train chat.yaml --run.name chat --train.init_from runs/base --tasks.questions 1000 --tasks.held_out "
        "20 --train.steps 250 --train.micro_batch 4 --train.lr 0.01 --train.eval_steps 250 --eval.samples "
        "0 " +
            common,
        std::string("export --run runs/chat --to export --dtype fp32")}) {
    const auto outcome = run(folder, "tightloop " + command);
    ASSERT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.output;
  }
}

const std::string kNanochatTokens =
    "--tokenizer.pattern nanochat --tokenizer.special_tokens '<|bos|>' '<|user_start|>' '<|user_end|>' "
    "'<|assistant_start|>' '<|assistant_end|>' '<|python_start|>' '<|python_end|>' '<|output_start|>' "
    "'<|output_end|>'";

TEST(ExportedChat, TransformersSaysTheSameAndStopsAtTheSamePlace) {
  const fs::path python = testing::source_folder() / ".deps/peers/bin/python";
  SKIP_WITHOUT(python);
  for (const ChatCase& one :
       {ChatCase{"chatml", "qwen3", "--model.tie_embeddings true"}, ChatCase{"minimind", "llama", ""},
        ChatCase{"nanochat", "qwen3", kNanochatTokens}}) {
    SCOPED_TRACE(one.form + " " + one.family);
    const TempFolder folder;
    export_chat_model(one, folder.path());
    if (HasFatalFailure()) return;
    const auto compared = run(folder.path(), "HF_HUB_OFFLINE=1 '" + python.string() +
                                                 "' '" TIGHTLOOP_SOURCE_DIR
                                                 "/tests/e2e/chat_in_transformers.py' "
                                                 "'" TIGHTLOOP_BINARY_DIR "/tightloop' runs/chat export 20");
    ASSERT_EQ(compared.exit_code, 0) << compared.output;
    std::printf("%s, %s: %s", one.form.c_str(), one.family.c_str(),
                compared.output.substr(compared.output.rfind("20 conv")).c_str());
  }
}

}  // namespace
}  // namespace tightloop
