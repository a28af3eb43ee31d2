// Records with one answer: Alpaca's and {prompt, completion}.
#include <fstream>

#include "core/files.h"
#include "data/byte_tokenizer.h"
#include "data/dataset.h"
#include "data/render/render.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
using testing::TempFolder;

const ByteTokenizer& answers_tokenizer() {
  static const ByteTokenizer instance({"<|im_start|>", "<|im_end|>"});
  return instance;
}

Rendered rendered_answer(std::string text, RecordFormat format,
                         const std::vector<std::string>& ignored = {}) {
  text.reserve(text.size() + kRecordPadding);
  Record record;
  record.bytes = text;
  Rendered out;
  DataConfig data;
  data.format = format, data.ignore_fields = ignored;
  make_json_renderer(data, answers_tokenizer(),
                     std::make_shared<ChatTemplate>(ChatConfig(), answers_tokenizer()))
      ->render(record, out);
  return out;
}

std::string turn(const std::string& role, const std::string& text) {
  return "<|im_start|>" + role + "\n" + text + "<|im_end|>\n";
}

TEST(Answers, AreReadAsConversations) {
  const std::string chat = turn("user", "Add.\n1 2") + turn("assistant", "3");
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"({"instruction":"Add.","input":"1 2","output":"3"})", chat},
      {R"({"instruction":"Add.","context":"1 2","response":"3","category":"math"})", chat},
      {R"({"instruction":"Hi","input":"","output":"yo","text":"both of it"})",
       turn("user", "Hi") + turn("assistant", "yo")},
      {R"({"instruction":"Hi","input":null,"output":"yo","system":"S","history":[["a","b"]]})",
       turn("system", "S") + turn("user", "a") + turn("assistant", "b") + turn("user", "Hi") +
           turn("assistant", "yo")},
      {R"({"prompt":"Hi","completion":"yo"})", turn("user", "Hi") + turn("assistant", "yo")},
      {R"({"prompt":"Hi","response":"yo"})", turn("user", "Hi") + turn("assistant", "yo")},
      {R"({"prompt":[{"role":"system","content":"S"},{"role":"user","content":"Hi"}],)"
       R"("completion":[{"role":"assistant","content":"yo"}]})",
       turn("system", "S") + turn("user", "Hi") + turn("assistant", "yo")}};
  for (const auto& [record, expected] : cases)
    for (const auto format : {RecordFormat::kAuto, RecordFormat::kChat}) {
      const Rendered out = rendered_answer(record, format);
      EXPECT_EQ(out.why, "") << record;
      EXPECT_EQ(answers_tokenizer().decode(out.ids), expected) << record;
    }
  // Only the answer and its end are learned.
  const Rendered out = rendered_answer(R"({"prompt":"Hi","completion":"yo"})", RecordFormat::kAuto);
  EXPECT_EQ(std::count(out.mask.begin(), out.mask.end(), 1), 3);
}

TEST(Answers, ThatCannotBeLearnedAreBadRecords) {
  const std::vector<std::tuple<std::string, BadKind, std::string>> cases{
      {R"({"instruction":"Hi","output":""})", BadKind::kEmpty, "answer"},
      {R"({"instruction":"","input":"","output":"x"})", BadKind::kEmpty, "instruction"},
      {R"({"prompt":"Hi","completion":null})", BadKind::kEmpty, "answer"},
      {R"({"prompt":"Hi","completion":7})", BadKind::kWrongType, "completion"},
      {R"({"prompt":"Hi","completion":"x","context":"C"})", BadKind::kUnknownField, "'context'"},
      {R"({"instruction":"Hi","output":"x","tools":[1]})", BadKind::kUnknownField, "'tools'"},
      {R"({"instruction":"Hi","output":"x","history":["a"]})", BadKind::kWrongType, "history"},
      {R"({"prompt":[{"role":"user","content":"a"}],"completion":[{"role":"user","content":"b"}]})",
       BadKind::kNoAssistant, "assistant"}};
  for (const auto& [record, kind, word] : cases) {
    const Rendered out = rendered_answer(record, RecordFormat::kAuto);
    EXPECT_EQ(out.bad, kind) << record << out.why;
    EXPECT_NE(out.why.find(word), std::string::npos) << record << out.why;
  }
}

TEST(Answers, FieldsCanBeLeftOutByName) {
  for (const char* record :
       {R"({"instruction":"Hi","output":"yo","system":"S","history":[["a","b"]],"input":"x"})",
        R"({"prompt":"Hi","completion":"yo","system":"S"})"}) {
    const Rendered out = rendered_answer(record, RecordFormat::kAuto, {"system", "history", "input"});
    EXPECT_EQ(answers_tokenizer().decode(out.ids), turn("user", "Hi") + turn("assistant", "yo")) << record;
  }
}

TEST(Answers, TwoNamesOfOneThingMustSayTheSame) {
  const std::string yo = turn("user", "Hi") + turn("assistant", "yo");
  const std::vector<std::tuple<std::string, std::string, std::string>> cases{
      {R"({"instruction":"Hi","output":"yo","response":"no"})", "response", yo},
      {R"({"instruction":"Hi","output":"no","response":"yo"})", "output", yo},
      {R"({"prompt":"Hi","completion":"yo","response":"no"})", "response", yo},
      {R"({"instruction":"Hi","input":"a","context":"b","output":"yo"})", "context",
       turn("user", "Hi\na") + turn("assistant", "yo")},
      {R"({"prompt":"Hi","completion":"yo","system":"S","system_prompt":"T"})", "system_prompt",
       turn("system", "S") + yo}};
  for (const auto& [record, ignored, expected] : cases) {
    const Rendered bad = rendered_answer(record, RecordFormat::kAuto);
    EXPECT_EQ(bad.bad, BadKind::kUnknownField) << record;
    EXPECT_NE(bad.why.find("data.ignore_fields"), std::string::npos) << bad.why;
    EXPECT_EQ(answers_tokenizer().decode(rendered_answer(record, RecordFormat::kAuto, {ignored}).ids),
              expected)
        << record;
  }
  for (const char* record : {R"({"instruction":"Hi","output":"yo","response":"yo"})",
                             R"({"instruction":"Hi","output":" \n","response":"yo"})"})
    EXPECT_EQ(answers_tokenizer().decode(rendered_answer(record, RecordFormat::kAuto).ids), yo) << record;
}

TEST(Answers, OfWhiteSpaceAreEmptyInEveryFormat) {
  for (const char* record :
       {R"({"instruction":"Hi","output":" \n"})", R"({"prompt":"Hi","completion":"\t"})",
        R"({"instruction":"Hi","output":"yo","history":[["a"," "]]})", R"({"question":"Hi","answer":" "})",
        R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":" \n"}]})"})
    EXPECT_EQ(rendered_answer(record, RecordFormat::kAuto).bad, BadKind::kEmpty) << record;
}

TEST(Answers, AnUnknownShapeNamesItsFieldsAndThoseThatAreKnown) {
  for (const auto format : {RecordFormat::kAuto, RecordFormat::kChat, RecordFormat::kText}) {
    const Rendered out = rendered_answer(R"({"id":1,"body":"x"})", format);
    EXPECT_EQ(out.bad, BadKind::kMissingField);
    EXPECT_NE(out.why.find("'id', 'body'"), std::string::npos) << out.why;
    EXPECT_NE(out.why.find(format == RecordFormat::kText ? "'text'" : "'instruction' and 'output'"),
              std::string::npos)
        << out.why;
  }
}

TEST(Answers, ComeAsLinesAndAsAList) {
  TempFolder folder;
  const std::string one = R"({"instruction":"Hi","output":"yo"})",
                    two = R"({"prompt":"Hi","completion":"yo"})";
  write_file_whole(folder / "a.jsonl", one + "\n" + two + "\n");
  write_file_whole(folder / "a.json", "[" + one + ",\n" + two + "]");
  for (const char* name : {"a.jsonl", "a.json"}) {
    DataConfig data;
    data.source = DataSource::kJsonl, data.train = {(folder / name).string()}, data.holdout = 0;
    const Dataset dataset = load_dataset(data, {}, answers_tokenizer());
    EXPECT_EQ(dataset.train->size(), 2u) << name << dataset.bad.report();
  }
}

std::string preferred(std::string text) {
  text.reserve(text.size() + kRecordPadding);
  Record record;
  record.bytes = text;
  Rendered out;
  DataConfig data;
  data.preferences = Preferences::kChosen;
  make_json_renderer(data, answers_tokenizer(),
                     std::make_shared<ChatTemplate>(ChatConfig(), answers_tokenizer()))
      ->render(record, out);
  return out.why.empty() ? answers_tokenizer().decode(out.ids) : out.why;
}

TEST(Answers, APromptOfTurnsIsWhatAPreferredConversationBeginsWith) {
  const std::string question = R"({"role":"user","content":"Q"})",
                    system = R"({"role":"system","content":"S"})",
                    answer = R"({"role":"assistant","content":"A"})", whole = question + "," + answer,
                    asked = turn("user", "Q") + turn("assistant", "A");
  const auto pair = [](const std::string& prompt, const std::string& chosen, const std::string& more = "") {
    return preferred(R"({"prompt":[)" + prompt + R"(],"chosen":[)" + chosen + R"(],"rejected":"x")" + more +
                     "}");
  };
  EXPECT_EQ(pair(question, whole), asked);
  EXPECT_EQ(pair(question, system + "," + whole), turn("system", "S") + asked);
  EXPECT_EQ(pair(whole + "," + question, whole + "," + whole), asked + asked);
  EXPECT_NE(pair(whole + "," + question, whole).find("'prompt'"), std::string::npos)
      << "a turn would be lost";
  EXPECT_NE(pair(system + "," + question, whole).find("'prompt'"), std::string::npos);
  // A system prompt beside it is there once.
  EXPECT_EQ(pair(question, system + "," + whole, R"(,"system":"S")"), turn("system", "S") + asked);
  EXPECT_EQ(pair(system + "," + question, answer, R"(,"system":"S")"), turn("system", "S") + asked);
  EXPECT_NE(pair(system + "," + question, answer, R"(,"system":"T")").find("'system'"), std::string::npos);
}

}  // namespace
}  // namespace tightloop
