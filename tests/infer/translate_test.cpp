#include "infer/translate.h"

#include <algorithm>

#include "core/files.h"
#include "support.h"
#include "train/run/checkpoint.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;

std::unique_ptr<Tokenizer> pieces(const std::vector<std::string>& words, int32_t vocab_size) {
  SentencePieceTrainOptions options;
  options.vocab_size = vocab_size, options.model_type = TokenizerType::kBpe, options.threads = 1;
  return train_sentencepiece(options, [&, i = size_t{0}](std::string& sentence) mutable {
    if (i == 200) return false;
    sentence =
        words[i % words.size()] + " " + words[(i * 7 + 1) % words.size()] + " " + words[i / 3 % words.size()];
    ++i;
    return true;
  });
}

/// A run that was never trained: what matters is that everything is found and put together.
RunFolder make_run(const fs::path& root, bool joint) {
  const auto run = RunFolder::create(root, false);
  const auto source = pieces({"the", "cat", "sees", "dogs", "under", "trees"}, 40);
  const auto target = pieces({"die", "katze", "sieht", "hunde", "unter", "baum"}, 44);
  source->save(run.tokenizer());
  if (!joint) {
    make_folder(run.target_tokenizer());
    target->save(run.target_tokenizer());
  }
  Recipe recipe;
  recipe.train.device = "cpu", recipe.train.precision = Precision::kFp32;
  recipe.data.source = DataSource::kPairs, recipe.data.seq_len = 32;
  recipe.model.family = "seq2seq";
  recipe.model.layers = 1, recipe.model.width = 16, recipe.model.heads = 2;
  recipe.model.share_embeddings = joint;
  recipe.model.resolve_pair(source->vocab_size(), joint ? source->vocab_size() : target->vocab_size(), 32);
  write_file_whole(run.config(), recipe.bind().to_yaml());
  const Seq2Seq model(recipe.model, 5);
  NamedTensors weights;
  for (const auto& parameter : model.parameters().all())
    weights.emplace_back(parameter.name, parameter.value.detach());
  save_checkpoint(run.checkpoints(), 3, weights, {});
  return run;
}

TEST(Translate, ARunIsLoadedWithOneTokenizerOrTwo) {
  for (const bool joint : {true, false}) {
    const TempFolder folder;
    const auto run = make_run(folder / "run", joint);
    auto loaded = load_translator(run.root(), "cpu");
    EXPECT_EQ(loaded.step, 3);
    EXPECT_EQ(loaded.tokenizers.own_target == nullptr, joint);
    EXPECT_EQ(loaded.tokenizers.target().vocab_size(), joint ? 40 : 44);
    EXPECT_EQ(loaded.model->config().share_embeddings, joint);
    const auto tokens = target_tokens(loaded.tokenizers.target());
    EXPECT_EQ(tokens.begin, 2);
    EXPECT_EQ(tokens.end, 3);
    EXPECT_EQ(tokens.never, (std::vector<int64_t>{0, 1}));
    EXPECT_EQ(load_translator(run.checkpoints() / "step-00000003", "cpu").step, 3);
  }
}

TEST(Translate, EveryLineHasADefinedAnswer) {
  const TempFolder folder;
  auto loaded = load_translator(make_run(folder / "run", false).root(), "cpu");
  std::string endless;
  for (int i = 0; i < 10'000; ++i) endless += "cat ";
  const std::vector<std::string> lines{
      "the cat sees dogs", "",      " \t\u3000",       "😀👩‍👩‍👧",
      "漢字 हिन्दी",        endless, "\xff\xfe broken", "the cat sees dogs"};
  TranslateOptions options;
  options.decode.beam = 3, options.decode.nbest = 2, options.decode.extra_tokens = 5;
  std::vector<std::pair<size_t, size_t>> cut;
  options.on_cut = [&](size_t line, size_t tokens) { cut.emplace_back(line, tokens); };
  const auto found = translate(*loaded.model, loaded.tokenizers, lines, options);
  ASSERT_EQ(found.size(), lines.size());
  for (const size_t empty : {1u, 2u}) {
    ASSERT_EQ(found[empty].size(), 1u);
    EXPECT_EQ(found[empty][0].text, "");
  }
  for (const size_t full : {0u, 3u, 4u, 5u, 6u, 7u}) EXPECT_EQ(found[full].size(), 2u) << full;
  ASSERT_EQ(cut.size(), 1u);
  EXPECT_EQ(cut[0].first, 5u);
  EXPECT_GE(cut[0].second, 10'000u);
  EXPECT_EQ(found[0][0].text, found[7][0].text);
  for (const auto& line : found)
    for (const auto& one : line) EXPECT_EQ(one.text.find('\n'), std::string::npos);
  EXPECT_TRUE(translate(*loaded.model, loaded.tokenizers, {}, options).empty());
}

TEST(Translate, OtherRunsAreRefused) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  Recipe recipe;
  write_file_whole(run.config(), recipe.bind().to_yaml());
  save_checkpoint(run.checkpoints(), 1, {}, {});
  const auto message = error_of(ExitCode::kUsage, [&] { load_translator(run.root(), "cpu"); });
  EXPECT_NE(message.find("does not translate"), std::string::npos) << message;
}

TEST(Translate, HeldOutPairsAreScored) {
  const TempFolder folder;
  auto loaded = load_translator(make_run(folder / "run", true).root(), "cpu");
  const Tokenizer& tokenizer = *loaded.tokenizers.source;
  TranslateOptions options;
  options.decode.beam = 2;
  // What the model says is its own reference: all is right. Then one is not.
  const std::vector<std::string> lines{"the cat sees dogs under trees", "dogs under the trees"};
  const auto said = translate(*loaded.model, loaded.tokenizers, lines, options);
  TokenStore pairs(tokenizer.vocab_size());
  const auto add = [&](const std::string& text) {
    std::vector<int32_t> ids{2};
    tokenizer.encode(text, ids);
    ids.push_back(3);
    pairs.append(ids, {});
  };
  for (size_t i = 0; i < lines.size(); ++i) add(lines[i]), add(said[i][0].text);
  const auto scores = held_out_scores(*loaded.model, pairs, tokenizer, options, {}, 0);
  EXPECT_EQ(scores.pairs, 2);
  EXPECT_EQ(scores.translations, scores.references);
  EXPECT_NEAR(scores.chrf, 100, 1e-9);
  add("the cat"), add("trees trees trees trees trees");
  EXPECT_EQ(held_out_scores(*loaded.model, pairs, tokenizer, options, {}, 2).pairs, 2);
  const auto whole = held_out_scores(*loaded.model, pairs, tokenizer, options, {}, 0);
  EXPECT_LT(whole.chrf, 100);
  // Shares of several processes, one of which has none.
  for (const int world : {2, 4}) {
    std::vector<int64_t> sum(whole.counts.numbers().size());
    int64_t shared = 0;
    for (int rank = 0; rank < world; ++rank) {
      const auto share = held_out_scores(*loaded.model, pairs, tokenizer, options, {}, 0, rank, world);
      std::ranges::transform(sum, share.counts.numbers(), sum.begin(), std::plus());
      shared += share.pairs;
    }
    EXPECT_EQ(shared, 3);
    EXPECT_EQ(sum, whole.counts.numbers());
    EXPECT_EQ(chrf(TranslationCounts::of(sum).characters), whole.chrf);
    EXPECT_EQ(corpus_bleu(TranslationCounts::of(sum).words).score, whole.bleu);
  }
}

TEST(PairTokenizers, AreTrainedOncePerSideOrTogether) {
  const TempFolder folder;
  const std::vector<std::string> words{"the", "cat", "sees", "dogs", "under", "trees"},
      translations{"die", "katze", "sieht", "hunde", "unter", "baum"};
  std::string lines;
  for (size_t i = 0; i < 300; ++i) {
    const size_t first = i % 6, second = (i * 7 + 1) % 6, third = i / 3 % 6;
    lines += words[first] + " " + words[second] + " " + words[third] + "\t" + translations[first] + " " +
             translations[second] + " " + translations[third] + "\n";
  }
  write_file_whole(folder / "pairs.tsv", lines);
  Recipe recipe;
  recipe.data.source = DataSource::kPairs, recipe.data.train = {(folder / "pairs.tsv").string()};
  recipe.data.holdout = 0;
  recipe.tokenizer.type = TokenizerType::kBpe, recipe.tokenizer.vocab_size = 40;
  recipe.tokenizer.joint = false, recipe.model.share_embeddings = false;
  const auto run = RunFolder::create(folder / "two", false);
  const auto two = prepare_pair_tokenizers(recipe, run);
  ASSERT_TRUE(two.own_target);
  EXPECT_NE(two.source->fingerprint(), two.target().fingerprint());
  EXPECT_FALSE(two.source->token_id("z"));  // only the translations have it
  EXPECT_TRUE(two.target().token_id("z"));
  const auto again = prepare_pair_tokenizers(recipe, run);
  EXPECT_EQ(again.target().fingerprint(), two.target().fingerprint());

  recipe.model.share_embeddings = true;
  error_of(ExitCode::kUsage, [&] { prepare_pair_tokenizers(recipe, run); });
  recipe.tokenizer.joint = true;
  const auto one = prepare_pair_tokenizers(recipe, RunFolder::create(folder / "one", false));
  EXPECT_FALSE(one.own_target);
  EXPECT_TRUE(one.source->token_id("z"));
}

}  // namespace
}  // namespace tightloop
