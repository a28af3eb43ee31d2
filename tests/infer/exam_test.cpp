#include "infer/exam.h"

#include <ATen/ops/tensor.h>

#include "core/files.h"
#include "data/byte_tokenizer.h"
#include "infer/chat_session.h"
#include "infer/generate.h"
#include "infer/model.h"
#include "infer/prompts.h"
#include "infer/thoughts.h"
#include "infer/token_scores.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
using testing::error_of;
using testing::small_model;
using testing::TempFolder;

const std::vector<std::string> kControls{"<|im_start|>", "<|im_end|>"};

// The mean loss of `answer` after `prompt`, in a pass of its own.
double text_mean(LanguageModel& model, const std::vector<int32_t>& prompt,
                 const std::vector<int32_t>& answer) {
  std::vector<int64_t> ids(prompt.begin(), prompt.end());
  ids.insert(ids.end(), answer.begin(), answer.end());
  const auto all = at::tensor(ids).unsqueeze(0);
  const int64_t T = all.size(1) - 1, count = static_cast<int64_t>(answer.size());
  const auto losses = score_tokens(model, all.narrow(1, 0, T), all.narrow(1, 1, T)).loss[0];
  return losses.narrow(0, T - count, count).mean().item<double>();
}

TEST(FinalAnswer, IsWhatFollowsTheMark) {
  EXPECT_EQ(final_answer("48/2 = 24\n#### 72"), "72");
  EXPECT_EQ(final_answer("#### 1\n#### $1,234. \n"), "1234");
  EXPECT_EQ(final_answer("####"), "");
  EXPECT_EQ(final_answer("#### 5\nand more"), "5");
  EXPECT_EQ(final_answer("  enots \n"), "enots");
  EXPECT_EQ(final_answer("1,5"), "1,5") << "only a marked answer is a number";
}

TEST(Exam, CountsByTask) {
  const auto model = small_model(257);
  const ByteTokenizer tokenizer;
  // What the model says itself is right; anything else is wrong.
  std::vector<ExamQuestion> exam;
  for (const char* prompt : {"ab", "b", "hello", "zz"})
    exam.push_back({.task = "own", .shown = prompt, .prompt = tokenizer.encode(prompt)});
  auto options = greedy_exam(exam, tokenizer);
  options.sampling.max_tokens = 4, options.rows = 3;
  for (auto& question : exam) {
    GenerateOptions generation;
    generation.sampling = options.sampling, generation.stop_tokens = options.stop_tokens;
    generation.vocab_size = tokenizer.vocab_size();
    const std::vector<Prompt> prompt{{question.prompt}};
    question.expected = tokenizer.decode(generate(*model, prompt, generation)[0].ids);
  }
  exam.push_back({.task = "other", .shown = "x", .expected = "never", .prompt = {65}});
  size_t last = 0;
  options.progress = [&](size_t done, size_t total) {
    last = done;
    EXPECT_EQ(total, 5u);
  };
  const auto result = take_exam(*model, tokenizer, exam, options);
  EXPECT_EQ(last, 5u);
  EXPECT_EQ(result.by_task.at("own").right, 4);
  EXPECT_EQ(result.by_task.at("other").right, 0);
  EXPECT_EQ(result.all.asked, 5);
  EXPECT_DOUBLE_EQ(result.all.accuracy(), 0.8);
}

TEST(Exam, ChoicesGoByLikelihood) {
  const auto model = small_model(257);
  const ByteTokenizer tokenizer;
  std::vector<ExamQuestion> exam;
  for (const char* prompt : {"one", "two of", "a longer question"}) {
    ExamQuestion question{.task = "choice", .shown = prompt, .prompt = tokenizer.encode(prompt)};
    double best = 1e9;
    for (const char* choice : {" yes", " no", " well, perhaps"}) {
      question.choices.push_back(tokenizer.encode(choice));
      const auto loss = text_mean(*model, question.prompt, question.choices.back());
      if (loss < best) best = loss, question.right = question.choices.size() - 1;
    }
    exam.push_back(question);
  }
  auto options = greedy_exam(exam, tokenizer);
  options.rows = 4;
  EXPECT_EQ(take_exam(*model, tokenizer, exam, options).all.right, 3);
  for (auto& question : exam) question.right = (question.right + 1) % 3;
  EXPECT_EQ(take_exam(*model, tokenizer, exam, options).all.right, 0);
}

TEST(Exam, SamplesGivePassRates) {
  const auto model = small_model(257);
  const ByteTokenizer tokenizer;
  ExamQuestion question{.task = "t", .shown = "q", .prompt = tokenizer.encode("q")};
  std::vector<ExamQuestion> exam{question};
  auto options = greedy_exam(exam, tokenizer);
  options.sampling.temperature = 1.5, options.sampling.max_tokens = 1, options.samples = 64;
  GenerateOptions generation;
  generation.sampling = options.sampling, generation.vocab_size = tokenizer.vocab_size();
  const std::vector<Prompt> prompt{{question.prompt, 5}};
  exam[0].expected = tokenizer.decode(generate(*model, prompt, generation)[0].ids);
  const auto result = take_exam(*model, tokenizer, exam, options);
  EXPECT_EQ(result.all.passed, 1);
  EXPECT_GE(result.all.accuracy(), 1.0 / 64);
  EXPECT_LT(result.all.accuracy(), 1.0);
}

TEST(Exam, DocumentsAreQuestionsWithAnswers) {
  const ByteTokenizer tokenizer(kControls);
  TokenStore store(tokenizer.vocab_size());
  const auto add = [&](const std::string& prompt, const std::string& answer, int32_t source) {
    auto ids = tokenizer.encode(prompt);
    std::vector<uint8_t> mask(ids.size(), 0);
    for (const int32_t id : tokenizer.encode(answer + "<|im_end|>")) ids.push_back(id), mask.push_back(1);
    store.append(ids, mask, source);
  };
  add("1+1?", "2", 0);
  add("long?", "a very long answer without a mark, not comparable", 0);
  add("sum?", "a very long way to it\n#### 12", 1);
  add("again?", "3", 0);
  store.append(tokenizer.encode("just text"), {}, 0);
  const std::vector<int32_t> stops{*tokenizer.token_id("<|im_end|>")};
  const auto exam = exam_of(store, {"a", "b"}, tokenizer, stops, 0);
  ASSERT_EQ(exam.size(), 3u);
  EXPECT_EQ(exam[0].shown, "1+1?");
  EXPECT_EQ(exam[0].expected, "2");
  EXPECT_EQ(exam[1].task, "b");
  EXPECT_EQ(final_answer(exam[1].expected), "12");
  EXPECT_EQ(exam_of(store, {"a", "b"}, tokenizer, stops, 1).size(), 2u);
}

TEST(Exam, IsReadFromJsonl) {
  const ByteTokenizer tokenizer(kControls);
  const ChatTemplate chat({}, tokenizer);
  const std::vector<int32_t> stops{*tokenizer.token_id("<|im_end|>")};
  const TempFolder folder;
  write_file_whole(folder / "exam.jsonl",
                   "{\"question\": \"1+1?\", \"answer\": \"#### 2\", \"task\": \"sums\"}\n\n"
                   "{\"question\": \"Which?\", \"choices\": [\"red\", \"blue\"], \"answer\": 1}\n");
  const std::string file = folder / "exam.jsonl";
  const auto asked = read_exam(file, {}, tokenizer, &chat, stops, 0);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].task, "sums");
  EXPECT_EQ(asked[0].expected, "#### 2");
  EXPECT_EQ(asked[0].shown, "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(asked[1].task, "exam");
  ASSERT_EQ(asked[1].choices.size(), 2u);
  EXPECT_EQ(asked[1].choices[1], tokenizer.encode("B"));
  EXPECT_EQ(asked[1].right, 1u);
  EXPECT_EQ(read_exam(file, {}, tokenizer, &chat, stops, 1).size(), 1u);

  const auto plain = read_exam(file, {}, tokenizer, nullptr, stops, 0);
  EXPECT_EQ(tokenizer.decode(plain[1].prompt), "Question: Which?\nAnswer:");
  EXPECT_EQ(tokenizer.decode(plain[1].choices[1]), " blue");
  EXPECT_EQ(plain[1].right, 1u);
}

TEST(Exam, ToolsKeepTheOrderOfTheirNames) {
  const ByteTokenizer tokenizer(kControls);
  ChatConfig form;
  form.form = ChatForm::kQwen3;
  const ChatTemplate chat(form, tokenizer);
  const TempFolder folder;
  write_file_whole(
      folder / "exam.jsonl",
      R"({"question": "1+1?", "answer": "2", "tools": [{"type": "function", "function": {"name": "f", "description": "d"}}]})"
      "\n");
  for (const char* variables : {"", R"({"enable_thinking": true})"}) {
    const auto asked = read_exam(folder / "exam.jsonl", {}, tokenizer, &chat, {}, 0, variables);
    EXPECT_NE(asked[0].shown.find(R"({"type": "function", "function": {"name": "f", "description": "d"}})"),
              std::string::npos)
        << asked[0].shown;
  }
}

// As `chat` asks; what the variables say otherwise; a choice is made at once.
TEST(Exam, AModelThatThinksIsAskedToThink) {
  const ByteTokenizer tokenizer(kControls);
  ChatConfig form;
  form.form = ChatForm::kQwen3;
  const ChatTemplate chat(form, tokenizer);
  const TempFolder folder;
  const std::string question = R"({"question": "1+1?", "answer": "2")";
  write_file_whole(folder / "exam.jsonl",
                   question + "}\n" + R"({"question": "1+1?", "choices": ["2", "3"], "answer": 0})" + "\n" +
                       question + ", \"chat_template_kwargs\": {\"enable_thinking\": true}}\n");
  const std::string file = folder / "exam.jsonl";
  const std::string head = "<|im_start|>assistant\n", at_once = head + "<think>\n\n</think>\n\n";
  const auto asked = read_exam(file, {}, tokenizer, &chat, {}, 0);
  EXPECT_TRUE(asked[0].shown.ends_with("1+1?<|im_end|>\n" + head)) << asked[0].shown;
  EXPECT_TRUE(asked[0].expected.starts_with("2")) << asked[0].expected;
  EXPECT_TRUE(asked[1].shown.ends_with(at_once)) << asked[1].shown;
  EXPECT_GT(greedy_exam({asked[0]}, tokenizer).sampling.max_tokens, kThoughtTokens);
  EXPECT_LT(greedy_exam({asked[1]}, tokenizer).sampling.max_tokens, kThoughtTokens);
  const auto told = read_exam(file, {}, tokenizer, &chat, {}, 0, R"({"enable_thinking": false})");
  EXPECT_TRUE(told[0].shown.ends_with(at_once)) << told[0].shown;
  EXPECT_FALSE(told[0].thinks);
  EXPECT_TRUE(told[2].shown.ends_with("\n" + head)) << "a record's own win: " << told[2].shown;
}

TEST(Exam, ThoughtsAreNotCompared) {
  const auto model = small_model(259);
  const ByteTokenizer tokenizer({"<think>", "</think>"});
  ExamQuestion question{.task = "t", .shown = "q", .prompt = tokenizer.encode("q<think>")};
  auto options = greedy_exam({question}, tokenizer);
  options.sampling.temperature = 10, options.sampling.max_tokens = 64, options.samples = 32;
  options.stop_tokens.clear();
  GenerateOptions generation;
  generation.sampling = options.sampling, generation.vocab_size = tokenizer.vocab_size();
  std::vector<Prompt> prompts;
  for (uint64_t sample = 0; sample < 32; ++sample) prompts.push_back({question.prompt, sample});
  int ended = 0, open = 0;
  for (const auto& answer : generate(*model, prompts, generation)) {
    const std::string text = tokenizer.decode(answer.ids);
    const std::string said = final_answer(without_thoughts(text, /*opened=*/true));
    if (said.empty() ? open++ : ended++) continue;  // one of each is enough
    question.expected = "</think>" + (said.empty() ? text : said);
    EXPECT_EQ(take_exam(*model, tokenizer, {question}, options).all.passed, !said.empty()) << text;
  }
  EXPECT_GT(ended, 0);
  EXPECT_GT(open, 0);
}

TEST(Exam, LabelsFromOneAreNotIndices) {
  const ByteTokenizer tokenizer(kControls);
  const ChatTemplate chat({}, tokenizer);
  const TempFolder folder;
  const std::string choices =
      R"("choices": {"text": ["ice", "steam", "snow", "hail"], "label": ["1", "2", "3", "4"]})";
  std::string text;
  for (const char* key : {"1", "2", "3", "4"})
    text += fmt::format("{{\"question\": \"Which?\", {}, \"answer\": \"{}\"}}\n", choices, key);
  // A choice that reads like another's label: labels win, with and without a template.
  text += R"({"question": "2?", "choices": {"text": ["2", "1"], "label": ["1", "2"]}, "answer": "2"})"
          "\n";
  text += R"({"question": "2?", "choices": {"text": ["x", "y"], "label": ["C", "D"]}, "answer": "D"})"
          "\n";
  text += R"({"question": "2?", "choices": ["x", "y"], "answer": 1})"
          "\n";
  text += R"({"question": "2?", "choices": ["x", "y"], "answer": "B"})"
          "\n";
  text += R"({"question": "2?", "choices": ["3", "1"], "answer": "1"})"
          "\n";
  write_file_whole(folder / "arc.jsonl", text);
  for (const auto* with : {&chat, static_cast<const ChatTemplate*>(nullptr)}) {
    const auto exam = read_exam(folder / "arc.jsonl", {}, tokenizer, with, {}, 0);
    std::vector<size_t> right;
    for (const auto& question : exam) right.push_back(question.right);
    EXPECT_EQ(right, (std::vector<size_t>{0, 1, 2, 3, 1, 1, 1, 1, 1})) << (with ? "chat" : "plain");
  }
}

TEST(Exam, AnAmbiguousAnswerNamesTheLine) {
  const ByteTokenizer tokenizer(kControls);
  const ChatTemplate chat({}, tokenizer);
  const TempFolder folder;
  for (const char* bad :
       {R"("choices": ["B", "A"], "answer": "A")", R"("choices": ["x", "y"], "answer": "1")",
        R"("choices": {"text": ["x", "y"], "label": ["1"]}, "answer": "1")",
        R"("choices": ["x", "y"], "answer": 2)", R"("answer": "1", "context": "A passage.")",
        R"("choices": [1, 2], "answer": 1)"})
    for (const auto* with : {&chat, static_cast<const ChatTemplate*>(nullptr)}) {
      write_file_whole(folder / "a.jsonl", fmt::format("{{\"question\": \"Which?\", {}}}\n", bad));
      const auto message =
          error_of(ExitCode::kData, [&] { read_exam(folder / "a.jsonl", {}, tokenizer, with, {}, 0); });
      EXPECT_NE(message.find("line 1"), std::string::npos) << message;
    }
}

TEST(Exam, BadFilesNameTheLine) {
  const ByteTokenizer tokenizer(kControls);
  const ChatTemplate chat({}, tokenizer);
  const TempFolder folder;
  const auto fail = [&](const std::string& text, const ChatTemplate* with) {
    write_file_whole(folder / "bad.jsonl", text);
    return error_of(ExitCode::kData, [&] { read_exam(folder / "bad.jsonl", {}, tokenizer, with, {}, 0); });
  };
  for (const auto* with : {&chat, static_cast<const ChatTemplate*>(nullptr)}) {
    EXPECT_NE(fail("{\"question\": \"a\", \"answer\": \"b\"}\nnonsense\n", with).find("line 2"),
              std::string::npos);
    EXPECT_NE(fail("{\"question\": \"a\"}\n", with).find("line 1"), std::string::npos);
    EXPECT_NE(fail("\n", with).find("no question"), std::string::npos);
    EXPECT_NE(fail("{\"question\": \"a\", \"choices\": [\"x\"], \"answer\": 0}\n", with).find("choices"),
              std::string::npos);
    EXPECT_NE(
        fail("{\"question\": \"a\", \"choices\": [\"x\", \"y\"], \"answer\": \"z\"}\n", with).find("none of"),
        std::string::npos);
  }
}

TEST(Prompts, AreReadFromFiles) {
  const ByteTokenizer tokenizer;
  const TempFolder folder;
  write_file_whole(folder / "a.txt", "one\n\ntwo words\n");
  const auto lines = read_prompts(folder / "a.txt", tokenizer, 100);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1].text, "");
  EXPECT_EQ(lines[1].ids, (std::vector<int32_t>{256})) << "an empty line begins a document";
  EXPECT_EQ(lines[2].text, "two words");
  write_file_whole(folder / "a.jsonl", "{\"prompt\": \"a\\nb\"}\n\"c\"\n{\"ids\": [100, 101]}\n");
  const auto json = read_prompts(folder / "a.jsonl", tokenizer, 100);
  ASSERT_EQ(json.size(), 3u);
  EXPECT_EQ(json[0].text, "a\nb");
  EXPECT_EQ(json[2].ids, (std::vector<int32_t>{100, 101}));
  EXPECT_EQ(json[2].text, "de");
  write_file_whole(folder / "bad.jsonl", "{\"prompt\": \"a\"}\n{\"text\": 1}\n");
  EXPECT_NE(
      error_of(ExitCode::kData, [&] { read_prompts(folder / "bad.jsonl", tokenizer, 100); }).find("line 2"),
      std::string::npos);
  write_file_whole(folder / "empty.txt", "");
  error_of(ExitCode::kData, [&] { read_prompts(folder / "empty.txt", tokenizer, 100); });
  error_of(ExitCode::kData, [&] { read_prompts(folder / "absent.txt", tokenizer, 100); });
}

TEST(Prompts, EqualOnesAreCounted) {
  EqualPrompts equal;
  std::vector<uint64_t> before;
  for (const auto& ids : std::vector<std::vector<int32_t>>{{1, 2}, {1}, {1, 2}, {}, {1, 2}, {}})
    before.push_back(equal.before(ids));
  EXPECT_EQ(before, (std::vector<uint64_t>{0, 0, 1, 0, 2, 1}));
}

TEST(Prompts, IdsAreListsOfNumbers) {
  const ByteTokenizer tokenizer;
  const std::vector<int32_t> ids{1, 22, 3};
  EXPECT_EQ(ids_prompt("1,22,3", tokenizer).ids, ids);
  EXPECT_EQ(ids_prompt("[1, 22, 3]", tokenizer).ids, ids);
  EXPECT_EQ(ids_prompt("1 22 3", tokenizer).ids, ids);
  for (const char* bad : {"", "[]", "1,x", "1.5", "99999999999", "1;2"})
    error_of(ExitCode::kUsage, [&] { ids_prompt(bad, tokenizer); });
  error_of(ExitCode::kData, [&] { ids_prompt("400", tokenizer); });
  EXPECT_EQ(text_prompt("", tokenizer, 100).ids, (std::vector<int32_t>{256})) << "a document from its start";
}

}  // namespace
}  // namespace tightloop
