#include "data/mixture.h"

#include <fstream>
#include <map>

#include "core/random.h"
#include "data/batch/loader.h"
#include "data/byte_tokenizer.h"
#include "data/dataset.h"
#include "data/store/mixed_documents.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
using testing::TempFolder;
using Tokens = std::vector<int32_t>;

std::shared_ptr<TokenStore> documents(int count, int32_t first, bool masked = false) {
  auto store = std::make_shared<TokenStore>(100000);
  Random random(first);
  for (int i = 0; i < count; ++i) {
    const Tokens ids(1 + random.below(9), first + i);
    store->append(ids, masked ? std::vector<uint8_t>(ids.size(), i % 2) : std::vector<uint8_t>());
  }
  return store;
}

TEST(MixedDocuments, AreTheSourcesOneAfterAnotherAsOftenAsAsked) {
  const auto a = documents(10, 1000), b = documents(4, 2000, true), none = documents(0, 0);
  const MixedDocuments mixed({{a, 1, 0}, {none, 3, 0}, {b, 2.5, 0}, {a, 1, 3}});
  Tokens wanted_first, wanted_source;
  for (int i = 0; i < 10; ++i) wanted_first.push_back(1000 + i), wanted_source.push_back(0);
  for (const int i : {0, 1, 2, 3, 0, 1, 2, 3, 0, 1})
    wanted_first.push_back(2000 + i), wanted_source.push_back(2);
  for (int i = 0; i < 3; ++i) wanted_first.push_back(1000 + i), wanted_source.push_back(3);
  ASSERT_EQ(mixed.size(), wanted_first.size());
  Tokens all(mixed.tokens()), slow;
  std::vector<uint8_t> mask(all.size()), slow_mask;
  mixed.read(0, all.size(), all.data());
  for (uint64_t i = 0; i < mixed.size(); ++i) {
    const uint64_t begin = mixed.begin(i);
    EXPECT_EQ(all[begin], wanted_first[i]);
    EXPECT_EQ(mixed.source(i), wanted_source[i]);
    EXPECT_EQ(mixed.source_at(begin), wanted_source[i]);
    EXPECT_EQ(mixed.document_at(begin), i);
    slow.insert(slow.end(), mixed.length(i), wanted_first[i]);
    slow_mask.insert(slow_mask.end(), mixed.length(i), wanted_source[i] == 2 ? wanted_first[i] % 2 : 1);
  }
  EXPECT_EQ(all, slow);
  const uint64_t ones = mixed.read_mask(0, mask.size(), mask.data());
  EXPECT_EQ(mask, slow_mask);
  EXPECT_EQ(ones, static_cast<uint64_t>(std::count(mask.begin(), mask.end(), 1)));
}

TEST(Mixture, SaysHowOftenASourceComes) {
  DataConfig config;
  config.mixture = {"name=large weight=1", "name=small weight=0.5"};
  const auto entries = parse_mixture(config);
  const auto passes = epochs_by_weight({900, 10}, {1, 0.5});
  const auto said = mixture_text(entries, {900, 10}, passes);
  ASSERT_EQ(said.lines.size(), 2u);
  EXPECT_EQ(said.lines[1], "'small': 10 documents, 33.3 % of an epoch's documents, which has them 45 times.");
  ASSERT_EQ(said.warnings.size(), 1u);
  EXPECT_NE(said.warnings[0].find("repeats the 10 documents of 'small' 45 times"), std::string::npos);
  EXPECT_TRUE(mixture_text(entries, {900, 10}, {1, 4}).warnings.empty());
  config.mixture = {"name=large", "name=small epochs=9"};
  EXPECT_TRUE(mixture_text(parse_mixture(config), {900, 10}, {1, 9}).warnings.empty()) << "as was asked for";
}

TEST(MixedDocuments, WeightsAreSharesAndNothingIsLeftOut) {
  const auto epochs = epochs_by_weight({1000, 100, 0}, {1, 1, 1});
  EXPECT_DOUBLE_EQ(epochs[0], 1);
  EXPECT_DOUBLE_EQ(epochs[1], 10);
  EXPECT_DOUBLE_EQ(epochs[2], 0);
  const auto more = epochs_by_weight({1000, 100}, {1, 4});
  EXPECT_DOUBLE_EQ(more[0], 1);
  EXPECT_DOUBLE_EQ(more[1], 40);
}

struct Files {
  TempFolder folder;
  ByteTokenizer tokenizer{{"<|im_start|>", "<|im_end|>"}};
  DataConfig config;

  Files() {
    std::ofstream a(folder / "a.jsonl"), b(folder / "b.txt");
    for (int i = 0; i < 300; ++i)
      a << R"({"question":"q)" << i << R"(","answer":"a"})"
        << "\n";
    for (int i = 0; i < 100; ++i) b << "text " << i << "\n";
    config.holdout = 0;
    config.rows = RowKind::kPad;
    config.seq_len = 64;
  }
  std::string a() const { return "name=talk source=jsonl train=" + (folder / "a.jsonl").string(); }
  std::string b() const {
    return "name=prose source=text documents=line train=" + (folder / "b.txt").string();
  }
};

TEST(Mixture, RowsKnowTheirSource) {
  Files files;
  files.config.mixture = {files.a() + " weight=1", files.b() + " weight=3",
                          "name=sums source=tasks weight=1 cap=60"};
  TasksConfig tasks;
  tasks.questions = 500;
  const Dataset dataset = load_dataset(files.config, tasks, files.tokenizer);
  EXPECT_EQ(dataset.sources, (std::vector<std::string>{"talk", "prose", "sums"}));
  EXPECT_EQ(dataset.train->size(), 300u + 900 + 300);
  LoaderOptions options = loader_options(files.config);
  options.rows = 10;
  Loader loader(dataset.train, options);
  std::map<int32_t, int> rows;
  for (int64_t i = 0; i < loader.batches(); ++i) {
    const Batch& batch = loader.next();
    for (int64_t r = 0; r < batch.rows; ++r) {
      ++rows[batch.sources[r]];
      const int32_t first = batch.inputs[r * batch.length];
      const bool talk = first == files.tokenizer.token_id("<|im_start|>");
      EXPECT_EQ(batch.sources[r] == 0, talk);
      EXPECT_TRUE(batch.sources[r] != 1 || first == 't');
    }
  }
  EXPECT_EQ(rows, (std::map<int32_t, int>{{0, 300}, {1, 900}, {2, 300}}));
  EXPECT_GT(dataset.val->size(), 0u);  // of the tasks
}

TEST(Mixture, EpochsAndCaps) {
  Files files;
  files.config.mixture = {files.a() + " cap=50 epochs=2", files.b()};
  EXPECT_EQ(load_dataset(files.config, {}, files.tokenizer).train->size(), 200u);
}

TEST(Mixture, HeldOutDocumentsAreNotLearned) {
  Files files;
  files.config.holdout = 0.2;
  files.config.mixture = {files.a(), files.b()};
  const Dataset dataset = load_dataset(files.config, {}, files.tokenizer);
  EXPECT_EQ(dataset.train->size() + dataset.val->size(), 400u);
  EXPECT_GT(dataset.val->size(), 40u);
}

TEST(Mixture, MistakesAreNamed) {
  Files files;
  files.config.mixture = {"sorce=jsonl"};
  auto message = testing::error_of(ExitCode::kUsage, [&] { parse_mixture(files.config); });
  EXPECT_NE(message.find("'source'"), std::string::npos) << message;
  files.config.mixture = {"weight"};
  testing::error_of(ExitCode::kUsage, [&] { parse_mixture(files.config); });
  files.config.mixture = {files.a() + " weight=1", files.b()};
  testing::error_of(ExitCode::kUsage, [&] { parse_mixture(files.config); });
  files.config.mixture = {"epochs=-1"};
  testing::error_of(ExitCode::kUsage, [&] { parse_mixture(files.config); });
}

TEST(Dataset, TheCacheGivesTheSameDocuments) {
  Files files;
  files.config.source = DataSource::kJsonl;
  files.config.train = {(files.folder / "a.jsonl").string()};
  files.config.holdout = 0.1;
  const Dataset memory = load_dataset(files.config, {}, files.tokenizer);
  files.config.cache = (files.folder / "cache").string();
  for (int again = 0; again < 2; ++again) {
    const Dataset cached = load_dataset(files.config, {}, files.tokenizer);
    ASSERT_EQ(cached.train->tokens(), memory.train->tokens());
    ASSERT_EQ(cached.val->size(), memory.val->size());
    Tokens a(memory.train->tokens()), b(a.size());
    memory.train->read(0, a.size(), a.data());
    cached.train->read(0, b.size(), b.data());
    EXPECT_EQ(a, b);
  }
}

TEST(Spelling, SpellsAndCountsRight) {
  DataConfig config;
  config.source = DataSource::kSpelling;
  TasksConfig tasks;
  tasks.questions = 400, tasks.held_out = 50;
  const ByteTokenizer tokenizer({"<|im_start|>", "<|im_end|>"});
  const Dataset dataset = load_dataset(config, tasks, tokenizer);
  ASSERT_EQ(dataset.train->size(), 400u);
  ASSERT_EQ(dataset.val->size(), 50u);
  std::map<std::string, int> questions;
  int counting = 0;
  for (const auto& part : {dataset.train, dataset.val})
    for (uint64_t i = 0; i < part->size(); ++i) {
      Tokens ids(part->length(i));
      part->read(part->begin(i), ids.size(), ids.data());
      const std::string text = tokenizer.decode(ids);
      const size_t user = text.find("user\n") + 5;
      const std::string question = text.substr(user, text.find("<|im_end|>") - user);
      EXPECT_TRUE(part == dataset.train || questions.count(question) == 0) << question;
      if (part == dataset.train) ++questions[question];
      const std::string word = question.substr(question.find_last_of(' ') + 1,
                                               question.find('?') - question.find_last_of(' ') - 1);
      if (question.starts_with("How many ")) {
        ++counting;
        const auto count = std::count(word.begin(), word.end(), question[9]);
        EXPECT_NE(text.find("So the answer is " + std::to_string(count) + "."), std::string::npos) << text;
      } else {
        std::string spelled = word + ":";
        for (const char c : word) spelled += std::string{c, ','};
        spelled.pop_back();
        EXPECT_NE(text.find("\n" + spelled + "<"), std::string::npos) << text;
      }
    }
  EXPECT_NEAR(counting, 225, 60);
}

TEST(Mixture, NamesAreTextAndDifferentOnes) {
  DataConfig config;
  config.mixture = {"name=a source=tasks", "source=tasks", "name=source2 source=tasks"};
  const auto message = testing::error_of(ExitCode::kUsage, [&] { parse_mixture(config); });
  EXPECT_NE(message.find("entries 2 and 3 have the name 'source2'"), std::string::npos) << message;
  config.mixture = {"name=a\xff source=tasks"};
  EXPECT_NE(testing::error_of(ExitCode::kUsage, [&] { parse_mixture(config); }).find("UTF-8"),
            std::string::npos);
}

}  // namespace
}  // namespace tightloop
