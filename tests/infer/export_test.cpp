#include "infer/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/files.h"
#include "core/version.h"
#include "data/render/chat.h"
#include "infer/chat_session.h"
#include "infer/loaded_run.h"
#include "support.h"
#include "tokenizer/bpe_train.h"
#include "tokenizer/jinja.h"
#include "train/small_recipe.h"
#include "train/trainer.h"
#include "train/watch/run_log.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;
using Json = nlohmann::json;

Json json_of(const fs::path& file) { return Json::parse(read_file(file)); }

/// A byte a token, then these.
std::vector<std::string> tokens_of(ChatForm form) {
  if (form != ChatForm::kNanochat) return {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  return {"<|bos|>",           "<|user_start|>",   "<|user_end|>",   "<|assistant_start|>",
          "<|assistant_end|>", "<|python_start|>", "<|python_end|>", "<|output_start|>",
          "<|output_end|>"};
}

Recipe chat_recipe(ChatForm form, const fs::path& folder) {
  BpeTrainOptions options;
  options.special_tokens = tokens_of(form);
  options.vocab_size = 256 + static_cast<int32_t>(options.special_tokens.size());
  make_folder(folder / "tokenizer");
  train_bpe(options, [](std::string&) { return false; })->save(folder / "tokenizer");
  Recipe recipe = testing::small_recipe();
  recipe.tokenizer.path = (folder / "tokenizer").string();
  recipe.chat.form = form, recipe.data.source = DataSource::kSpelling, recipe.data.loss_after = "";
  recipe.data.rows = RowKind::kPack, recipe.data.seq_len = 128;
  recipe.train.steps = 4, recipe.train.logging_steps = 2, recipe.train.micro_batch = 2;
  recipe.run.name = "talk";
  return recipe;
}

RunFolder trained_run(const Recipe& recipe, const fs::path& root) {
  const auto run = RunFolder::create(root, false);
  Trainer(recipe, run).run();
  return run;
}

TEST(Export, AChatModelEndsAtItsTurnAndAtTheEndOfText) {
  for (const ChatForm form : {ChatForm::kChatml, ChatForm::kMinimind, ChatForm::kNanochat}) {
    SCOPED_TRACE(name_of(form));
    const TempFolder folder;
    const auto run = trained_run(chat_recipe(form, folder.path()), folder / "run");
    export_model(run.root(), folder / "hf", {});
    const bool nanochat = form == ChatForm::kNanochat;
    const Json expected =
        nanochat ? Json{{"eos_token_id", {260, 256}}, {"bos_token_id", 256}, {"pad_token_id", 256}}
                 : Json{{"eos_token_id", {258, 256}}, {"pad_token_id", 256}};
    EXPECT_EQ(json_of(folder / "hf/generation_config.json"), expected);
    const Json config = json_of(folder / "hf/tokenizer_config.json");
    EXPECT_EQ(config.at("eos_token"), nanochat ? "<|assistant_end|>" : "<|im_end|>");
    EXPECT_EQ(config.at("pad_token"), nanochat ? "<|bos|>" : "<|endoftext|>");
    EXPECT_EQ(config.value("bos_token", ""), nanochat ? "<|bos|>" : "");
    EXPECT_EQ(json_of(folder / "hf/config.json").at("eos_token_id"), nanochat ? 260 : 258);

    // What the program itself stops at: of the run, and of its export read back.
    const auto stops = [](const fs::path& model) {
      auto ids = stop_tokens(load_model(model, "cpu"));
      std::ranges::sort(ids);
      return ids;
    };
    EXPECT_EQ(stops(run.root()), nanochat ? (std::vector{256, 260}) : (std::vector{256, 258}));
    EXPECT_EQ(stops(folder / "hf"), stops(run.root()));

    // The template is that of training.
    const auto tokenizer = load_tokenizer(run.tokenizer());
    const std::vector<Message> messages{{Role::kSystem, "Be brief."},
                                        {Role::kUser, " Hi\n"},
                                        {Role::kAssistant, "Yes?"},
                                        {Role::kUser, "Spell: tree"}};
    const auto rendered = testing::render_jinja(
        config.at("chat_template").get<std::string>(),
        R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi\n"},
            {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Spell: tree"}],
            "add_generation_prompt": true})");
    EXPECT_EQ(tokenizer->encode(rendered.text),
              ChatTemplate(SavedModel(run.root()).recipe().chat, *tokenizer).prompt(messages));
  }
}

TEST(Export, AModelOfTextEndsAtTheEndOfText) {
  const TempFolder folder;
  Recipe recipe = chat_recipe(ChatForm::kChatml, folder.path());
  recipe.data.source = DataSource::kTasks;
  const auto run = trained_run(recipe, folder / "run");
  EXPECT_FALSE(SavedModel(run.root()).metadata().contains("end_of_turn"));
  export_model(run.root(), folder / "hf", {});
  EXPECT_EQ(json_of(folder / "hf/tokenizer_config.json").at("eos_token"), "<|endoftext|>");
  EXPECT_EQ(json_of(folder / "hf/config.json").at("eos_token_id"), 256);
  EXPECT_EQ(json_of(folder / "hf/generation_config.json").at("eos_token_id"), Json({256, 258}));
}

/// A Hugging Face folder as others write it, with settings for generation that our program does not know.
fs::path imported_folder(const TempFolder& folder, const Json& generation) {
  const auto run = trained_run(chat_recipe(ChatForm::kChatml, folder.path()), folder / "first");
  export_model(run.root(), folder / "Qwen-like", {});
  const fs::path hf = folder / "Qwen-like";
  if (generation.is_null())
    fs::remove(hf / "generation_config.json");
  else
    testing::write_file(hf / "generation_config.json", generation.dump());
  Json config = json_of(hf / "tokenizer_config.json");
  config.update({{"bos_token", "<|im_start|>"},
                 {"eos_token", {{"content", "<|im_end|>"}, {"lstrip", false}}},
                 {"pad_token", "<|endoftext|>"},
                 {"unk_token", "<|endoftext|>"}});
  testing::write_file(hf / "chat_template.jinja",
                      config["chat_template"].get<std::string>() + "{# theirs #}\n");
  config.erase("chat_template");
  testing::write_file(hf / "tokenizer_config.json", config.dump());
  return hf;
}

Recipe tuned_recipe(const TempFolder& folder, const fs::path& from) {
  Recipe recipe = chat_recipe(ChatForm::kChatml, folder.path());
  recipe.train.init_from = from.string(), recipe.train.steps = 2, recipe.lora.rank = 2;
  recipe.chat.form = ChatForm::kAuto;
  recipe.model = SavedModel(from).recipe().model, recipe.tokenizer.path = from.string();
  return recipe;
}

TEST(Export, AnImportedGenerationConfigSurvivesFineTuning) {
  const TempFolder folder;
  const Json generation{{"bos_token_id", 3},
                        {"do_sample", true},
                        {"eos_token_id", {258, 10}},
                        {"temperature", 0.6},
                        {"top_k", 20},
                        {"top_p", 0.95},
                        {"_from_model_config", true},
                        {"transformers_version", "4.51.0"},
                        {"suppress_tokens", nullptr},
                        {"some_day", {{"a", {1, 2.5, "x"}}}}};
  const fs::path hf = imported_folder(folder, generation);
  const std::string jinja = read_file(hf / "chat_template.jinja");
  const auto first = trained_run(tuned_recipe(folder, hf), folder / "tuned");
  fs::remove_all(hf);
  Recipe again = tuned_recipe(folder, first.root());  // a stage further on, without the folder
  again.tokenizer.path = first.tokenizer().string();
  const auto second = trained_run(again, folder / "again");
  fs::remove_all(first.root());

  auto run = load_model(second.root(), "cpu");
  EXPECT_EQ(stop_tokens(run), (std::vector{256, 258, 10}));
  export_model(second.root(), folder / "out", {});
  Json expected = generation;
  expected.erase("_from_model_config");  // with it, transformers forgets the rest
  expected["eos_token_id"] = {258, 10, 256}, expected["pad_token_id"] = 256;
  EXPECT_EQ(json_of(folder / "out/generation_config.json"), expected);
  const Json config = json_of(folder / "out/tokenizer_config.json");
  EXPECT_EQ(config.at("bos_token"), "<|im_start|>");
  EXPECT_EQ(config.at("eos_token"), "<|im_end|>");
  EXPECT_EQ(config.at("pad_token"), "<|endoftext|>");
  EXPECT_EQ(config.at("unk_token"), "<|endoftext|>");
  EXPECT_EQ(json_of(folder / "out/config.json").at("bos_token_id"), 257);
  EXPECT_EQ(read_file(folder / "out/chat_template.jinja"), jinja);
  EXPECT_FALSE(config.contains("chat_template")) << "there is one template";
  const std::string card = read_file(folder / "out/README.md");
  EXPECT_NE(card.find("\nbase_model: \"Qwen-like\"\n"), card.npos) << card;

  // And from folder to folder, without training.
  export_model(folder / "out", folder / "copy", {});
  for (const char* file : {"generation_config.json", "tokenizer_config.json", "config.json", "README.md"})
    EXPECT_EQ(read_file(folder / "out" / file), read_file(folder / "copy" / file)) << file;
}

TEST(Export, AnotherFormTakesThePlaceOfAnImportedTemplate) {
  const TempFolder folder;
  const fs::path hf = imported_folder(folder, nullptr);
  make_folder(hf / "additional_chat_templates");
  testing::write_file(hf / "additional_chat_templates/rag.jinja", "R");
  Recipe recipe = tuned_recipe(folder, hf);
  recipe.chat.form = ChatForm::kOwn, recipe.chat.user = "U {content}\n",
  recipe.chat.assistant = "A {content}<|im_end|>\n";
  const auto run = trained_run(recipe, folder / "run");
  export_model(run.root(), folder / "out", {});
  const auto rendered = testing::render_jinja(read_file(folder / "out/chat_template.jinja"),
                                              R"({"messages": [{"role": "user", "content": "Hi"}]})");
  EXPECT_EQ(rendered.text, "U Hi\n");
  EXPECT_FALSE(fs::exists(folder / "out/additional_chat_templates"));
}

TEST(Export, WithoutAGenerationConfigTheIdsOfConfigJsonCount) {
  const TempFolder folder;
  const fs::path hf = imported_folder(folder, nullptr);
  Json config = json_of(hf / "config.json");
  config["eos_token_id"] = {65, 66};
  testing::write_file(hf / "config.json", config.dump());
  EXPECT_EQ(stop_tokens(load_model(hf, "cpu")), (std::vector{256, 258, 65, 66}));
  testing::write_file(hf / "generation_config.json", R"({"temperature": 0.5})");
  EXPECT_EQ(stop_tokens(load_model(hf, "cpu")), (std::vector{256, 258, 65, 66}));
  testing::write_file(hf / "generation_config.json", R"({"eos_token_id": 67})");
  EXPECT_EQ(stop_tokens(load_model(hf, "cpu")), (std::vector{256, 258, 67}));
  // Ids that nothing is done with are not checked, and go along as they are.
  const char* odd = R"({"bos_token_id": ["x"], "eos_token_id": 67, "pad_token_id": 1000000000000})";
  testing::write_file(hf / "generation_config.json", odd);
  export_model(hf, folder / "odd", {});
  Json expected = Json::parse(odd);
  expected["eos_token_id"] = {67, 258, 256};
  EXPECT_EQ(json_of(folder / "odd/generation_config.json"), expected);
  for (const char* bad : {R"({"eos_token_id": [1, 100000]})", R"({"eos_token_id": "x"})", "[1]", "{"}) {
    testing::write_file(hf / "generation_config.json", bad);
    const auto message = error_of(ExitCode::kCheckpoint, [&] { SavedModel{hf}; });
    EXPECT_NE(message.find("generation_config.json"), message.npos) << message;
  }
}

TEST(Export, TheModelCardSaysWhatTheRunRecorded) {
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines += R"({"prompt": "Say )" + std::to_string(i) + R"(", "completion": "It is )" + std::to_string(i) +
             "\"}\n";
  lines += "no JSON\n";
  make_folder(folder / "private");
  testing::write_file(folder / "private/chats.jsonl", lines);
  Recipe recipe = chat_recipe(ChatForm::kChatml, folder.path());
  recipe.data.source = DataSource::kJsonl, recipe.data.train = {(folder / "private/chats.jsonl").string()};
  recipe.data.on_bad_record = OnBadRecord::kSkip, recipe.data.holdout = 0.2;
  recipe.train.stage = "sft", recipe.train.save_steps = 2, recipe.train.keep_checkpoints = 9;
  const auto run = trained_run(recipe, folder / "run");
  export_model(run.root(), folder / "mine", {.dtype = at::kFloat, .step = 2});
  const std::string card = read_file(folder / "mine/README.md");
  const SavedModel saved(run.root(), 2);
  const Json counts = saved.metadata().at("documents");
  const auto says = [&](const std::string& text) {
    EXPECT_NE(card.find(text), card.npos) << text << " is not in\n" << card;
  };
  EXPECT_TRUE(card.starts_with("---\nlibrary_name: transformers\npipeline_tag: text-generation\n")) << card;
  EXPECT_EQ(card.find("base_model"), card.npos) << "it was trained from scratch";
  says("AutoModelForCausalLM.from_pretrained(\"mine\")"), says("apply_chat_template");
  says("| steps | 2 of 4 |"), says("| stage | sft |");
  says("| trained by Tightloop | " + std::string(kVersion) + " |");
  says("| chats.jsonl | train | " + std::to_string(lines.size()) + " |");
  says("| training | " + counts["train"]["documents"].dump() + " | " + counts["train"]["tokens"].dump() +
       " |");
  says("1 record could not be used");
  says("  train: [\"chats.jsonl\"]"), says("  micro_batch: 2");
  EXPECT_EQ(card.find(folder.path().string()), card.npos) << "a card is made to be shown";

  // Metrics are those of the checkpoint's step, not of the run's end.
  for (const auto& line : JsonLinesReader(run.metrics()).read()) {
    if (!line.contains("training/loss")) continue;
    const auto row = fmt::format("| training/loss | {:.6g} | {} |", line["training/loss"].get<double>(),
                                 line["global_step"].get<int>());
    EXPECT_EQ(card.find(row) != card.npos, line["global_step"] == 2) << row << "\n" << card;
  }
}

TEST(Export, ACardOfAFamilyThatTransformersLacksSaysSo) {
  const TempFolder folder;
  Recipe recipe = chat_recipe(ChatForm::kNanochat, folder.path());
  recipe.model.family = "nanochat", recipe.model.heads = 2;
  const auto run = trained_run(recipe, folder / "run");
  export_model(run.root(), folder / "mine", {});
  const std::string card = read_file(folder / "mine/README.md");
  EXPECT_TRUE(card.starts_with("---\nlibrary_name: tightloop\n")) << card;
  EXPECT_NE(card.find("tightloop chat --model mine"), card.npos) << card;
  EXPECT_EQ(card.find("AutoModel"), card.npos) << card;
}

}  // namespace
}  // namespace tightloop
