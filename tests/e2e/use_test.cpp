#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::contains;
using testing::run;
using testing::TempFolder;

nlohmann::json json_of(const testing::Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  return nlohmann::json::parse(outcome.output, nullptr, false);
}

// Two tiny runs that all tests here look at: one on text, and one on conversations with its own template.
class Use : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    std::string text, talk;
    for (int i = 0; i < 200; ++i) {
      text += "Document " + std::to_string(i) + " says that the cat sat on the mat.\n\n";
      talk += "{\"question\": \"What is " + std::to_string(i) + "?\", \"answer\": \"It is " +
              std::to_string(i) + ".\\n#### " + std::to_string(i % 10) + "\"}\n";
    }
    write_file_whole(*folder_ / "text.txt", text);
    write_file_whole(*folder_ / "talk.jsonl", talk);
    const std::string small =
        "--model.layers 1 --model.width 32 --model.heads 2 --train.device cpu --train.precision fp32 "
        "--tokenizer.vocab_size 300 --train.steps 12 --train.micro_batch 8 --train.lr 1e-2 ";
    const std::string config = "'" TIGHTLOOP_SOURCE_DIR "/configs/text.yaml' ";
    ok("tightloop train " + config + small + "--data.train text.txt --data.seq_len 48 --run.name text");
    ok("tightloop train " + config + small +
       "--data.source jsonl --data.train talk.jsonl --data.holdout 0.2 --data.rows pad --data.seq_len 64 "
       "--chat.form own --chat.user '<user>{content}' --chat.assistant '<bot>{content}<|endoftext|>' "
       "--chat.system '<sys>{content}' --run.name talk");
  }
  static void TearDownTestSuite() { delete folder_; }

  static testing::Outcome in(const std::string& command) { return run(folder_->path(), command); }
  static void ok(const std::string& command) {
    const auto outcome = in(command);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  }
  static TempFolder* folder_;
};

TempFolder* Use::folder_ = nullptr;

const std::string kSuites = TIGHTLOOP_SOURCE_DIR "/configs/suites/";

TEST_F(Use, ASuiteIsMeasured) {
  const auto json = json_of(in("tightloop eval --run runs/text --suite '" + kSuites +
                               "example.yaml' --json --details out.jsonl 2>log"));
  ASSERT_EQ(json["tasks"].size(), 4u) << json;
  double sum = 0;
  int64_t problems = 0;
  for (const auto& task : json["tasks"]) {
    const double accuracy = task["accuracy"], baseline = task["baseline"];
    EXPECT_GE(accuracy, 0);
    EXPECT_LE(accuracy, 1);
    EXPECT_EQ(task["shots"], 2);
    EXPECT_NEAR(task["centered"].get<double>(), (accuracy - baseline) / (1 - baseline), 1e-12);
    sum += task["centered"].get<double>(), problems += task["problems"].get<int64_t>();
  }
  EXPECT_NEAR(json["core"].get<double>(), sum / 4, 1e-12);
  EXPECT_EQ(std::ranges::count(read_file(*folder_ / "out.jsonl"), '\n'), problems);
  EXPECT_EQ(in("tightloop eval --run runs/text --suite '" + kSuites + "example.yaml' --details out.jsonl")
                .exit_code,
            2)
      << "the file is there already";
  const auto few = json_of(
      in("tightloop eval --run runs/text --suite '" + kSuites + "example.yaml' --json --limit 3 2>log"));
  for (const auto& task : few["tasks"]) EXPECT_EQ(task["problems"], 3);
  const auto table = in("tightloop eval --run runs/text --suite '" + kSuites + "example.yaml'");
  EXPECT_TRUE(contains(table.output, "capitals") && contains(table.output, "CORE")) << table.output;
}

TEST_F(Use, ChatTasksOfASuiteAreAskedInTheRunsTemplate) {
  const auto json =
      json_of(in("tightloop eval --run runs/talk --suite '" + kSuites + "chat.yaml' --json 2>log"));
  EXPECT_EQ(json["tasks"].size(), 3u) << json;
}

TEST_F(Use, ProgramsOfAModelAreRunByANamedPythonAlone) {
  const std::string command = "tightloop eval --run runs/talk --suite '" + kSuites + "code.yaml'";
  const auto refused = in(command);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(contains(refused.output, "--python")) << refused.output;
  EXPECT_EQ(in(command + " --python /nowhere/python").exit_code, 2);
  const auto json = json_of(in(command + " --json --python /usr/bin/python3 2>log"));
  EXPECT_EQ(json["tasks"][0]["problems"], 3) << json;
}

TEST_F(Use, ASuiteThatIsWrongIsASentence) {
  write_file_whole(*folder_ / "wrong.yaml", "tasks: [{name: a, kin: schema, data: x.jsonl}]\n");
  const auto wrong = in("tightloop eval --run runs/text --suite wrong.yaml");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_TRUE(contains(wrong.output, "Did you mean 'kind'?")) << wrong.output;
  EXPECT_EQ(in("tightloop eval --run runs/text --suite none.yaml").exit_code, 2);
}

TEST_F(Use, ASuiteIsMeasuredDuringTraining) {
  const std::string train =
      "tightloop train '" TIGHTLOOP_SOURCE_DIR
      "/configs/text.yaml' --data.train text.txt --data.seq_len 48 --model.layers 1 --model.width 32 "
      "--model.heads 2 --train.device cpu --train.precision fp32 --tokenizer.vocab_size 300 --train.steps 6 "
      "--train.micro_batch 8 ";
  const auto cores = [&](const std::string& name) {
    std::map<int64_t, double> found;
    std::istringstream lines(read_file(*folder_ / "runs" / name / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const auto json = nlohmann::json::parse(line); json.contains("eval/core")) {
        found[json["global_step"].get<int64_t>()] = json["eval/core"].get<double>();
        EXPECT_TRUE(json.contains("eval/suite/capitals")) << line;
      }
    return found;
  };
  ok(train + "--run.name with_suite --eval.suite '" + kSuites + "example.yaml' --eval.suite_steps 4");
  const auto found = cores("with_suite");
  ASSERT_EQ(found.size(), 2u);
  const auto json =
      json_of(in("tightloop eval --run runs/with_suite --suite '" + kSuites + "example.yaml' --json 2>log"));
  EXPECT_NEAR(found.at(6), json["core"].get<double>(), 1e-9);
  ok(train + "--run.name without_suite");
  const auto last_loss = [&](const std::string& name) {
    return json_of(in("tightloop eval --run runs/" + name + " --json"))["loss"].get<double>();
  };
  EXPECT_EQ(last_loss("with_suite"), last_loss("without_suite")) << "measuring changes nothing";

  // What is wrong with a problem is found before training begins.
  write_file_whole(*folder_ / "bad.jsonl", "{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"gold\": 7}\n");
  write_file_whole(*folder_ / "bad.yaml", "tasks: [{name: bad, data: bad.jsonl}]\n");
  const auto refused = in(train + "--run.name refused_suite --eval.suite bad.yaml");
  EXPECT_EQ(refused.exit_code, 3) << refused.output;
  EXPECT_TRUE(contains(refused.output, "'bad.jsonl', line 1 (task 'bad')")) << refused.output;
  // What only the model can tell, too.
  std::string words;
  for (int i = 0; i < 9000; ++i) words += "q ";
  write_file_whole(*folder_ / "bad.jsonl", "{\"question\": \"" + words + "\", \"answer\": \"a\"}\n");
  write_file_whole(*folder_ / "bad.yaml", "tasks: [{name: bad, kind: generation, data: bad.jsonl}]\n");
  const auto longer = in(train + "--run.name bad_suite --eval.suite bad.yaml");
  EXPECT_EQ(longer.exit_code, 3) << longer.output;
  EXPECT_TRUE(contains(longer.output, "the prompt has 18000 tokens")) << longer.output;
  EXPECT_FALSE(fs::exists(*folder_ / "runs/bad_suite/checkpoints"));
  // What is not there is found before training begins.
  EXPECT_EQ(in(train + "--run.name no_suite --eval.suite none.yaml").exit_code, 2);
  EXPECT_FALSE(fs::exists(*folder_ / "runs/no_suite"));
}

TEST_F(Use, DataThatHasChangedSinceTrainingIsSaid) {
  const std::string words = "The data is not what the run was trained on";
  const auto own = json_of(in("tightloop eval --run runs/text --json"));
  EXPECT_GT(own["accuracy"], 0) << own;
  EXPECT_LT(own["accuracy"], 1) << own;
  const std::string text = read_file(*folder_ / "text.txt");
  write_file_whole(*folder_ / "other.txt", text);
  write_file_whole(*folder_ / "text.txt", text + "Document 200 came later.\n\n");
  for (const char* verb :
       {"eval --run runs/text", "inspect loss --run runs/text", "inspect batch --run runs/text"}) {
    const auto outcome = in(std::string("tightloop ") + verb);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, words)) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "'text.txt': was ")) << outcome.output;
  }
  const auto named = in("tightloop eval --run runs/text --data.val other.txt");
  EXPECT_FALSE(contains(named.output, words)) << "other data was asked for\n" << named.output;
  const auto moved = in("tightloop eval --run runs/text --data.train other.txt");
  EXPECT_FALSE(contains(moved.output, words)) << "the same bytes\n" << moved.output;
  write_file_whole(*folder_ / "text.txt", text);
}

TEST_F(Use, HelpNamesTheSettingsThatEvalTakes) {
  const auto help = in("tightloop eval --help");
  for (const char* setting : {"--data.val", "--data.documents", "--section.key"})
    EXPECT_TRUE(contains(help.output, setting)) << help.output;
}

TEST_F(Use, GenerateInBatchesIsTheSameAsAlone) {
  write_file_whole(*folder_ / "prompts.txt", "Document\n\nThe cat sat on\nthe\n");
  const auto many =
      json_of(in("tightloop generate --run runs/text --prompts prompts.txt --n 2 --max-tokens 8 --json"));
  ASSERT_EQ(many["results"].size(), 8u);
  EXPECT_GT(many["step"], 0) << many["step"];
  EXPECT_EQ(many["results"][2]["prompt"], "") << "an empty line begins a document";
  EXPECT_EQ(many["results"][4]["prompt"], "The cat sat on");
  EXPECT_NE(many["results"][4]["text"], many["results"][5]["text"]);
  const auto one = json_of(
      in("tightloop generate --run runs/text --prompt 'The cat sat on' --max-tokens 8 --json --batch 1"));
  EXPECT_EQ(one["results"][0]["ids"], many["results"][4]["ids"]);
  EXPECT_GT(one["tokens_per_second"].get<double>(), 0);
  const auto text = in("tightloop generate --run runs/text --prompts prompts.txt --max-tokens 8");
  EXPECT_TRUE(contains(text.output, "--- prompt 3, sample 1\nThe cat sat on")) << text.output;
  // The second of two equal prompts goes on with the samples of the first.
  const auto twice =
      json_of(in("printf 'the\nDocument\nthe\n' | tightloop generate --run runs/text --prompts - "
                 "--max-tokens 8 --json"));
  const auto both =
      json_of(in("tightloop generate --run runs/text --prompt the --n 2 --max-tokens 8 --json"));
  EXPECT_EQ(twice["results"][0]["ids"], both["results"][0]["ids"]);
  EXPECT_EQ(twice["results"][2]["ids"], both["results"][1]["ids"]);
  EXPECT_NE(twice["results"][2]["ids"], twice["results"][0]["ids"]);
  EXPECT_EQ(twice["results"][2]["sample"], 0);
}

TEST_F(Use, GenerateStopsAtAText) {
  const std::string base = "tightloop generate --run runs/text --prompt 'Document 1' --temperature 0 --json ";
  const auto free = json_of(in(base + "--max-tokens 20"))["results"][0]["text"].get<std::string>();
  ASSERT_GT(free.size(), 6u);
  const std::string stop = free.substr(3, 3);
  write_file_whole(*folder_ / "stop", stop);
  const auto stopped =
      json_of(in(base + "--max-tokens 20 --stop \"$(cat stop)\" --stop never"))["results"][0];
  EXPECT_EQ(stopped["text"], free.substr(0, free.find(stop)));
  EXPECT_EQ(stopped["end"], "stop");
}

TEST_F(Use, GenerateSaysWhenAModelWantsAConversation) {
  const auto first = [&](const std::string& run) {
    const std::string base = "tightloop generate --run " + run + " --prompt 'What is 3?' --temperature 0 ";
    const auto free = json_of(in(base + "--max-tokens 8 --json"))["results"][0]["text"].get<std::string>();
    write_file_whole(*folder_ / "stop", free.substr(free.find_first_not_of(" \n"), 1));
    return in(base + "--stop \"$(cat stop)\"").output;
  };
  EXPECT_TRUE(contains(first("talk"), "tightloop chat --run runs/talk"));
  EXPECT_FALSE(contains(first("text"), "tightloop chat"));
}

TEST_F(Use, ModelShowAndFitTakeWhatIsThere) {
  ok("tightloop export --run runs/text --to hf");
  const auto run_size = json_of(in("tightloop model show runs/text --json"));
  for (const std::string what : {"text", "runs/text/checkpoints/step-00000012", "hf"}) {
    const auto size = json_of(in("tightloop model show " + what + " --json"));
    EXPECT_EQ(size["parameters"], run_size["parameters"]) << what;
    EXPECT_EQ(size["vocab_size"], run_size["vocab_size"]) << what;
    EXPECT_EQ(json_of(in("tightloop fit " + what + " --json"))["parameters"], size["parameters"]["total"])
        << what;
  }
  EXPECT_EQ(json_of(in("tightloop model show --run text --json")), run_size);
  EXPECT_EQ(in("tightloop model show").exit_code, 2);
  EXPECT_EQ(json_of(in("tightloop fit runs/text --json"))["predicted_bytes"]["total"].get<int64_t>(),
            run_size["training_bytes"]["total"].get<int64_t>());
}

TEST_F(Use, ARunStandsForItsTokenizer) {
  const std::string encode = "echo the cat | tightloop tokenizer encode --tokenizer ";
  const auto ids = in(encode + "runs/text");
  EXPECT_EQ(ids.exit_code, 0) << ids.output;
  EXPECT_EQ(ids.output, in(encode + "runs/text/tokenizer").output);
}

TEST_F(Use, AdaptersAreCounted) {
  const auto outcome =
      in("tightloop train '" TIGHTLOOP_SOURCE_DIR
         "/configs/finetune.yaml' --train.init_from runs/text --data.train talk.jsonl "
         "--train.device cpu --lora.rank 4 --train.steps 1 --run.name adapted; rm -r runs/adapted");
  EXPECT_TRUE(contains(outcome.output, " parameters, 768 of adapters to train;")) << outcome.output;
}

TEST_F(Use, GenerateTakesIds) {
  const auto ids =
      json_of(in("tightloop generate --run runs/text --ids '[68, 111, 99]' --max-tokens 3 --json"));
  EXPECT_EQ(ids["results"][0]["prompt_tokens"], 3);
  EXPECT_EQ(ids["results"][0]["ids"].size(), 3u);
}

TEST_F(Use, GenerateRefusesWhatMakesNoSense) {
  const std::string base = "tightloop generate --run runs/text ";
  EXPECT_TRUE(contains(in(base + "--prompt a --n 2 --temperature 0").output, "would be the same"));
  EXPECT_EQ(in(base + "--prompt a --n 2 --temperature 0").exit_code, 2);
  EXPECT_EQ(in(base + "--prompt a --ids 1").exit_code, 2);
  EXPECT_EQ(in(base + "--prompt a --stop ''").exit_code, 2);
  EXPECT_EQ(in(base + "--ids 1,x").exit_code, 2);
  EXPECT_EQ(in(base + "--ids 99999").exit_code, 3);
  EXPECT_EQ(in(base + "--prompts absent.txt").exit_code, 3);
  EXPECT_EQ(in(base + "--prompt a --top-p 2").exit_code, 2);
  // An empty prompt begins a document; one longer than the rows of training is said to be.
  EXPECT_EQ(in(base + "--max-tokens 2 --prompt ''").exit_code, 0);
  const auto nothing = in(base + "--max-tokens 2 < /dev/null");
  EXPECT_EQ(nothing.exit_code, 3);
  EXPECT_TRUE(contains(nothing.output, "standard input is empty")) << nothing.output;
  const auto longer = in(base + "--max-tokens 2 --prompt \"$(printf 'cat %.0s' $(seq 100))\"");
  EXPECT_EQ(longer.exit_code, 0);
  EXPECT_TRUE(
      contains(longer.output, "A prompt is longer than the 48 tokens that the model was trained on: "))
      << longer.output;
  EXPECT_EQ(in(base + "--max-tokens 2 --prompt \"$(printf '\\377\\376')\"").exit_code, 0) << "not UTF-8";
  in("cp -r runs/text runs/bare && rm -r runs/bare/checkpoints/*");
  const auto bare = in("tightloop generate --run runs/bare --prompt a");
  EXPECT_EQ(bare.exit_code, 4) << bare.output;
  in("rm -r runs/bare");
}

TEST_F(Use, EvalMeasuresAText) {
  write_file_whole(*folder_ / "short.txt", "The cat sat.");
  const auto json = json_of(in("tightloop eval --model runs/text --input short.txt --json"));
  EXPECT_EQ(json["bytes"], 12);
  const double sum = json["loss"].get<double>() * json["tokens"].get<double>();
  EXPECT_NEAR(json["bits_per_byte"].get<double>(), sum / std::log(2.0) / 12, 1e-9);
  EXPECT_NEAR(json["perplexity"].get<double>(), std::exp(json["loss"].get<double>()), 1e-6);
  // Longer than the context: windows.
  const auto longer = json_of(in("tightloop eval --model runs/text --input text.txt --json"));
  const auto other =
      json_of(in("tightloop eval --model runs/text --input text.txt --stride 8 --batch 3 --json"));
  EXPECT_EQ(longer["tokens"], other["tokens"]);
  EXPECT_NEAR(longer["loss"].get<double>(), other["loss"].get<double>(), 0.2);

  write_file_whole(*folder_ / "empty.txt", "");
  EXPECT_EQ(in("tightloop eval --model runs/text --input empty.txt").exit_code, 3);
  EXPECT_EQ(in("tightloop eval --model runs/text --input absent.txt").exit_code, 3);
  const auto packed =
      json_of(in("gzip -k text.txt; tightloop eval --model runs/text --input text.txt.gz --weights int8 "
                 "--json 2>log; rm text.txt.gz"));
  EXPECT_EQ(packed["bytes"], longer["bytes"]);
  EXPECT_EQ(packed["documents"], longer["documents"]);
  EXPECT_EQ(packed["weights"], "int8");
  EXPECT_EQ(longer["read_as"], "documents");
  const auto piped = json_of(in("cat short.txt | tightloop eval --model runs/text --input - --json"));
  EXPECT_EQ(piped["bytes"], 12);
  EXPECT_EQ(piped["read_as"], "text");
}

TEST_F(Use, EvalReadsATextAsTrainingDoes) {
  const std::string base = "tightloop eval --run runs/text --input text.txt ";
  const auto cut = json_of(in(base + "--json")), whole = json_of(in(base + "--data.documents file --json"));
  EXPECT_EQ(cut["documents"], 200);
  EXPECT_EQ(whole["documents"], 1);
  EXPECT_EQ(cut["bytes"], whole["bytes"]);
  EXPECT_LT(cut["bits_per_byte"].get<double>(), whole["bits_per_byte"].get<double>());
  EXPECT_TRUE(contains(in(base).output, "200 documents (data.documents blank_line)"));
  const auto held_out = json_of(in("tightloop eval --run runs/text --json"));
  EXPECT_NEAR(cut["loss"].get<double>(), held_out["loss"].get<double>(), 0.3);
  const double sum = held_out["loss"].get<double>() * held_out["tokens"].get<double>();
  EXPECT_NEAR(held_out["bits_per_byte"].get<double>() * held_out["bytes"].get<double>(), sum / std::log(2.0),
              1e-6);
  // What learned no text reads it as it is; records of JSON are said to be no text.
  EXPECT_FALSE(json_of(in("tightloop eval --run runs/talk --input text.txt --json")).contains("documents"));
  const auto records = in("tightloop eval --run runs/talk --input talk.jsonl");
  EXPECT_TRUE(contains(records.output, "--questions talk.jsonl")) << records.output;
  EXPECT_TRUE(contains(records.output, "read as one text")) << records.output;
}

TEST_F(Use, EvalAsksHeldOutQuestions) {
  const auto json = json_of(in("tightloop eval --run runs/talk --limit 7 --json"));
  EXPECT_EQ(json["asked"], 7);
  EXPECT_TRUE(json.contains("by_task"));
  EXPECT_GT(json["loss"].get<double>(), 0);
  write_file_whole(*folder_ / "exam.jsonl",
                   "{\"question\": \"What is 3?\", \"answer\": \"#### 3\", \"task\": \"numbers\"}\n"
                   "{\"question\": \"Which?\", \"choices\": [\"a\", \"b\"], \"answer\": \"B\"}\n");
  const auto exam =
      json_of(in("tightloop eval --run runs/talk --questions exam.jsonl --samples 3 --max-tokens 10 --json"));
  EXPECT_EQ(exam["asked"], 2);
  EXPECT_TRUE(exam["by_task"].contains("numbers"));
  EXPECT_TRUE(exam["by_task"].contains("exam"));
  EXPECT_EQ(exam["samples"], 3);
  EXPECT_EQ(in("tightloop eval --run runs/talk --questions text.txt").exit_code, 3);
  const auto refused =
      in("tightloop eval --run runs/talk --questions exam.jsonl --template-kwargs '{\"mood\": 1}'");
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_TRUE(contains(refused.output, "this model's chat form does not read it")) << refused.output;
}

TEST_F(Use, EvalSaysWhichQuestionsItAsks) {
  const auto outcome = in("tightloop eval --run runs/talk --limit 3 2>/dev/null");
  EXPECT_TRUE(contains(outcome.output, "asked are 3 of ")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "answers of at most 16 tokens, or with '####'")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "? -> ")) << outcome.output;
  EXPECT_FALSE(contains(outcome.output, "<user>")) << outcome.output;
  EXPECT_FALSE(contains(outcome.output, "<bot>")) << outcome.output;
}

TEST_F(Use, WithoutARunTheNewestIsNamed) {
  EXPECT_TRUE(contains(in("tightloop generate --prompt a --max-tokens 2").output, "The newest run: runs/"));
  EXPECT_FALSE(
      contains(in("tightloop generate --prompt a --max-tokens 2 --json 2>/dev/null").output, "newest"));
  EXPECT_FALSE(contains(in("tightloop generate --run text --prompt a --max-tokens 2").output, "newest"));
}

TEST_F(Use, ChatTakesLinesFromAPipe) {
  const auto talk =
      in("printf 'What is 3?\\n\\n/history\\n/save t.jsonl\\n/reset\\n/nonsense\\nWhat is 3?' | "
         "tightloop chat --run runs/talk --temperature 0 --max-tokens 12");
  EXPECT_EQ(talk.exit_code, 0) << talk.output;
  EXPECT_FALSE(contains(talk.output, "\033")) << "no colour in a pipe";
  EXPECT_TRUE(contains(talk.output, "> What is 3?")) << talk.output;
  EXPECT_TRUE(contains(talk.output, "no command /nonsense")) << talk.output;
  // The same question in a new conversation gets the same answer.
  const std::string answer = talk.output.substr(0, talk.output.find("> What"));
  EXPECT_TRUE(talk.output.ends_with(answer)) << talk.output;
  const auto saved = nlohmann::json::parse(read_file(*folder_ / "t.jsonl"));
  EXPECT_EQ(saved["messages"][0]["content"], "What is 3?");
  in("printf 'What is 4?\\n/save two.jsonl\\n/reset\\nWhat is 5?\\n/save two.jsonl' | tightloop chat --run "
     "runs/talk --max-tokens 2");
  std::istringstream lines(read_file(*folder_ / "two.jsonl"));
  for (const char* question : {"What is 4?", "What is 5?"}) {
    std::string line;
    std::getline(lines, line);
    EXPECT_EQ(nlohmann::json::parse(line)["messages"][0]["content"], question);
  }
  EXPECT_EQ(in("tightloop chat --run runs/talk < /dev/null").exit_code, 0);
  EXPECT_EQ(in("echo /quit | tightloop chat --run runs/talk").exit_code, 0);
}

TEST_F(Use, ChatAtATerminalHasAHistory) {
  if (in("command -v script").exit_code != 0) GTEST_SKIP() << "not here: script";
  // The arrow key brings the first question back; Ctrl-C and Ctrl-D at the prompt.
  const auto talk =
      in("(sleep 1; printf 'What is 4?\\r'; sleep 1; printf '\\033[A\\r'; sleep 1; printf "
         "'abc\\003/history\\r'; "
         "sleep 0.5; printf '\\004') | TERM=xterm script -qec \"'" TIGHTLOOP_BINARY_DIR
         "/tightloop' chat --run runs/talk --temperature 0 --max-tokens 5\" /dev/null");
  EXPECT_EQ(talk.exit_code, 0) << talk.output;
  const auto history = talk.output.rfind("/history");
  ASSERT_NE(history, std::string::npos) << talk.output;
  size_t asked = 0;
  for (size_t at = history; (at = talk.output.find("What is 4?", at)) != std::string::npos; ++at) ++asked;
  EXPECT_EQ(asked, 2u) << talk.output;
  EXPECT_TRUE(contains(talk.output, "Ctrl-D ends")) << talk.output;
}

TEST_F(Use, ChatNeedsATemplateThatTheTokenizerKnows) {
  ok("tightloop train '" TIGHTLOOP_SOURCE_DIR
     "/configs/text.yaml' --model.layers 1 --model.width 32 --model.heads 2 --train.device cpu "
     "--train.precision fp32 --tokenizer.vocab_size 257 --train.steps 1 --data.train text.txt --run.name "
     "bytes");
  const auto wrong = in("echo hello | tightloop chat --run runs/bytes");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_TRUE(contains(wrong.output, "<|im_start|>")) << wrong.output;
  in("rm -r runs/bytes");
}

TEST_F(Use, ChatWithAModelOfTextSaysThatItSawNoConversation) {
  const auto outcome = in("echo hello | tightloop chat --run runs/text --max-tokens 2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "has seen no conversation")) << outcome.output;
}

TEST_F(Use, CtrlCStopsTheAnswerNotTheProgram) {
  // The pipe stays open after the first question; the interrupt comes while it is answered or waited for.
  const auto talk = in(
      "mkfifo pipe; (printf 'What is 3?\\n'; sleep 2; printf '/history\\n') > pipe & '" TIGHTLOOP_BINARY_DIR
      "/tightloop' chat --run runs/talk --max-tokens 100000 --temperature 3 < pipe & chat=$!; "
      "sleep 1; kill -INT $chat; wait $chat; echo code $?");
  EXPECT_TRUE(contains(talk.output, "> What is 3?")) << talk.output;
  EXPECT_TRUE(contains(talk.output, "code 0")) << talk.output;
}

TEST_F(Use, InspectLossAddsUpToTheRowsLoss) {
  const auto json = json_of(in("tightloop inspect loss --run runs/talk --row 1 --json"));
  double sum = 0;
  int64_t learned = 0;
  for (const auto& token : json["tokens"]) {
    if (token["mask"] == 1) sum += token["loss"].get<double>(), ++learned;
    EXPECT_GE(token["rank"].get<int64_t>(), 1);
  }
  EXPECT_EQ(learned, json["supervised"]);
  EXPECT_GT(learned, 0);
  EXPECT_LT(learned, json["length"].get<int64_t>());
  EXPECT_NEAR(json["loss"].get<double>(), sum / static_cast<double>(learned), 1e-9);
  const auto table = in("tightloop inspect loss --run runs/talk --row 1 --train");
  EXPECT_TRUE(contains(table.output, "rank")) << table.output;
  // Tokens that are only read are dots; how high the bars behind them are depends on the weights.
  const std::vector<std::string> bars{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  EXPECT_TRUE(std::ranges::any_of(bars, [&](const auto& bar) { return contains(table.output, ".." + bar); }))
      << table.output;
  EXPECT_EQ(in("tightloop inspect loss --run runs/talk --row 100000").exit_code, 2);
}

TEST_F(Use, InspectBatchShowsShapesAndRows) {
  const auto json = json_of(in("tightloop inspect batch --run runs/talk --json"));
  EXPECT_EQ(json["rows"], 8);
  EXPECT_EQ(json["length"], 63);
  EXPECT_GT(json["padding_share"].get<double>(), 0);
  const auto text = in("tightloop inspect batch runs/talk/config.yaml --rows 1");
  EXPECT_EQ(text.exit_code, 0) << text.output;
  EXPECT_TRUE(contains(text.output, "8 rows x 63 tokens")) << text.output;
  EXPECT_TRUE(contains(text.output, "[It is ")) << text.output;
}

TEST_F(Use, BenchGenerate) {
  const auto json = json_of(
      in("tightloop bench generate --run runs/text --prompt-tokens 8 --new-tokens 4 --batch 2 --json"));
  EXPECT_GT(json["tokens_s"].get<double>(), 0);
}

}  // namespace
}  // namespace tightloop
