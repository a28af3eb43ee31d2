#include "data/batch/fit.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/files.h"
#include "data/batch/loader.h"
#include "data/byte_tokenizer.h"
#include "data/render/render.h"
#include "data/store/mixed_documents.h"
#include "data/store/nanochat_order.h"
#include "support.h"

namespace tightloop {
namespace {

using nlohmann::json;
using Tokens = std::vector<int32_t>;

constexpr int32_t kBosId = 257;

const json& nanochat_golden() {
  static const json file = json::parse(read_file(testing::source_folder() / "tests/golden/nanochat.json"));
  return file;
}

struct FitRow {
  Tokens inputs, targets, bounds;
  std::vector<uint8_t> mask;
  RowFacts facts;
};

FitRow fill_fit(const RowPlan& plan, uint64_t row) {
  const auto length = static_cast<size_t>(plan.length());
  FitRow out{
      Tokens(length, -7), Tokens(length, -7), Tokens(length + 1, -7), std::vector<uint8_t>(length, 9), {}};
  out.facts =
      plan.fill(row, 0, {out.inputs.data(), out.targets.data(), out.mask.data(), out.bounds.data(), 0});
  return out;
}

/// Documents of [BOS, 1000 + n, 1000 + n, ...].
std::shared_ptr<TokenStore> numbered_after_bos(const std::vector<int>& lengths) {
  auto store = std::make_shared<TokenStore>(1 << 20);
  for (size_t n = 0; n < lengths.size(); ++n) {
    Tokens ids(lengths[n], 1000 + static_cast<int32_t>(n));
    ids[0] = kBosId;
    store->append(ids, {});
  }
  return store;
}

TEST(FitRows, AreThoseOfNanochatsBaseLoader) {
  const json& base = nanochat_golden()["base"];
  const auto plan =
      make_row_plan(RowKind::kFitCrop, numbered_after_bos(base["lengths"]), base["seq_len"], kBosId, {});
  ASSERT_GT(plan->rows(), base["rows"].size());
  for (size_t r = 0; r < base["rows"].size(); ++r) {
    Tokens expected;
    for (const auto& piece : base["rows"][r]) {
      expected.push_back(kBosId);
      expected.insert(expected.end(), piece[1].get<size_t>() - 1, 1000 + piece[0].get<int32_t>());
    }
    const FitRow row = fill_fit(*plan, r);
    Tokens whole = row.inputs;
    whole.push_back(row.targets.back());
    ASSERT_EQ(whole, expected) << "row " << r;
    ASSERT_TRUE(std::equal(row.inputs.begin() + 1, row.inputs.end(), row.targets.begin())) << "row " << r;
    ASSERT_EQ(row.mask, std::vector<uint8_t>(plan->length(), 1)) << "row " << r;
    ASSERT_EQ(row.facts.supervised, plan->length());
  }
}

TEST(FitRows, AreThoseOfNanochatsSftLoader) {
  const json& sft = nanochat_golden()["sft"];
  const testing::ByteTokenizer tokenizer(sft["special_tokens"]);
  DataConfig config;
  config.format = RecordFormat::kChat;
  ChatConfig chat;
  chat.form = ChatForm::kNanochat;
  const auto renderer =
      make_json_renderer(config, tokenizer, std::make_shared<ChatTemplate>(chat, tokenizer));
  auto store = std::make_shared<TokenStore>(tokenizer.vocab_size());
  for (const auto& conversation : sft["conversations"]) {
    RecordBatch batch;
    const std::string text = conversation.dump();
    Record record;
    record.bytes = text;
    batch.add(record);
    Rendered rendered;
    renderer->render(batch[0], rendered);
    ASSERT_EQ(rendered.bad, BadKind::kNone) << rendered.why;
    store->append(rendered.ids, rendered.mask);
  }
  const auto plan = make_row_plan(RowKind::kFitPad, store, sft["seq_len"], kBosId, {});
  ASSERT_GT(plan->rows(), sft["rows"].size());
  for (size_t r = 0; r < sft["rows"].size(); ++r) {
    const FitRow row = fill_fit(*plan, r);
    Tokens targets = row.targets;
    for (size_t i = 0; i < targets.size(); ++i)
      if (!row.mask[i]) targets[i] = -1;
    ASSERT_EQ(row.inputs, sft["rows"][r][0].get<Tokens>()) << "row " << r;
    ASSERT_EQ(targets, sft["rows"][r][1].get<Tokens>()) << "row " << r;
  }
}

TEST(FitRows, APassHasEveryDocumentOnce) {
  std::vector<int> lengths;
  Random random(1);
  for (int i = 0; i < 3000; ++i) lengths.push_back(2 + static_cast<int>(random.below(40)));
  for (const auto kind : {RowKind::kFitCrop, RowKind::kFitPad}) {
    for (const std::optional<uint64_t> seed : {std::optional<uint64_t>(), std::optional<uint64_t>(9)}) {
      const RowFit fit(*numbered_after_bos(lengths), kind, 24, seed);
      std::set<uint64_t> begins;
      for (const FitPiece& piece : fit.pieces) begins.insert(piece.position);
      EXPECT_EQ(begins.size(), fit.pieces.size());
      EXPECT_EQ(begins.size(), lengths.size());
      for (size_t r = 0; r + 1 < fit.row_begins.size(); ++r) {
        int64_t tokens = 0;
        for (uint64_t i = fit.row_begins[r]; i < fit.row_begins[r + 1]; ++i) tokens += fit.pieces[i].count;
        EXPECT_LE(tokens, 25);
        EXPECT_GE(tokens, 2);
      }
      EXPECT_GT(fit.cut_tokens, 0u);
    }
  }
}

TEST(FitRows, LongDocumentsAreCutAndRestsArePadded) {
  // fit_pad: cut at 8 tokens; nothing fits behind it but the 1 that is left of a row's 9.
  const auto padded = make_row_plan(RowKind::kFitPad, numbered_after_bos({12, 3}), 8, 7, {});
  ASSERT_EQ(padded->rows(), 2u);
  const FitRow first = fill_fit(*padded, 0);
  EXPECT_EQ(first.inputs, (Tokens{kBosId, 1000, 1000, 1000, 1000, 1000, 1000, 1000}));
  EXPECT_EQ(first.targets, (Tokens{1000, 1000, 1000, 1000, 1000, 1000, 1000, 7}));
  EXPECT_EQ(first.mask, (std::vector<uint8_t>{1, 1, 1, 1, 1, 1, 1, 0}));
  const FitRow second = fill_fit(*padded, 1);
  EXPECT_EQ(second.inputs, (Tokens{kBosId, 1001, 1001, 7, 7, 7, 7, 7}));
  EXPECT_EQ(second.mask, (std::vector<uint8_t>{1, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(second.facts.padding, 5);
  EXPECT_EQ(second.facts.documents, 1);
  EXPECT_EQ(second.bounds[0], 8);
  EXPECT_EQ(padded->cut_tokens(), 4u);
  // fit_crop: 5 of 9 from the first that fits, the rest from the shortest.
  const auto cropped = make_row_plan(RowKind::kFitCrop, numbered_after_bos({12, 5, 10}), 8, 7, {});
  ASSERT_EQ(cropped->rows(), 2u);
  EXPECT_EQ(fill_fit(*cropped, 0).inputs, (Tokens{kBosId, 1001, 1001, 1001, 1001, kBosId, 1002, 1002}));
  EXPECT_EQ(fill_fit(*cropped, 0).targets, (Tokens{1001, 1001, 1001, 1001, kBosId, 1002, 1002, 1002}));
  EXPECT_EQ(fill_fit(*cropped, 1).targets.back(), 1000);
  EXPECT_EQ(cropped->cut_tokens(), 6u + 3u);
  EXPECT_EQ(cropped->padding_share(), 0);
  EXPECT_THROW(make_row_plan(RowKind::kFitCrop, numbered_after_bos({}), 8, 0, {}), Error);
}

// The order is a function of the place: any batch, from any start, pass after pass.
TEST(FitRows, KeepTheirOrderInTheLoader) {
  std::vector<int> lengths;
  Random random(2);
  for (int i = 0; i < 400; ++i) lengths.push_back(2 + static_cast<int>(random.below(30)));
  const auto documents = numbered_after_bos(lengths);
  LoaderOptions options;
  options.rows = 3, options.seq_len = 20, options.rows_kind = RowKind::kFitCrop, options.keep_order = true;
  options.threads = 0;
  Loader loader(documents, options);
  const auto rows = static_cast<int64_t>(loader.plan().rows());
  for (int64_t k = 0; k < rows; ++k) {  // three passes
    const Batch& batch = loader.next();
    for (int64_t r = 0; r < 3; ++r)
      ASSERT_TRUE(std::equal(batch.inputs + r * 20, batch.inputs + r * 20 + 20,
                             fill_fit(loader.plan(), (3 * k + r) % rows).inputs.begin()));
  }
  options.first_batch = 17;
  Loader later(documents, options);
  const Batch& batch = later.next();
  EXPECT_TRUE(std::equal(batch.inputs, batch.inputs + 20, fill_fit(later.plan(), 51 % rows).inputs.begin()));
}

// Documents of several sources in the order of nanochat's mixture: each is one token, its number in its
// source.
TEST(NanochatOrder, IsThatOfItsMixture) {
  const json& mixture = nanochat_golden()["mixture"];
  std::vector<MixedDocuments::Source> sources;
  std::vector<std::string> names;
  for (const auto& source : mixture["sources"]) {
    auto store = std::make_shared<TokenStore>(1 << 20);
    for (int32_t i = 0; i < source[1].get<int32_t>(); ++i)
      store->append(Tokens{i, 7}, std::vector<uint8_t>{1, 0});
    sources.push_back({store, source[2].get<double>(), 0});
    names.push_back(source[0]);
  }
  const auto mixed = std::make_shared<MixedDocuments>(sources);
  const ReorderedDocuments ordered(mixed, nanochat_order(mixed->part_sizes()));
  ASSERT_EQ(ordered.size(), mixture["order"].size());
  for (uint64_t i = 0; i < ordered.size(); ++i) {
    int32_t ids[2];
    uint8_t mask[2];
    ordered.read(ordered.begin(i), 2, ids);
    EXPECT_EQ(ordered.read_mask(ordered.begin(i), 2, mask), 1u);
    ASSERT_EQ(names.at(ordered.source(i)) + std::to_string(ids[0]), mixture["order"][i]) << "place " << i;
    EXPECT_EQ(ids[1], 7);
  }
  Tokens all(ordered.tokens());
  ordered.read(0, all.size(), all.data());
  EXPECT_EQ(std::ranges::count(all, 7), static_cast<int64_t>(ordered.size()) + 1 + 3 + 2)
      << "three sources have a 7";
}

// Texts between tokens of the user's choice.
TEST(TextMarks, StandAroundTexts) {
  const testing::ByteTokenizer tokenizer({"<|bos|>", "<|eos|>"});
  const auto ids = [&](const char* begin, const char* end, bool first = true, bool last = true) {
    DataConfig config;
    config.begin_token = begin, config.end_token = end;
    Record record;
    record.bytes = "ab", record.first = first, record.last = last;
    Rendered rendered;
    make_text_renderer(config, tokenizer)->render(record, rendered);
    EXPECT_EQ(rendered.bad, BadKind::kNone) << rendered.why;
    return rendered.ids;
  };
  EXPECT_EQ(ids("none", "auto"), (Tokens{'a', 'b', 256}));
  EXPECT_EQ(ids("<|bos|>", "none"), (Tokens{257, 'a', 'b'}));
  EXPECT_EQ(ids("<|bos|>", "<|eos|>"), (Tokens{257, 'a', 'b', 258}));
  EXPECT_EQ(ids("<|bos|>", "<|eos|>", true, false), (Tokens{257, 'a', 'b'}));
  EXPECT_EQ(ids("<|bos|>", "<|eos|>", false, true), (Tokens{'a', 'b', 258}));
  const std::string refused = testing::error_of(ExitCode::kUsage, [&] { ids("<|none|>", "auto"); });
  EXPECT_NE(refused.find("data.begin_token"), std::string::npos) << refused;
}

}  // namespace
}  // namespace tightloop
