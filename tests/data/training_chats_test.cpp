// Conversations by the chat templates of public models: ids and masks as transformers and a slow reference
// have them, and the quick forms as the templates.
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/files.h"
#include "data/render/built_in_templates.h"
#include "data/render/render.h"
#include "support.h"
#include "tokenizer/jinja/jinja_template.h"
#include "tokenizer/jinja/template_files.h"

namespace tightloop {
namespace {

using nlohmann::json;

// What tests/golden/make_training_chats.py writes. More than a few: TIGHTLOOP_CHATS=2000.
std::vector<json> training_chats(const fs::path& folder) {
  const char* const count = std::getenv("TIGHTLOOP_CHATS");
  const fs::path chats = folder / "chats.jsonl";
  const std::string command =
      fmt::format("'{}' '{}' '{}' '{}' {}", (testing::source_folder() / ".deps/peers/bin/python").string(),
                  (testing::source_folder() / "tests/golden/make_training_chats.py").string(),
                  testing::shared_data().string(), chats.string(), count ? count : "20");
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::vector<json> all;
  std::istringstream lines(read_file(chats));
  for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
  return all;
}

ChatTemplateFiles template_named(const std::string& name) {
  ChatTemplateFiles files =
      name == "minimind"
          ? read_chat_template(testing::shared_data() / "tokenizers/minimind/tokenizer_config.json")
          : read_chat_template(testing::shared_data() / "chat_templates" / name);
  files.tokens = {
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"pad_token", "<pad>"}, {"unk_token", "<unk>"}};
  return files;
}

Rendered render_record(const Tokenizer& tokenizer, std::shared_ptr<const ChatTemplate> chat,
                       std::string record) {
  record.reserve(record.size() + kRecordPadding);
  Rendered out;
  Record whole;
  whole.bytes = record;
  make_json_renderer({}, tokenizer, std::move(chat))->render(whole, out);
  return out;
}

ChatConfig on_the_day_of_the_golden_files() {
  ChatConfig config;
  config.form = ChatForm::kTemplate;
  config.today = "2024-11-18";
  return config;
}

// A remark at its end makes a template unknown, and so it is interpreted.
void expect_same_from_interpreter(const std::string& name, Tokenizer& tokenizer, const json& item,
                                  const Rendered& quick) {
  ChatTemplateFiles files = template_named(name);
  if (!quick_form_of(files.choose(false), "", 0)) return;
  files.templates["default"] += "{# interpreted #}";
  tokenizer.set_chat(files);
  const auto chat = std::make_shared<ChatTemplate>(on_the_day_of_the_golden_files(), tokenizer);
  EXPECT_EQ(chat->description().find("known"), std::string::npos);
  const Rendered out = render_record(tokenizer, chat, item["record"]);
  EXPECT_EQ(out.ids, quick.ids);
  if (name == "minimind") return;  // which learns the line end too
  EXPECT_EQ(out.mask, quick.mask);
}

// The templates in words of ours say what those of the models say.
void expect_same_from_built_in(const std::string& name, const json& item) {
  const std::map<std::string, ChatForm> forms{{"Qwen-Qwen3-0.6B.jinja", ChatForm::kQwen3},
                                              {"minimind", ChatForm::kMinimind},
                                              {"meta-llama-Llama-3.1-8B-Instruct.jinja", ChatForm::kLlama3}};
  const auto form = forms.find(name);
  if (form == forms.end() || item.contains("error")) return;
  JinjaVariables variables;
  variables.add_record(item["record"].get<std::string>(), "the record");
  std::string text = JinjaTemplate(built_in_template(form->second)).render(variables).text;
  if (form->second == ChatForm::kLlama3) text.replace(0, std::string("<|begin_of_text|>").size(), "<s>");
  EXPECT_EQ(text, item["text"].get<std::string>());
}

TEST(TrainingChats, IdsAndMasksAreThoseOfTransformersAndASlowReference) {
  SKIP_WITHOUT(testing::shared_data() / "chat_templates");
  SKIP_WITHOUT(testing::source_folder() / ".deps/peers/bin/python");
  const testing::TempFolder folder;
  std::map<std::string, std::pair<int, int>> seen;  // by template: records, and those with a mask
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  for (const std::string kind : {"gpt2", "minimind"})
    tokenizers[kind] = load_tokenizer(testing::shared_data() / "tokenizers" / kind);
  std::map<std::string, std::shared_ptr<const ChatTemplate>> forms;
  for (const json& item : training_chats(folder.path())) {
    const std::string name = item["template"];
    for (const std::string kind : {"gpt2", "minimind"}) {
      SCOPED_TRACE(name + " " + kind + " " + item["record"].get<std::string>());
      Tokenizer& tokenizer = *tokenizers[kind];
      auto& chat = forms[name + kind];
      if (!chat) {
        tokenizer.set_chat(template_named(name));
        chat = std::make_shared<ChatTemplate>(on_the_day_of_the_golden_files(), tokenizer);
      }
      const Rendered out = render_record(tokenizer, chat, item["record"]);
      if (item.contains("error")) {
        EXPECT_NE(out.bad, BadKind::kNone);
        continue;
      }
      ASSERT_EQ(out.bad, BadKind::kNone) << out.why;
      ++seen[name].first;
      EXPECT_EQ(out.ids, item[kind]["ids"].get<std::vector<int32_t>>());
      if (item[kind].contains("mask")) {
        ++seen[name].second;
        EXPECT_EQ(json(out.mask), item[kind]["mask"]);
      }
      expect_same_from_interpreter(name, tokenizer, item, out);
    }
    expect_same_from_built_in(name, item);
  }
  int masks = 0;
  for (const auto& [name, counts] : seen) masks += counts.second;
  EXPECT_GE(seen.size(), 17u);
  EXPECT_GT(masks, 100);
}

// tests/golden/make_minimind_sft.py: thinking, tools and calls as texts, cut to a length.
TEST(TrainingChats, MinimindsRecordsAreThoseOfItsOwnDataset) {
  const fs::path folder = testing::shared_data() / "tokenizers/minimind";
  SKIP_WITHOUT(folder);
  const json golden = json::parse(read_file(testing::source_folder() / "tests/golden/minimind_sft.json"));
  const auto tokenizer = load_tokenizer(folder);
  for (const int share : {0, 1}) {
    ChatConfig config;  // the template beside the tokenizer
    config.empty_thinking = config.system_share = share;
    config.system_prompts = {golden["system_prompt"].get<std::string>()};
    const auto chat = std::make_shared<ChatTemplate>(config, *tokenizer);
    EXPECT_NE(chat->description().find("minimind"), std::string::npos) << chat->description();
    const json& rows = golden["shares"][std::to_string(share)];
    ASSERT_EQ(rows.size(), golden["records"].size());
    for (size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE(golden["records"][i].get<std::string>());
      Rendered out = render_record(*tokenizer, chat, golden["records"][i]);
      ASSERT_EQ(out.bad, BadKind::kNone) << out.why;
      const auto ids = rows[i]["ids"].get<std::vector<int32_t>>();
      out.ids.resize(std::min(out.ids.size(), golden["length"].get<size_t>()));
      EXPECT_EQ(out.ids, ids);
      std::string mask;
      for (size_t t = 0; t < ids.size(); ++t) mask += out.mask[t] ? '1' : '0';
      EXPECT_EQ(mask, rows[i]["mask"].get<std::string>());
    }
  }
}

ChatConfig qwen3() {
  ChatConfig config;
  config.form = ChatForm::kQwen3;
  return config;
}

std::string learned_text(const ChatConfig& config, const std::string& record) {
  const auto tokenizer = load_tokenizer(testing::shared_data() / "tokenizers/minimind");
  const Rendered out = render_record(*tokenizer, std::make_shared<ChatTemplate>(config, *tokenizer), record);
  if (out.bad != BadKind::kNone) return out.why;
  std::string text;
  for (size_t i = 0; i < out.ids.size(); ++i)
    if (out.mask[i]) text += tokenizer->decode({&out.ids[i], 1});
  return text;
}

TEST(TrainingChats, WhatIsLearnedFollowsTheSettings) {
  SKIP_WITHOUT(testing::shared_data() / "tokenizers/minimind");
  const std::string record =
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"one"},)"
      R"({"role":"user","content":"b"},{"role":"assistant","content":"two","reasoning_content":"hm"}]})";
  ChatConfig config = qwen3();
  EXPECT_EQ(learned_text(config, record), "one<|im_end|><think>\nhm\n</think>\n\ntwo<|im_end|>");
  config.learn = ChatLearn::kLast;
  EXPECT_EQ(learned_text(config, record), "<think>\nhm\n</think>\n\ntwo<|im_end|>");
  config.learn_thinking = false;
  EXPECT_EQ(learned_text(config, record), "two<|im_end|>");
  config.learn = ChatLearn::kAll;
  config.learn_thinking = true;
  EXPECT_EQ(
      learned_text(config, record),
      "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\none<|im_end|>\n<|im_start|>user\nb<|im_end|>\n"
      "<|im_start|>assistant\n<think>\nhm\n</think>\n\ntwo<|im_end|>\n");
  config = {};
  config.form = ChatForm::kMinimind;
  config.learn = ChatLearn::kLast;
  EXPECT_EQ(learned_text(config, record), "<think>\nhm\n</think>\n\ntwo<|im_end|>\n");
}

TEST(TrainingChats, SharesAreDecidedByTheRecord) {
  SKIP_WITHOUT(testing::shared_data() / "tokenizers/minimind");
  ChatConfig config;
  config.empty_thinking = 0.2;
  const auto tokenizer = load_tokenizer(testing::shared_data() / "tokenizers/minimind");
  const auto chat = std::make_shared<ChatTemplate>(config, *tokenizer);
  int kept = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string record = fmt::format(
        R"({{"messages":[{{"role":"user","content":"{}"}},{{"role":"assistant","content":"x"}}]}})", i);
    const Rendered out = render_record(*tokenizer, chat, record),
                   again = render_record(*tokenizer, chat, record);
    EXPECT_EQ(out.ids, again.ids);
    kept += tokenizer->decode(out.ids).find("<think>") != std::string::npos;
  }
  EXPECT_GT(kept, 150);
  EXPECT_LT(kept, 250);
}

ChatConfig minimind() {
  ChatConfig config;
  config.form = ChatForm::kMinimind;
  config.empty_thinking = 0;
  return config;
}

// MiniMind's template writes nothing of a list.
TEST(TrainingChats, TextPartsAreJoinedWhereATemplateDropsLists) {
  SKIP_WITHOUT(testing::shared_data() / "tokenizers/minimind");
  EXPECT_EQ(
      learned_text(minimind(), R"({"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},)"
                               R"({"role":"assistant","content":[{"type":"text","text":"General"}]}]})"),
      "General<|im_end|>\n");
}

TEST(TrainingChats, ATurnThatATemplateLeavesOutIsNamed) {
  SKIP_WITHOUT(testing::shared_data() / "chat_templates");
  const auto tokenizer = load_tokenizer(testing::shared_data() / "tokenizers/minimind");
  tokenizer->set_chat(
      read_chat_template(testing::shared_data() / "chat_templates/microsoft-Phi-3.5-mini-instruct.jinja"));
  const auto chat = std::make_shared<ChatTemplate>(ChatConfig(), *tokenizer);
  const Rendered out = render_record(
      *tokenizer, chat,
      R"({"messages":[{"role":"user","content":"q"},{"role":"tool","content":"FORTYTWO"},{"role":"assistant","content":"a"}]})");
  EXPECT_EQ(out.bad, BadKind::kNotInTemplate);
  EXPECT_NE(out.why.find("'tool'"), std::string::npos) << out.why;
}

TEST(TrainingChats, LargeNumbersHarmNoOthers) {
  SKIP_WITHOUT(testing::shared_data() / "tokenizers/minimind");
  const auto record = [](const char* id, const char* euros) {
    return fmt::format(
        R"({{"id":{},"messages":[{{"role":"user","content":"q"}},{{"role":"assistant","content":"","tool_calls":)"
        R"([{{"name":"pay","arguments":{{"euros":{}}}}}]}}]}})",
        id, euros);
  };
  const char* const large = "123456789012345678901234567890";
  EXPECT_NE(learned_text(minimind(), record(large, "250")).find(R"({"euros": 250})"), std::string::npos);
  EXPECT_NE(learned_text(minimind(), record("1", large)).find("64 bits"), std::string::npos);
}

TEST(TrainingChats, ThinkingOfAUserUnlearnsNoAnswer) {
  SKIP_WITHOUT(testing::shared_data() / "tokenizers/minimind");
  ChatConfig config = qwen3();
  config.learn_thinking = false;
  EXPECT_EQ(
      learned_text(
          config,
          R"({"messages":[{"role":"user","content":"What is <think>?"},{"role":"assistant","content":"A tag."},)"
          R"({"role":"user","content":"b"},{"role":"assistant","content":"two","reasoning_content":"hm"}]})"),
      "A tag.<|im_end|>two<|im_end|>");
}

TEST(TrainingChats, APromptBesideAConversationIsNotLost) {
  SKIP_WITHOUT(testing::shared_data() / "tokenizers/minimind");
  const auto tokenizer = load_tokenizer(testing::shared_data() / "tokenizers/minimind");
  DataConfig data;
  data.preferences = Preferences::kChosen;
  const auto text = [&](std::string record) {
    record.reserve(record.size() + kRecordPadding);
    Record whole;
    whole.bytes = record;
    Rendered out;
    make_json_renderer(data, *tokenizer, std::make_shared<ChatTemplate>(minimind(), *tokenizer))
        ->render(whole, out);
    return out.bad == BadKind::kNone ? tokenizer->decode(out.ids) : out.why;
  };
  const std::string answer = R"({"role":"assistant","content":"A"})",
                    question = R"({"role":"user","content":"Q"})";
  EXPECT_NE(
      text(R"({"prompt":"Q","chosen":[)" + answer + "," + question + "," + answer + R"(],"rejected":"x"})")
          .find("user\nQ<|im_end|>\n<|im_start|>assistant\nA"),
      std::string::npos);
  EXPECT_NE(text(R"({"prompt":"other","chosen":[)" + question + "," + answer + R"(],"rejected":"x"})")
                .find("'prompt'"),
            std::string::npos);
  EXPECT_NE(text(R"({"messages":[)" + question + "," + answer + R"(],"chosen":"c","rejected":"x"})")
                .find("'chosen'"),
            std::string::npos);
}

TEST(TrainingChats, PreferencePairsNeedAChoice) {
  SKIP_WITHOUT(testing::shared_data() / "tokenizers/minimind");
  const std::string record = R"({"prompt":"q","chosen":"good","rejected":"bad"})";
  EXPECT_NE(learned_text(qwen3(), record).find("data.preferences"), std::string::npos);
}

}  // namespace
}  // namespace tightloop
