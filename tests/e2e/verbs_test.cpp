#include <algorithm>
#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::contains;
using testing::run;
using testing::TempFolder;
using testing::tiny;

TEST(Program, HelpFitsAScreenAndEveryVerbHasAnExample) {
  const TempFolder folder;
  const auto help = run(folder.path(), "tightloop --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_LE(std::ranges::count(help.output, '\n'), 40);
  for (const char* verb : {"doctor",
                           "config",
                           "tokenizer",
                           "tokenizer train",
                           "tokenizer encode",
                           "data",
                           "tokenizer decode",
                           "tokenizer export",
                           "data check",
                           "data show",
                           "data order",
                           "data render",
                           "prepare",
                           "train",
                           "top",
                           "runs",
                           "eval",
                           "generate",
                           "translate",
                           "bleu",
                           "fit",
                           "model",
                           "model show",
                           "bench",
                           "bench step",
                           "bench update",
                           "bench translate",
                           "bench ablation",
                           "bench loader",
                           "bench tokenizer",
                           "bench generate",
                           "chat",
                           "serve",
                           "inspect",
                           "inspect loss",
                           "inspect batch",
                           "inspect gguf",
                           "average",
                           "export"}) {
    const auto one = run(folder.path(), std::string("tightloop ") + verb + " --help");
    EXPECT_EQ(one.exit_code, 0) << verb;
    EXPECT_TRUE(contains(one.output, std::string("tightloop ") + verb + " ")) << verb << one.output;
    EXPECT_TRUE(contains(one.output, "Example")) << verb << one.output;
  }
}

TEST(Program, HelpShowsDefaults) {
  const TempFolder folder;
  const auto generate = run(folder.path(), "tightloop generate --help");
  EXPECT_TRUE(contains(generate.output, "(default: 0.8)")) << generate.output;
  EXPECT_FALSE(contains(generate.output, "[]")) << generate.output;
  EXPECT_TRUE(generate.output.ends_with("\n"));
  // Of a recipe's settings those that matter, with the defaults that the program has.
  const auto train = run(folder.path(), "tightloop train --help");
  const auto config = run(folder.path(), "tightloop config");
  for (const char* key : {"train.steps", "train.lr", "data.seq_len", "model.layers", "train.device"}) {
    const std::string name = std::string("--") + key + " ";
    const auto value_of = [&](const std::string& text) {
      std::string value = text.substr(text.find(name) + name.size());
      value = value.substr(0, value.find_first_of(" \n"));
      std::erase(value, '"');
      return value;
    };
    ASSERT_TRUE(contains(train.output, name)) << train.output;
    EXPECT_EQ(value_of(train.output), value_of(config.output)) << key;
  }
  EXPECT_TRUE(contains(train.output, "'tightloop config' lists all")) << train.output;
}

TEST(Program, WrongUseExitsWith2) {
  const TempFolder folder;
  for (const char* wrong : {"tightloop", "tightloop dance", "tightloop generate --nonsense",
                            "tightloop generate --temperature -1", "tightloop tokenizer"}) {
    EXPECT_EQ(run(folder.path(), wrong).exit_code, 2) << wrong;
  }
}

TEST(Program, NeedsNoCudaLibrary) {
  const TempFolder folder;
  const auto needed = run(folder.path(), "readelf -d '" TIGHTLOOP_BINARY_DIR "/tightloop' | grep NEEDED");
  ASSERT_TRUE(contains(needed.output, "libtorch_cpu.so")) << needed.output;
  for (const char* library : {"cuda", "cudart", "cublas", "nccl", "cudnn"})
    EXPECT_FALSE(contains(needed.output, library)) << needed.output;
}

TEST(ConfigVerb, TheDocumentationIsUpToDate) {
  const TempFolder folder;
  const auto page = run(folder.path(), "tightloop config --markdown");
  EXPECT_EQ(page.output, read_file(testing::fs::path(TIGHTLOOP_SOURCE_DIR) / "docs/configuration.md"))
      << "docs/configuration.md is stale: build/tightloop config --markdown > docs/configuration.md";
}

TEST(ConfigVerb, EveryRecipeInConfigsIsValid) {
  const TempFolder folder;
  for (const auto& entry : fs::directory_iterator(TIGHTLOOP_SOURCE_DIR "/configs")) {
    if (entry.is_directory()) continue;  // suites are no recipes
    const auto outcome = run(folder.path(), "tightloop config '" + entry.path().string() + "'");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  }
}

TEST(ModelVerb, ShowsPresetsAndRecipes) {
  const TempFolder folder;
  const auto json = run(folder.path(), "tightloop model show gpt2-124m --json");
  ASSERT_EQ(json.exit_code, 0) << json.output;
  EXPECT_EQ(nlohmann::json::parse(json.output)["parameters"]["total"], 124475904);
  const auto deep = run(folder.path(), "tightloop model show nanochat-d4 --model.depth 6");
  EXPECT_TRUE(contains(deep.output, "6 layers, width 384, 3 heads of 128")) << deep.output;
  const auto experts = run(folder.path(), "tightloop model show minimind-moe-198m");
  EXPECT_TRUE(contains(experts.output, "met by a token")) << experts.output;
  EXPECT_EQ(
      run(folder.path(), "tightloop model show '" TIGHTLOOP_SOURCE_DIR "/configs/quickstart.yaml'").exit_code,
      0);
  const auto wrong = run(folder.path(), "tightloop model show gpt2-124n");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_TRUE(contains(wrong.output, "Did you mean 'gpt2-124m'?")) << wrong.output;
}

TEST(FitVerb, PredictsAndAdvises) {
  const TempFolder folder;
  const std::string recipe = "'" TIGHTLOOP_SOURCE_DIR "/configs/quickstart.yaml'";
  const std::string gpt2 = "tightloop fit " + recipe +
                           " --model.preset gpt2-124m --data.seq_len 1024 --train.micro_batch 64 "
                           "--model.ffn 3072 --train.precision bf16 --train.fused_head on --memory ";
  const auto outcome = run(folder.path(), gpt2 + "16 --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output);
  EXPECT_FALSE(json["fits"]);
  EXPECT_GT(json["predicted_bytes"]["total"].get<double>(), 16.0 * (1 << 30));
  EXPECT_LT(json["advice_bytes"]["total"].get<double>(), 0.9 * 16.0 * (1 << 30));
  const auto& advice = json["advice"];
  EXPECT_EQ(advice["train.micro_batch"].get<int>() * advice["train.accumulate"].get<int>(), 64);
  const auto text = run(folder.path(), gpt2 + "16 --use_gradient_checkpointing true");
  EXPECT_TRUE(contains(text.output, "checkpointing all")) << text.output;
  EXPECT_TRUE(contains(text.output, "It fits.")) << text.output;
  EXPECT_EQ(run(folder.path(), "tightloop fit " + recipe).exit_code, 0) << "on this machine's own memory";
  EXPECT_EQ(run(folder.path(), "tightloop fit " + recipe + " --memory none").exit_code, 2);
  const auto tiny = run(folder.path(), gpt2 + "1");
  EXPECT_TRUE(contains(tiny.output, "Not even")) << tiny.output;
}

TEST(FitVerb, PredictsSeveralProcesses) {
  const TempFolder folder;
  const std::string gpt2 = "tightloop fit '" TIGHTLOOP_SOURCE_DIR
                           "/configs/quickstart.yaml' --model.preset gpt2-124m --data.seq_len 1024 "
                           "--train.micro_batch 64 --model.ffn 3072 --train.precision bf16 --memory 141 ";
  const std::string eight = gpt2 + "--world 8 --link nvlink --step-ms 110 --update-ms 1 ";
  const auto json_of = [&](const std::string& command) {
    const auto outcome = run(folder.path(), command + " --json");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return nlohmann::json::parse(outcome.output);
  };
  const auto none = json_of(eight), sharded = json_of(eight + "--dist.shard optimizer");
  const auto number = [](const nlohmann::json& json, const char* name) {
    return json["together"][name].get<double>();
  };
  const auto parameters = none["parameters"].get<double>();
  EXPECT_NEAR(number(none, "sent_gradient_bytes") / (2 * 7.0 / 8 * 4 * parameters), 1, 0.001);
  EXPECT_NEAR(number(sharded, "sent_gradient_bytes") / (7.0 / 8 * 4 * parameters), 1, 0.001);
  EXPECT_NEAR(number(sharded, "sent_weight_bytes") / (7.0 / 8 * 2 * parameters), 1, 0.001);
  EXPECT_NEAR(number(none, "compute_ms"), 110, 1e-6);
  EXPECT_NEAR(number(none, "step_ms"), 110 + number(none, "exposed_ms"), 1e-6);
  EXPECT_LT(number(none, "step_ms"), number(none, "without_overlap_ms"));
  EXPECT_NEAR(number(sharded, "update_ms"), 1.0 / 8, 0.01);
  EXPECT_NEAR(sharded["predicted_bytes"]["moments"].get<double>() / parameters, 1, 0.01);
  EXPECT_NEAR(none["predicted_bytes"]["moments"].get<double>() / parameters, 8, 0.01);
  const auto text = run(folder.path(), eight), buckets = run(folder.path(), eight + "--buckets");
  for (const char* part : {"450 GB/s", "--step-ms 110", "Without overlap"})
    EXPECT_TRUE(contains(text.output, part)) << part << " in: " << text.output;
  EXPECT_FALSE(contains(text.output, "embedding")) << text.output;
  EXPECT_TRUE(contains(buckets.output, "embedding")) << buckets.output;
  const auto guessed = run(folder.path(), gpt2 + "--world 8 --link nvlink --tflops 700");
  EXPECT_TRUE(contains(guessed.output, "ESTIMATE")) << guessed.output;
  const auto linkless = run(folder.path(), gpt2 + "--world 8");
  EXPECT_EQ(linkless.exit_code, 0);
  EXPECT_TRUE(contains(linkless.output, "8 processes, dist.shard none")) << linkless.output;
  EXPECT_TRUE(contains(linkless.output, "For the step's time say what joins the processes"))
      << linkless.output;
  // How long a CPU computes says nothing of a GPU.
  const std::string unmeasured = gpt2 + "--world 8 --link nvlink --train.device cpu";
  const auto untimed = run(folder.path(), unmeasured);
  EXPECT_TRUE(contains(untimed.output, "which cannot be measured on this CPU: --step-ms")) << untimed.output;
  EXPECT_FALSE(contains(untimed.output, " ms ")) << untimed.output;
  const auto bytes = json_of(unmeasured);
  EXPECT_EQ(number(bytes, "sent_gradient_bytes"), number(none, "sent_gradient_bytes"));
  EXPECT_FALSE(bytes["together"].contains("step_ms")) << bytes;
  const auto large = run(folder.path(), gpt2 + "--world 16 --link nvlink");
  EXPECT_EQ(large.exit_code, 2);
  EXPECT_TRUE(contains(large.output, "joins the GPUs of one machine")) << large.output;
  const auto uneven = run(folder.path(), eight + "--train.step_tokens 65536");
  EXPECT_EQ(uneven.exit_code, 2);
  EXPECT_TRUE(contains(uneven.output, "no multiple of")) << uneven.output;
}

// The peak that is named is that of the table's first line, and of model show.
TEST(FitVerb, OneNumberForOneRecipe) {
  const TempFolder folder;
  const std::string recipe = "'" TIGHTLOOP_SOURCE_DIR
                             "/configs/quickstart.yaml' --train.device cpu --train.precision fp32 "
                             "--train.micro_batch 512 --train.fused_head off";
  const auto fit = run(folder.path(), "tightloop fit " + recipe),
             show = run(folder.path(), "tightloop model show " + recipe);
  const std::string at_peak = fit.output.substr(0, fit.output.find(" at the peak"));
  const std::string peak = at_peak.substr(at_peak.rfind(": ") + 2);
  const std::string table = fit.output.substr(fit.output.find("micro-batch  "));
  EXPECT_TRUE(contains(table, "\n         512 " + std::string(12 - peak.size(), ' ') + peak)) << fit.output;
  EXPECT_TRUE(contains(show.output, "memory, fp32    about " + peak)) << show.output;
}

TEST(ConfigVerb, ShowsOneSetting) {
  const TempFolder folder;
  const auto outcome = run(folder.path(), "tightloop config train.lr --train.lr 0.125");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(outcome.output.starts_with("--train.lr 0.125\n")) << outcome.output;
  EXPECT_FALSE(contains(outcome.output, "--train.steps")) << outcome.output;
  const auto wrong = run(folder.path(), "tightloop config train.stepz");
  EXPECT_EQ(wrong.exit_code, 2) << wrong.output;
  EXPECT_TRUE(contains(wrong.output, "'train.steps'")) << wrong.output;
}

TEST(ConfigVerb, ShowsOneSection) {
  const TempFolder folder;
  const auto outcome = run(folder.path(), "tightloop config --section train --train.lr 0.125");
  EXPECT_TRUE(contains(outcome.output, "--train.lr 0.125")) << outcome.output;
  EXPECT_FALSE(contains(outcome.output, "--data.")) << outcome.output;
  EXPECT_EQ(run(folder.path(), "tightloop config --section nothing").exit_code, 2);
}

TEST(TokenizerVerb, TrainEncodeDecode) {
  const TempFolder folder;
  write_file_whole(folder / "a.txt",
                   std::string("the cat sat on the mat; ") + "the hat that the cat had sat on the mat.\n");
  ASSERT_EQ(run(folder.path(), "tightloop tokenizer train a.txt --vocab-size 270 --output tok").exit_code, 0);
  ASSERT_TRUE(fs::exists(folder / "tok/tokenizer.json"));
  const std::string again = "tightloop tokenizer train a.txt --vocab-size 280 --output tok ";
  const auto refused = run(folder.path(), again);
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_TRUE(contains(refused.output, "--overwrite")) << refused.output;
  EXPECT_EQ(run(folder.path(), again + "--overwrite").exit_code, 0);
  const auto ids =
      run(folder.path(),
          "printf 'the cat\\n\\n日本 🙂\\n' | tightloop tokenizer encode --tokenizer tok --lines");
  EXPECT_EQ(ids.exit_code, 0) << ids.output;
  EXPECT_EQ(std::ranges::count(ids.output, '\n'), 3) << ids.output;
  EXPECT_TRUE(contains(ids.output, "\n[]\n")) << ids.output;
  const auto back = run(folder.path(),
                        "printf 'the cat\\n\\n日本 🙂\\n' | tightloop tokenizer encode --tokenizer tok "
                        "--lines | tightloop tokenizer decode --tokenizer tok --lines");
  EXPECT_EQ(back.output, "the cat\n\n日本 🙂\n");
  EXPECT_EQ(
      run(folder.path(), "echo 'not json' | tightloop tokenizer decode --tokenizer tok --lines").exit_code,
      3);
  EXPECT_EQ(
      run(folder.path(), "echo '[999999]' | tightloop tokenizer decode --tokenizer tok --lines").exit_code,
      3);
}

TEST(EvalVerb, PrintsJson) {
  const TempFolder folder;
  ASSERT_EQ(run(folder.path(), "tightloop train " + tiny() + "--train.steps 4 --run.name a").exit_code, 0);
  const auto outcome = run(folder.path(), "tightloop eval --json 2>/dev/null");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(json.at("step"), 4);
  EXPECT_GT(json.at("loss").get<double>(), 0);
  EXPECT_EQ(json.at("asked"), 20);
  EXPECT_TRUE(json.at("by_task").contains("reverse"));
}

TEST(GenerateVerb, GreedyIsRepeatableAndReadsStandardInput) {
  const TempFolder folder;
  ASSERT_EQ(run(folder.path(), "tightloop train " + tiny() + "--train.steps 20 --run.name a").exit_code, 0);
  const auto one =
      run(folder.path(),
          "tightloop generate --prompt 'reverse abc =' --temperature 0 --max-tokens 5 2>/dev/null");
  const auto two = run(
      folder.path(), "echo 'reverse abc =' | tightloop generate --temperature 0 --max-tokens 5 2>/dev/null");
  EXPECT_EQ(one.exit_code, 0) << one.output;
  EXPECT_EQ(one.output, two.output);
  EXPECT_TRUE(one.output.starts_with("reverse abc =")) << one.output;
}

TEST(GenerateVerb, WithoutARunSaysSo) {
  const TempFolder folder;
  const auto outcome = run(folder.path(), "tightloop generate --prompt x");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_TRUE(contains(outcome.output, "--run")) << outcome.output;
}

TEST(BenchVerb, SaysNothingOfAGpuOnACpu) {
  const TempFolder folder;
  const auto outcome = run(folder.path(), "TIGHTLOOP_NO_CUDA=1 tightloop bench step " + tiny() + "--steps 3");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "waiting for data")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "\nattention: ") && contains(outcome.output, "causal by "))
      << outcome.output;
  EXPECT_FALSE(contains(outcome.output, "sync") || contains(outcome.output, "graphs")) << outcome.output;
}

TEST(BenchVerb, OperatorsAreTimed) {
  const TempFolder folder;
  const auto outcome =
      run(folder.path(), "tightloop bench ops --device cpu --only dropout --json 2>/dev/null");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output);
  ASSERT_EQ(json.at("ops").size(), 1u);
  EXPECT_GT(json.at("ops")[0].at("ms").get<double>(), 0);
  EXPECT_GT(json.at("ops")[0].at("ratio_to_aten").get<double>(), 0);
  EXPECT_NE(run(folder.path(), "tightloop bench ops --only nothing").exit_code, 0);
}

TEST(BenchVerb, PrintsJson) {
  const TempFolder folder;
  const auto outcome = run(folder.path(), "tightloop bench step " + tiny() + "--steps 3 --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output);
  EXPECT_GT(json.at("ms").get<double>(), 0);
  EXPECT_GT(json.at("tokens_s").get<double>(), 0);
  ASSERT_FALSE(json.at("attention").empty());
  EXPECT_FALSE(json["attention"][0]["by"].get<std::string>().empty()) << json["attention"];
  EXPECT_FALSE(fs::exists(folder / "runs"));
}

TEST(BenchVerb, ListsWhatTookLongestBesideTheTrace) {
  const TempFolder folder;
  const std::string command = "tightloop bench step " + tiny() + "--steps 2 --profile trace.json";
  const auto text = run(folder.path(), command);
  ASSERT_EQ(text.exit_code, 0) << text.output;
  EXPECT_TRUE(contains(text.output, "s a step, busy ")) << text.output;
  EXPECT_FALSE(nlohmann::json::parse(read_file(folder / "trace.json")).at("traceEvents").empty());
  const auto outcome = run(folder.path(), command + " --json 2> warnings");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto kernels = nlohmann::json::parse(outcome.output).at("kernels");
  ASSERT_GT(kernels.size(), 5u);
  for (size_t i = 0; i < kernels.size(); ++i) {
    EXPECT_GT(kernels[i].at("count").get<double>(), 0) << kernels[i];
    const size_t before = i > 0 ? i - 1 : 0;
    EXPECT_GE(kernels[before].at("ms").get<double>(), kernels[i].at("ms").get<double>()) << "largest first";
  }
}

TEST(DoctorVerb, PrintsTextAndJson) {
  const TempFolder folder;
  const auto text = run(folder.path(), "tightloop doctor");
  EXPECT_EQ(text.exit_code, 0) << text.output;
  EXPECT_TRUE(contains(text.output, "torch")) << text.output;
  const auto json = nlohmann::json::parse(run(folder.path(), "tightloop doctor --json").output);
  EXPECT_TRUE(json.is_object());
}

TEST(Device, AGpuThatIsNotThereIsExplained) {
  const TempFolder folder;
  const auto outcome = run(folder.path(), "export TIGHTLOOP_NO_CUDA=1; tightloop train " + tiny() +
                                              "--train.device cuda:0 --train.steps 1");
  EXPECT_EQ(outcome.exit_code, 5) << outcome.output;
}

}  // namespace
}  // namespace tightloop
