#include "infer/suite/suite.h"

#include <cmath>

#include "core/files.h"
#include "data/byte_tokenizer.h"
#include "infer/generate.h"
#include "infer/model.h"
#include "infer/suite/suite_prompts.h"
#include "infer/text_stream.h"
#include "infer/thoughts.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
using testing::error_of;
using testing::small_model;
using testing::TempFolder;

class SuiteFiles : public ::testing::Test {
 protected:
  TempFolder folder;

  fs::path write(const std::string& yaml, const std::string& problems,
                 const std::string& name = "problems.jsonl") {
    write_file_whole(folder.path() / name, problems);
    write_file_whole(folder.path() / "suite.yaml", yaml);
    return folder.path() / "suite.yaml";
  }
  static std::string many(int count) {
    std::string lines;
    for (int i = 0; i < count; ++i)
      lines += fmt::format(R"({{"query":"q{}","choices":["a","b"],"gold":{}}})", i, i % 2) + "\n";
    return lines;
  }
};

TEST_F(SuiteFiles, DefaultsGoForEveryTask) {
  const auto file = write(
      "suite: {shots: 2, seed: -1}\n"
      "tasks:\n"
      "- {name: one, kind: multiple_choice, data: problems.jsonl, baseline: 0.5, delimiter: \"\\n\"}\n"
      "- {name: two, kind: multiple_choice, data: problems.jsonl, shots: 0, max_problems: 3}\n",
      many(6));
  const auto suite = read_suite(file);
  EXPECT_EQ(suite.name, "suite");
  ASSERT_EQ(suite.tasks.size(), 2u);
  EXPECT_EQ(suite.tasks[0].shots, 2);
  EXPECT_EQ(suite.tasks[0].delimiter, "\n");
  EXPECT_EQ(suite.tasks[0].problems.size(), 6u);
  EXPECT_EQ(suite.tasks[1].shots, 0);
  EXPECT_EQ(suite.tasks[1].problems.size(), 3u);
  EXPECT_EQ(suite.tasks[1].problems[0].at("query"), "q0") << "seed -1: the file's order";
  EXPECT_EQ(read_suite(file, 4).tasks[0].problems.size(), 4u);
}

TEST_F(SuiteFiles, AProblemIsNoExampleForItself) {
  const auto suite = read_suite(write("tasks: [{name: t, data: problems.jsonl, shots: 3}]\n", many(5)));
  for (size_t i = 0; i < 5; ++i) {
    const auto examples = suite.tasks[0].examples_for(i);
    EXPECT_EQ(examples.size(), 3u);
    EXPECT_EQ(std::ranges::count(examples, i), 0);
    EXPECT_LT(std::ranges::max(examples), 5u);
  }
}

TEST_F(SuiteFiles, WhatIsWrongIsNamed) {
  const auto says = [&](ExitCode code, const std::string& yaml, const std::string& problems,
                        const std::string& wanted) {
    const auto file = write(yaml, problems);
    const auto message = error_of(code, [&] { read_suite(file); });
    EXPECT_NE(message.find(wanted), std::string::npos) << message;
  };
  const std::string good = "tasks: [{name: t, data: problems.jsonl}]\n";
  says(ExitCode::kUsage, "tasks: [{name: t, dat: problems.jsonl}]", many(2), "Did you mean 'data'?");
  says(ExitCode::kUsage, "tasks: [{name: t, kind: guess, data: problems.jsonl}]", many(2), "multiple_choice");
  says(ExitCode::kUsage, "tasks: []", many(2), "lists no task");
  says(ExitCode::kUsage, "task: []", many(2), "no section 'task'");
  says(ExitCode::kUsage, "name: mine\n" + good, many(2), "no section 'name'; a suite has a list `tasks`");
  says(ExitCode::kUsage, "tasks: mine\n", many(2), "line 1: `tasks` must hold 'key: value' lines, a list");
  says(ExitCode::kUsage, "tasks: [{name: t, data: problems.jsonl}, {name: t, data: problems.jsonl}]", many(2),
       "two tasks");
  says(ExitCode::kUsage, "tasks: [{name: t, data: problems.jsonl, samples: 3}]", many(2), "the same");
  says(ExitCode::kUsage, "tasks: {{", many(2), "not YAML");
  says(ExitCode::kData, good, "", "holds no problem");
  says(ExitCode::kData, good, "[1]\n", "line 1 is not a JSON object");
  says(ExitCode::kData, "tasks: [{name: t, data: problems.jsonl, shots: 2}]", many(2), "too few");
  says(ExitCode::kData, "tasks: [{name: t, data: none.jsonl}]", many(2), "none.jsonl");
}

// Before anything is asked, and by the line of the file, whatever the shuffle made of the order.
TEST_F(SuiteFiles, AProblemThatCannotBeAskedIsNamedByItsLine) {
  const auto says = [&](const std::string& kind, const std::string& bad, const std::string& wanted) {
    const std::string good = fmt::format(
        R"({{"query":"q","choices":["a","b"],"gold":1,"question":"q","answer":"{}","context":"c",)"
        R"("continuation":"d","context_options":["e","f"],"prompt":"p","test":"t","entry_point":"x"}})",
        kind == "chat_generation" ? "#### 7" : "A");
    const auto file = write("tasks: [{name: t, data: problems.jsonl, kind: " + kind + "}]\n",
                            good + "\n" + good + "\n\n" + bad + "\n" + good + "\n" + good + "\n");
    const auto message = error_of(ExitCode::kData, [&] { read_suite(file); });
    EXPECT_NE(message.find("problems.jsonl', line 4 (task 't')"), std::string::npos) << message;
    EXPECT_NE(message.find(wanted), std::string::npos) << message;
  };
  says("multiple_choice", R"({"query":"q","choices":["a","b"],"gold":2})", "from 0 to 1");
  says("multiple_choice", R"({"query":"q","gold":0})", "'choices'");
  says("schema", R"({"context_options":[],"gold":0})", "'context_options'");
  says("language_modeling", R"({"context":"c"})", "'continuation'");
  says("generation", R"({"question":"q"})", "'answer'");
  says("chat_choice", R"({"question":"q","choices":["a","b"],"answer":7})", "");
  says("chat_generation", R"({"question":"q","answer":"no number"})", "no number in 'answer'");
  says("code", R"({"prompt":"p","test":"t"})", "'entry_point'");
  says("code, shots: 1", R"({"prompt":"p","test":"t","entry_point":"x"})", "'answer'");
}

// A byte a token: "1" is one, "10" is none.
TEST_F(SuiteFiles, LabelsOfSeveralTokensAreNamedBeforeAnythingIsAsked) {
  const auto suite =
      read_suite(write("tasks: [{name: t, kind: chat_choice, data: problems.jsonl}]\n",
                       R"({"question":"q","choices":{"text":["a","b"],"label":["1","10"]},"answer":"1"})"));
  const auto model = small_model(259);
  const ByteTokenizer tokenizer{{"<|im_start|>", "<|im_end|>"}};
  const ChatTemplate chat({}, tokenizer);
  const auto message = error_of(ExitCode::kData, [&] { check_problems(suite, {*model, tokenizer, &chat}); });
  EXPECT_NE(message.find("line 1"), std::string::npos) << message;
  EXPECT_NE(message.find("'10' has 2 tokens"), std::string::npos) << message;
}

TEST_F(SuiteFiles, APromptThatIsTooLongIsNamedByItsLine) {
  const auto model = small_model(259);
  const ByteTokenizer tokenizer{{"<|im_start|>", "<|im_end|>"}};
  const ChatTemplate chat({}, tokenizer);
  const auto suite = read_suite(
      write("tasks: [{name: t, kind: chat_generation, match: exact, data: problems.jsonl, seed: -1}]\n",
            R"({"question":"q","answer":"a"})" +
                ("\n" + (R"({"question":")" + std::string(5000, 'q')) + R"(","answer":"a"})")));
  const auto message = error_of(ExitCode::kData, [&] { check_problems(suite, {*model, tokenizer, &chat}); });
  EXPECT_NE(message.find("line 2 (task 't'): the prompt has 50"), std::string::npos) << message;
}

// "cat" has nothing that "catfish" does not begin with.
TEST_F(SuiteFiles, AChoiceThatOthersBeginWithIsScoredInFull) {
  const auto model = small_model(257);
  const ByteTokenizer tokenizer;
  const std::string problems = R"({"query":"q","choices":["cat","catfish"],"gold":0})";
  const auto losses_by = [&](const std::string& norm) {
    const auto suite =
        read_suite(write("tasks: [{name: t, data: problems.jsonl, normalize: " + norm + "}]\n", problems));
    return run_suite(suite, {*model, tokenizer}, {.progress = false}).tasks[0].losses[0];
  };
  const auto sums = losses_by("none"), by_bytes = losses_by("bytes");
  EXPECT_GT(sums[0], 0);
  EXPECT_GT(sums[1], sums[0]) << "its words go on";
  EXPECT_NEAR(by_bytes[0], sums[0] / 3, 1e-9);
  EXPECT_NEAR(by_bytes[1], sums[1] / 7, 1e-9);
}

TEST_F(SuiteFiles, ChatsAndProgramsNeedWhatTheyNeed) {
  const auto model = small_model(259);
  const ByteTokenizer plain, with_chat{{"<|im_start|>", "<|im_end|>"}};
  const auto suite = read_suite(write("tasks: [{name: t, kind: code, data: problems.jsonl}]\n",
                                      R"({"prompt":"def f():","test":"","entry_point":"f"})"));
  auto message = error_of(ExitCode::kUsage, [&] { run_suite(suite, {*model, plain}, {}); });
  EXPECT_NE(message.find("conversation"), std::string::npos) << message;
  const ChatTemplate chat({}, with_chat);
  message = error_of(ExitCode::kUsage, [&] { run_suite(suite, {*model, with_chat, &chat}, {}); });
  EXPECT_NE(message.find("--python"), std::string::npos) << message;
}

// Text by text in a pass of its own, without and with normalisation.
TEST_F(SuiteFiles, NormalisationChangesWhatChoicesAreComparedBy) {
  const auto model = small_model(257);
  const ByteTokenizer tokenizer;
  const SuiteModel asked{*model, tokenizer};
  const std::string problems = R"({"query":"abc","choices":["xé","yyyy"],"gold":0})";
  std::map<std::string, std::vector<double>> losses;
  for (const std::string norm : {"tokens", "bytes", "none"}) {
    const auto suite =
        read_suite(write("tasks: [{name: t, data: problems.jsonl, normalize: " + norm + "}]\n", problems));
    losses[norm] = run_suite(suite, asked, {.progress = false}).tasks[0].losses[0];
  }
  // A byte a token; the delimiter is common to both.
  for (size_t i : {0, 1}) {
    const double length = i == 0 ? 3 : 4;
    EXPECT_NEAR(losses["none"][i], length * losses["tokens"][i], 1e-9);
    EXPECT_NEAR(losses["bytes"][i], losses["tokens"][i], 1e-9);
  }
  EXPECT_NE(losses["tokens"][0], losses["tokens"][1]);
}

TEST_F(SuiteFiles, GenerationIsRightWhereTheModelSaysIt) {
  const auto model = small_model(257);
  const ByteTokenizer tokenizer;
  const SuiteModel asked{*model, tokenizer, nullptr, {tokenizer.end_of_text()}};
  const std::string yaml =
      "tasks: [{name: t, kind: generation, data: problems.jsonl, max_tokens: 5, stop: [\"~~\"]}]\n";
  auto suite = read_suite(write(yaml, R"({"question":"abc","answer":"?"})"));
  const auto first = run_suite(suite, asked, {.progress = false}).tasks[0];
  EXPECT_EQ(first.right, std::vector<uint8_t>{0});
  ASSERT_FALSE(first.answers[0].empty());
  suite.tasks[0].problems[0]["answer"] = first.answers[0];
  EXPECT_EQ(run_suite(suite, asked, {.progress = false}).tasks[0].right, std::vector<uint8_t>{1});
}

// One of 32 samples says what is expected, or thinks it.
TEST_F(SuiteFiles, ThoughtsOfAChatAreKeptAndNotCompared) {
  const auto model = small_model(259);
  const ByteTokenizer tokenizer({"<think>", "</think>"});
  ChatConfig form;
  form.form = ChatForm::kOwn, form.user = "<user>{content}", form.assistant = "<bot><think>{content}{end}";
  const ChatTemplate chat(form, tokenizer);
  const SuiteModel asked{*model, tokenizer, &chat};
  auto suite = read_suite(
      write("tasks: [{name: t, kind: chat_generation, match: exact, data: problems.jsonl, max_tokens: 64, "
            "samples: 32, temperature: 10}]\n",
            R"({"question":"q","answer":"?"})"));
  SuiteTask& task = suite.tasks[0];
  GenerateOptions how;
  how.sampling.temperature = 10, how.sampling.max_tokens = 64, how.vocab_size = tokenizer.vocab_size();
  std::vector<Prompt> prompts;
  for (uint64_t sample = 0; sample < 32; ++sample)
    prompts.push_back({writing_prompt(task, 0, asked), sample});
  int ended = 0, open = 0;
  for (const auto& answer : generate(*model, prompts, how)) {
    TextStream stream(tokenizer, {});
    for (const int32_t id : answer.ids) stream.add(id);
    stream.finish();
    const std::string said(without_thoughts(stream.text(), /*opened=*/true));
    if (said.empty() ? open++ : ended++) continue;  // one of each is enough
    task.problems[0]["answer"] = said.empty() ? stream.text() : said;
    const auto result = run_suite(suite, asked, {.progress = false}).tasks[0];
    EXPECT_EQ(result.right[0], !said.empty()) << stream.text();
    EXPECT_GT(result.answers[0].size(), 60u) << "kept as a whole";
  }
  EXPECT_GT(ended, 0);
  EXPECT_GT(open, 0);
}

TEST_F(SuiteFiles, VariablesReachTheTemplateOfChats) {
  const auto model = small_model(259);
  const ByteTokenizer tokenizer({"<|im_start|>", "<|im_end|>"});
  ChatConfig form;
  form.form = ChatForm::kQwen3;
  const ChatTemplate chat(form, tokenizer);
  const auto suite =
      read_suite(write("tasks: [{name: t, kind: chat_generation, match: exact, data: problems.jsonl}]\n",
                       R"({"question":"q","answer":"a"})"));
  const auto shown = [&](const std::string& variables) {
    SuiteModel asked{*model, tokenizer, &chat};
    asked.template_variables = variables;
    return tokenizer.decode(writing_prompt(suite.tasks[0], 0, asked));
  };
  EXPECT_TRUE(shown("").ends_with("assistant\n"));
  EXPECT_TRUE(shown(R"({"enable_thinking": false})").ends_with("<think>\n\n</think>\n\n"));
}

TEST(SuiteResults, AreCentredAndHaveErrors) {
  SuiteResult result{"s",
                     {{.baseline = 0.25, .right = {1, 1, 0, 0}}, {.baseline = 0, .right = {1, 0, 0, 0}}}};
  EXPECT_DOUBLE_EQ(result.tasks[0].accuracy(), 0.5);
  EXPECT_DOUBLE_EQ(result.tasks[0].centered(), 0.25 / 0.75);
  EXPECT_DOUBLE_EQ(result.core(), (0.25 / 0.75 + 0.25) / 2);
  EXPECT_DOUBLE_EQ(result.tasks[0].standard_error(), std::sqrt(0.25 / 3));
  EXPECT_NEAR(result.core_error(), std::hypot(std::sqrt(0.25 / 3) / 0.75, std::sqrt(0.1875 / 3)) / 2, 1e-12);
}

TEST(SuiteMatches, Marked) {
  const auto marked = [](const std::string& answer, const std::string& expected) {
    return matches(AnswerMatch::kMarked, answer, expected);
  };
  EXPECT_TRUE(marked("so #### 1,234 apples", "#### 1234"));
  EXPECT_TRUE(marked("#### -5", "x\n#### -5"));
  EXPECT_TRUE(marked("#### 1\n#### 2", "#### 1")) << "the first one counts";
  EXPECT_FALSE(marked("#### 5.0", "#### 5")) << "as it is spelled";
  EXPECT_FALSE(marked("5", "#### 5"));
  EXPECT_FALSE(marked("####5", "#### 5"));
}

TEST(SuiteMatches, NumberAndExact) {
  const auto number = [](const std::string& answer, const std::string& expected) {
    return matches(AnswerMatch::kNumber, answer, expected);
  };
  EXPECT_TRUE(number("It is 5.0.", "5"));
  EXPECT_TRUE(number("first 3, then $1,200", "1200"));
  EXPECT_TRUE(number("-$5", "-5"));
  EXPECT_TRUE(number("10 - 5", "5"));
  EXPECT_TRUE(number("10-5", "5"));
  EXPECT_TRUE(number("it is ...18", "18"));
  EXPECT_TRUE(number("from 1..5", "5"));
  EXPECT_TRUE(number("3,4,5", "5"));
  EXPECT_TRUE(number("1,234,567.50", "1234567.5"));
  EXPECT_TRUE(number("-.5,", "-0.5"));
  EXPECT_TRUE(number("section 1.2.3", "3"));
  EXPECT_FALSE(number("1,2,3", "123"));
  EXPECT_FALSE(number("none", "5"));
  EXPECT_FALSE(number("6", "5"));
  EXPECT_TRUE(matches(AnswerMatch::kExact, " Paris\n", "Paris"));
  EXPECT_FALSE(matches(AnswerMatch::kExact, "paris", "Paris"));
}

// As nanochat does it for models that read no more: the last tokens stay.
TEST_F(SuiteFiles, LongTextsLoseTheirBeginning) {
  const ByteTokenizer tokenizer;
  const auto suite = read_suite(write("tasks: [{name: t, data: problems.jsonl}]\n",
                                      R"({"query":"abcdefghij","choices":["xx","yyy"],"gold":0})"));
  const auto whole = scored_texts(suite.tasks[0], 0, tokenizer, 1000);
  const auto cut = scored_texts(suite.tasks[0], 0, tokenizer, 8);
  EXPECT_EQ(whole[1].ids.size(), 15u);  // a begin token, 10, a space, 3
  EXPECT_EQ(cut[1].ids.size(), 8u);
  EXPECT_EQ(tokenizer.decode(cut[1].ids), "ghij yyy");
  EXPECT_EQ(cut[1].end - cut[1].start, whole[1].end - whole[1].start);
  error_of(ExitCode::kData, [&] { scored_texts(suite.tasks[0], 0, tokenizer, 3); });
}

}  // namespace
}  // namespace tightloop
