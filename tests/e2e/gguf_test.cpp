// GGUF files from outside: written, read, written again, and what llama.cpp and its own reader make of them.
#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::contains;
using testing::run;
using testing::TempFolder;

struct GgufCase {
  std::string family, tokenizer, settings;
};

const std::vector<GgufCase> kGgufCases{
    {"gpt2", "gpt2", ""},
    {"llama", "minimind",
     "--model.kv_heads 2 --model.tie_embeddings false --model.rope_scaling llama3 "
     "--model.rope_original_context 64 "
     "--model.rope_theta 5e5"},
    {"qwen2", "gpt2", "--model.kv_heads 2"},
    {"qwen3", "minimind", "--model.kv_heads 2 --model.head_size 32"},
    {"qwen3_moe", "minimind",
     "--model.kv_heads 1 --model.experts 4 --model.experts_per_token 2 --model.expert_ffn 32"},
};

class GgufProgram : public ::testing::Test {
 protected:
  testing::Outcome ok(const std::string& command) {
    auto outcome = run(folder_.path(), "tightloop " + command);
    EXPECT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.output;
    return outcome;
  }
  testing::Outcome script(const std::string& name, const std::string& arguments) {
    const fs::path python = testing::source_folder() / ".deps/peers/bin/python";
    const auto outcome =
        run(folder_.path(), "HF_HUB_OFFLINE=1 '" + python.string() +
                                "' '" TIGHTLOOP_SOURCE_DIR "/tests/e2e/" + name + "' " + arguments);
    EXPECT_EQ(outcome.exit_code, 0) << name << " " << arguments << "\n" << outcome.output;
    return outcome;
  }
  fs::path data(const std::string& name) { return testing::shared_data() / name; }
  /// A run of two steps on Shakespeare: it has strong opinions and knows nothing.
  void train(const GgufCase& one) {
    write_file_whole(folder_ / "text.txt", read_file(data("text/tinyshakespeare.txt")).substr(0, 60'000));
    ok("train '" TIGHTLOOP_SOURCE_DIR "/configs/text.yaml' --data.train text.txt --run.name " + one.family +
       " --tokenizer.path '" + data("tokenizers/" + one.tokenizer).string() + "' --model.family " +
       one.family +
       " --model.layers 2 --model.width 64 --model.heads 4 --model.ffn 96 --data.seq_len 128 --train.steps "
       "12 --train.epochs 0 "
       "--train.micro_batch 2 --train.lr 1e-4 --train.device cpu --train.precision fp32 --train.eval_steps 0 "
       "--eval.samples 0 "
       "--model.init_std 0.2 --train.threads 1 " +
       one.settings);
  }
  std::string bytes(const std::string& name) { return read_file(folder_ / name); }

  const TempFolder folder_;
};

TEST_F(GgufProgram, LlamaCppReadsTheSameAndSaysTheSame) {
  const fs::path peers = testing::source_folder() / ".deps/peers";
  SKIP_WITHOUT(data("tokenizers/gpt2"));
  SKIP_WITHOUT(peers);
  if (run(folder_.path(),
          "'" + (peers / "bin/python").string() + "' -c 'import llama_cpp, gguf, safetensors'")
          .exit_code != 0)
    GTEST_SKIP() << "not here: llama-cpp-python and gguf (tools/setup --peers)";
  for (const GgufCase& one : kGgufCases) {
    SCOPED_TRACE(one.family);
    train(one);
    const std::string from = "export --run runs/" + one.family + " --to " + one.family;
    ok(from + " --dtype fp32");
    for (const std::string type : {"fp32", "bf16", "fp16", "q8_0"}) {
      ok(from + "-" + type + ".gguf --format gguf --dtype " + type);
      std::fputs(script("gguf_reader.py", one.family + "-" + type + ".gguf " + one.family).output.c_str(),
                 stdout);
      // From GGUF to GGUF, and by way of a folder: the same bytes. And a folder of fp32 is the one from the
      // run.
      ok("export --model " + one.family + "-" + type + ".gguf --format gguf --to again.gguf");
      EXPECT_TRUE(bytes("again.gguf") == bytes(one.family + "-" + type + ".gguf")) << type;
      fs::remove(folder_ / "again.gguf");
      if (type != "fp32" && type != "q8_0") continue;  // the slow way round
      ok("export --model " + one.family + "-" + type + ".gguf --dtype fp32 --to back/" + one.family);
      if (type == "fp32") {
        EXPECT_TRUE(bytes("back/" + one.family + "/model.safetensors") ==
                    bytes(one.family + "/model.safetensors"));
      }
      ok("export --model back/" + one.family + " --format gguf --dtype " + type + " --to again.gguf");
      EXPECT_TRUE(bytes("again.gguf") == bytes(one.family + "-" + type + ".gguf"))
          << type << ", by way of a folder";
      fs::remove(folder_ / "again.gguf"), fs::remove_all(folder_ / "back");
    }
    const auto compared =
        script("gguf_in_llama_cpp.py", "'" TIGHTLOOP_BINARY_DIR "/tightloop' " + one.family +
                                           "-fp32.gguf runs/" + one.family + " 20 " + one.family);
    std::fputs(compared.output.c_str(), stdout);
    if (HasFailure()) return;
  }
}

TEST_F(GgufProgram, AFileIsAModelWhereverAFolderIs) {
  SKIP_WITHOUT(data("tokenizers/minimind"));
  train(kGgufCases[3]);
  ok("export --run runs/qwen3 --format gguf --dtype fp32 --to mine.gguf");
  const std::string ask =
      " --prompt 'First Citizen:' --temperature 0 --max-tokens 12 --device cpu --precision fp32";
  ok("export --run runs/qwen3 --dtype fp32 --to mine");
  const auto said = [&](const std::string& model) {
    return ok("generate --model " + model + ask + " 2>/dev/null").output;
  };
  EXPECT_EQ(said("mine.gguf"), said("mine"));
  EXPECT_EQ(said("mine.gguf"), said("runs/qwen3"));
  write_file_whole(folder_ / "some.txt", bytes("text.txt").substr(0, 3000));
  const auto loss = [&](const std::string& model) {
    const auto json = nlohmann::json::parse(
        ok("eval --model " + model + " --input some.txt --json --device cpu --precision fp32 2>/dev/null")
            .output);
    return json.at("loss").get<double>();
  };
  EXPECT_EQ(loss("mine.gguf"), loss("mine"));
  EXPECT_EQ(run(folder_.path(), "echo Hello | tightloop chat --model mine.gguf --max-tokens 4 --device cpu")
                .exit_code,
            0);
  ok("train '" TIGHTLOOP_SOURCE_DIR
     "/configs/text.yaml' --data.train text.txt --train.init_from mine.gguf --run.name second --data.seq_len "
     "64 "
     "--train.steps 2 --train.epochs 0 --train.micro_batch 2 --train.device cpu --train.precision fp32 "
     "--eval.samples 0");
  ok("generate --run runs/second" + ask);
  ok("model show mine.gguf");

  const auto shown = ok("inspect mine.gguf").output;
  for (const char* word : {"qwen3.block_count", "tokenizer.ggml.pre", "\"gpt-2\"", "blk.1.attn_q_norm.weight",
                           "[6400, 64]", "of type F32"})
    EXPECT_TRUE(contains(shown, word)) << word << "\n" << shown;
  const auto json = nlohmann::json::parse(ok("inspect gguf mine.gguf --json").output);
  EXPECT_EQ(json["metadata"]["qwen3.block_count"], 2);
  EXPECT_EQ(json["metadata"]["tokenizer.ggml.tokens"].size(), 6400u);
  EXPECT_EQ(json["tensors"][0]["name"], "token_embd.weight");
}

TEST_F(GgufProgram, WhatCannotBeWrittenOrReadIsSaidInASentence) {
  testing::write_text(folder_ / "text.txt", 20'000);
  const std::string settings =
      " --data.train text.txt --tokenizer.vocab_size 300 --model.layers 1 --model.width 32 --model.heads 2 "
      "--data.seq_len 32 "
      "--train.steps 1 --train.epochs 0 --train.micro_batch 1 --data.holdout 0 --train.eval_steps 0 "
      "--train.device cpu --train.precision fp32 --eval.samples 0 ";
  ok("train '" TIGHTLOOP_SOURCE_DIR "/configs/text.yaml' --run.name nano --model.family nanochat" + settings);
  ok("train '" TIGHTLOOP_SOURCE_DIR "/configs/text.yaml' --run.name plain --model.family llama" + settings);
  const auto refuse = [&](const std::string& command, int code, const std::string& word) {
    const auto outcome = run(folder_.path(), "tightloop " + command);
    EXPECT_EQ(outcome.exit_code, code) << command << "\n" << outcome.output;
    EXPECT_TRUE(contains(outcome.output, word)) << command << "\n" << outcome.output;
  };
  refuse("export --run runs/nano --format gguf --to a.gguf", 2, "--format hf");
  EXPECT_FALSE(fs::exists(folder_ / "a.gguf"));
  refuse("export --run runs/plain --to a.gguf", 2, "--format gguf?");
  refuse("export --run runs/plain --dtype q8_0 --to a", 2, "--format gguf");
  refuse("export --run runs/plain --format gguf --to runs", 2, "is a folder");
  refuse("export --run runs/plain --format gguf --to new/plain", 2, "Say --to new/plain.gguf");
  ok("export --run runs/plain --format gguf --dtype q8_0 --to a.gguf");
  refuse("export --run runs/plain --format gguf --to a.gguf", 2, "exists already");
  refuse("generate --model text.txt --prompt x", 2, ".gguf");
  const std::string whole = bytes("a.gguf");
  for (const size_t size :
       {size_t{0}, size_t{3}, size_t{23}, size_t{200}, whole.size() / 2, whole.size() - 64}) {
    write_file_whole(folder_ / "cut.gguf", whole.substr(0, size));
    for (const std::string verb :
         {"inspect cut.gguf", "generate --model cut.gguf --prompt x", "export --model cut.gguf --to b",
          "train '" TIGHTLOOP_SOURCE_DIR
          "/configs/text.yaml' --data.train text.txt --train.init_from cut.gguf"})
      refuse(verb, 4, "cut.gguf");
  }
  EXPECT_FALSE(fs::exists(folder_ / "b"));
}

}  // namespace
}  // namespace tightloop
