// Against nanochat's own functions on the same model and files: tests/golden/make_suite.py made all of them.
#include <c10/core/GradMode.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/files.h"
#include "golden.h"
#include "infer/chat_session.h"
#include "infer/suite/suite.h"
#include "support.h"

namespace tightloop {
namespace {

class SuiteGolden : public ::testing::Test {
 protected:
  const fs::path folder = testing::source_folder() / "tests/golden/suite";
  const nlohmann::json wanted = nlohmann::json::parse(read_file(folder / "results.json"));
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(folder);
  const std::unique_ptr<LanguageModel> model = load();
  const ChatTemplate chat{nanochat(), *tokenizer};
  const CalculatorCalls calculator{*tokenizer};
  const SuiteModel asked{*model, *tokenizer, &chat, stop_tokens(*tokenizer, &chat), &calculator};

  static ChatConfig nanochat() {
    ChatConfig config;
    config.form = ChatForm::kNanochat;
    return config;
  }
  static std::unique_ptr<LanguageModel> load() {
    const testing::Golden golden("suite/model.safetensors");
    auto model = make_model(golden.config("model"), /*seed=*/1);
    c10::NoGradGuard no_grad;
    for (const auto& parameter : model->parameters().all())
      parameter.value.detach().copy_(golden[parameter.name]);
    return model;
  }

  void compare(const SuiteTaskResult& found, const nlohmann::json& theirs) const {
    EXPECT_NEAR(found.accuracy(), theirs.at("accuracy").get<double>(), 1e-6) << found.name;
    EXPECT_EQ(found.right, theirs.at("right").get<std::vector<uint8_t>>()) << found.name;
  }
};

TEST_F(SuiteGolden, CoreIsNanochats) {
  for (const size_t rows : {size_t{1}, size_t{7}, size_t{64}}) {
    const auto result =
        run_suite(read_suite(folder / "core.yaml"), asked, {.rows = rows, .python = {}, .progress = false});
    const auto& theirs = wanted.at("base");
    ASSERT_EQ(result.tasks.size(), theirs.at("tasks").size());
    for (const auto& task : result.tasks) {
      const auto& golden = theirs.at("tasks").at(task.name);
      compare(task, golden);
      EXPECT_NEAR(task.centered(), golden.at("centered").get<double>(), 1e-6);
      ASSERT_EQ(task.losses.size(), golden.at("losses").size());
      for (size_t i = 0; i < task.losses.size(); ++i)
        for (size_t choice = 0; choice < task.losses[i].size(); ++choice) {
          const auto& loss = golden.at("losses")[i][choice];
          if (loss.is_null())  // one choice begins with all of another, of which nothing is left to score
            EXPECT_TRUE(std::isnan(task.losses[i][choice])) << task.name << ", problem " << i;
          else
            // two computations of one model in fp32
            EXPECT_NEAR(task.losses[i][choice], loss.get<double>(), 5e-6 * std::max(1.0, loss.get<double>()))
                << task.name << ", problem " << i;
        }
    }
    EXPECT_NEAR(result.core(), theirs.at("core").get<double>(), 1e-6);
  }
}

TEST_F(SuiteGolden, ChatTasksAreNanochats) {
  for (const size_t rows : {size_t{1}, size_t{5}, size_t{64}}) {
    const auto result =
        run_suite(read_suite(folder / "chat.yaml"), asked, {.rows = rows, .python = {}, .progress = false});
    const auto& theirs = wanted.at("chat");
    for (const auto& task : result.tasks) compare(task, theirs.at("tasks").at(task.name));
    EXPECT_NEAR(result.core(), theirs.at("core").get<double>(), 1e-6);
    const auto& gsm8k = theirs.at("tasks").at("gsm8k");
    EXPECT_EQ(result.tasks.back().answers, gsm8k.at("answers").get<std::vector<std::string>>());
    EXPECT_GT(gsm8k.at("forced").get<int>(), 5) << "the calculator has something to do";
  }
}

TEST_F(SuiteGolden, WithoutTheCalculatorAnswersAreOthers) {
  auto alone = asked;
  alone.calculator = nullptr;
  const auto result = run_suite(read_suite(folder / "chat.yaml"), alone, {.python = {}, .progress = false});
  EXPECT_NE(result.tasks.back().answers,
            wanted.at("chat").at("tasks").at("gsm8k").at("answers").get<std::vector<std::string>>());
}

// A call stands in later prompts as tokens, so that the cache of what was read goes on.
TEST_F(SuiteGolden, ChatsCallTheCalculatorToo) {
  const auto problem = read_suite(folder / "chat.yaml").tasks.back().problems[0];
  const auto answer = wanted.at("chat").at("tasks").at("gsm8k").at("answers")[0].get<std::string>();
  ASSERT_NE(answer.find("<|output_start|>"), std::string::npos);
  SamplingConfig sampling;
  sampling.temperature = 0, sampling.max_tokens = 48;
  ChatSession session(*model, *tokenizer, chat, 256);
  EXPECT_EQ(session.ask(problem.at("question"), sampling, {}).text, answer);
  const auto saved = nlohmann::json::parse(session.to_json()).at("messages")[1].at("content");
  ASSERT_EQ(saved.size(), 4u) << saved;
  EXPECT_EQ(saved[1].at("type"), "python");
  EXPECT_EQ(saved[2].at("type"), "python_output");
  const auto next = session.ask("And?", sampling, {});
  EXPECT_LE(next.read, 12 + KvPages::kPage) << "the whole conversation was read again";
  // The model has learned some results by heart, but not all.
  const auto task = read_suite(folder / "chat.yaml").tasks.back();
  const auto& answers = wanted.at("chat").at("tasks").at("gsm8k").at("answers");
  int changed = 0;
  for (size_t i = 0; i < task.problems.size(); ++i)
    for (const bool calculates : {true, false}) {
      ChatSession one(*model, *tokenizer, chat, 256);
      one.use_calculator(calculates);
      const auto text = one.ask(task.problems[i].at("question"), sampling, {}).text;
      if (calculates)
        EXPECT_EQ(text, answers[i].get<std::string>());
      else
        changed += text != answers[i].get<std::string>();
    }
  EXPECT_GT(changed, 0);
}

TEST_F(SuiteGolden, ProgramsAreNanochats) {
  for (const auto& item : wanted.at("programs")) {
    const auto program =
        test_program(item.at("prompt"), item.at("answer"), "def check(f):\n    assert f(1) == 2\n", "f");
    EXPECT_EQ(program, item.at("program").get<std::string>() + "\n") << item.at("answer");
  }
}

}  // namespace
}  // namespace tightloop
