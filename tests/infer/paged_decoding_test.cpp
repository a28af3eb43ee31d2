// Decoding over pages against reading everything afresh, whatever stands beside a request.
#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <c10/core/InferenceMode.h>
#include <torch/cuda.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>

#include "core/device.h"
#include "data/byte_tokenizer.h"
#include "infer/calculator_calls.h"
#include "infer/decoder.h"
#include "infer/model.h"
#include "infer/slow_greedy.h"
#include "infer/told.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::greedy;
using testing::slow_greedy;
using testing::submit;
using testing::Told;

constexpr int64_t kVocabulary = 40;

/// A tiny random model of any family that reads pages.
std::unique_ptr<LanguageModel> random_model(std::mt19937& random) {
  const auto one_of = [&](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[random() % sizeof...(values)];
  };
  ModelConfig config;
  config.family = one_of("llama", "qwen2", "qwen3", "qwen3_moe", "gpt2", "nanochat");
  config.layers = one_of(1, 2, 3), config.context = 64, config.init_std = 0.3;
  const bool gpt2 = config.family == "gpt2";
  config.heads = one_of(2, 4, 8);
  const int64_t size = one_of(config.family == "nanochat" ? 16 : 8, 16, 32);
  config.width = config.heads * size;
  if (!gpt2) config.kv_heads = config.heads / one_of(1, 2);
  if (!gpt2 && config.family != "nanochat" && one_of(0, 1)) config.head_size = one_of(32, 64);
  if (config.family == "qwen3_moe") config.experts = 4, config.experts_per_token = 2, config.expert_ffn = 32;
  if (config.family == "nanochat") config.window_pattern = "SL";
  config.resolve(kVocabulary, 0);
  auto model = make_model(config, random());
  // Residual branches of nanochat start at zero, and so does its smear: without opinions all answers are one.
  c10::InferenceMode inference;
  if (config.family == "nanochat")
    for (const auto& parameter : model->parameters().all())
      if (parameter.name.ends_with("out") || parameter.name.ends_with("down") || parameter.name == "head" ||
          parameter.name == "smear_scale")
        parameter.value.normal_(0, parameter.name == "smear_scale" ? 1.0 : 0.3);
  return model;
}

std::vector<int32_t> random_prompt(std::mt19937& random, size_t most) {
  std::vector<int32_t> ids(1 + random() % most);
  for (auto& id : ids) id = static_cast<int32_t>(random() % kVocabulary);
  return ids;
}

/// Whether each token of an answer is the likeliest where everything before it is read at once, without a
/// cache. Nothing where two are so close that another order of sums may tip the choice.
std::optional<bool> is_greedy(LanguageModel& model, std::vector<int32_t> ids,
                              const std::vector<int32_t>& answer) {
  c10::InferenceMode inference;
  const size_t prompt = ids.size();
  ids.insert(ids.end(), answer.begin(), answer.end());
  const auto input = at::tensor(std::vector<int64_t>(ids.begin(), ids.end())).unsqueeze(0);
  const auto logits =
      model.logits(model.forward(input.to(model.device())).hidden_BTD)[0].to(at::kCPU, at::kFloat);
  const float close = 1e-4f * logits.abs().max().item<float>();
  for (size_t i = prompt; i < ids.size(); ++i) {
    const auto [scores, best] = at::topk(logits[static_cast<int64_t>(i) - 1], 2);
    if (best[0].item<int64_t>() == ids[i]) continue;
    if ((scores[0] - scores[1]).item<float>() < close && best[1].item<int64_t>() == ids[i])
      return std::nullopt;
    return false;
  }
  return true;
}

// 200 models; each time some prompts, of which some begin alike, in a batch of any size, a cache that is
// large or hardly enough, chunks of any length, with passes ahead or not.
TEST(PagedDecoding, GreedyTokensAreThoseOfReadingEverythingAfresh) {
  std::mt19937 random(11);
  int64_t preempted = 0, shared = 0, unclear = 0, compared = 0;
  std::set<std::string> families;
  for (int round = 0; round < 200; ++round) {
    const auto model = random_model(random);
    families.insert(model->config().family);
    DecoderConfig config;
    config.running = 1 + static_cast<int64_t>(random() % 6);
    config.cache_tokens = random() % 3 == 0 ? 64 : 1024;
    config.prefill_tokens = 1 + static_cast<int64_t>(random() % 40);
    config.share_prefixes = random() % 2 == 0;
    config.ahead = static_cast<int64_t>(random() % 4);
    Decoder decoder(*model, config);
    std::vector<std::vector<int32_t>> prompts;
    for (int i = 0; i < 6; ++i) {
      prompts.push_back(random_prompt(random, 40));
      if (i > 0 && random() % 2)  // begins as the one before
        prompts.back().insert(prompts.back().begin(), prompts[i - 1].begin(),
                              prompts[i - 1].begin() + std::min<ptrdiff_t>(std::ssize(prompts[i - 1]), 20));
      prompts.back().resize(std::min<size_t>(prompts.back().size(), 44));
    }
    std::vector<Told> told(prompts.size());
    std::vector<int64_t> tokens;
    for (size_t i = 0; i < prompts.size(); ++i) {
      tokens.push_back(1 + static_cast<int64_t>(random() % 16));
      submit(decoder, greedy(prompts[i], tokens[i]), told[i]);
      for (size_t passes = random() % 4; passes > 0; --passes) decoder.advance();
    }
    while (decoder.advance()) {
    }
    for (size_t i = 0; i < prompts.size(); ++i) {
      ASSERT_EQ(told[i].ends.size(), 1u);
      EXPECT_EQ(told[i].ends[0].error, "");
      EXPECT_EQ(std::ssize(told[i].ids), tokens[i]);
      const auto right = is_greedy(*model, prompts[i], told[i].ids);
      compared += right.has_value(), unclear += !right;
      EXPECT_TRUE(right.value_or(true)) << model->config().family << ", round " << round << ", prompt " << i;
    }
    EXPECT_EQ(decoder.load().cache_tokens_used, 0);
    preempted += decoder.load().preemptions, shared += decoder.load().shared_tokens;
  }
  EXPECT_EQ(families.size(), 6u);
  EXPECT_GT(preempted, 20);
  EXPECT_GT(shared, 500);
  EXPECT_LT(unclear, 12) << "of " << compared;
}

TEST(PagedDecoding, StopsAreNoticedLateAndNothingBehindThemIsTold) {
  const auto model = testing::small_model();
  const auto whole = slow_greedy(*model, {1, 2, 3}, -1, 20);
  for (const int64_t ahead : {0, 1, 2, 5}) {
    Decoder decoder(*model, {.ahead = ahead});
    std::vector<Told> told(4);
    auto request = greedy({1, 2, 3}, 20);
    submit(decoder, request, told[0]);
    request.stop_tokens = {whole[7]};
    submit(decoder, request, told[1]);
    request.stop_tokens.clear();
    request.on_token = [&](const DecodedToken&) { return told[2].ids.size() < 5; };
    submit(decoder, request, told[2]);
    request.on_token = [&](const DecodedToken&) -> bool {
      return told[3].ids.size() < 3 ? true : throw std::runtime_error("no");
    };
    submit(decoder, request, told[3]);
    while (decoder.advance()) {
    }
    const auto first = [&](int64_t tokens) { return std::vector(whole.begin(), whole.begin() + tokens); };
    EXPECT_EQ(told[0].ids, whole);
    EXPECT_EQ(told[1].ids, first(std::ranges::find(whole, whole[7]) - whole.begin()));
    EXPECT_EQ(told[1].ends.at(0).end, AnswerEnd::kStopped);
    EXPECT_EQ(told[2].ids, first(5));
    EXPECT_EQ(told[3].ids, first(3));
    EXPECT_EQ(told[3].ends.at(0).error, "no");
    EXPECT_EQ(decoder.load().cache_tokens_used, 0);
  }
}

TEST(PagedDecoding, WhatIsCancelledWhilePassesAreUnderWayHarmsNobody) {
  const auto model = testing::small_model();
  const auto wanted = slow_greedy(*model, {5, 6}, -1, 30);
  Decoder decoder(*model, {.running = 2, .ahead = 3});
  std::vector<Told> told(4);
  const auto first = submit(decoder, greedy({1, 2, 3}, 50), told[0]);
  submit(decoder, greedy({5, 6}, 30), told[1]);
  for (int i = 0; i < 6; ++i) decoder.advance();
  decoder.cancel(first);
  submit(decoder, greedy({5, 6}, 30), told[2]);  // gets the seat and the pages of the first
  submit(decoder, greedy({5, 6}, 30), told[3]);
  while (decoder.advance()) {
  }
  EXPECT_EQ(told[0].ends.at(0).end, AnswerEnd::kInterrupted);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(told[i].ids, wanted) << i;
}

/// Tokens as sample() chooses them from the scores of reading everything afresh.
std::vector<int32_t> sampled_afresh(LanguageModel& model, std::vector<int32_t> ids,
                                    const SamplingConfig& sampling, uint64_t sample_number) {
  c10::InferenceMode inference;
  const auto prompt = std::ssize(ids);
  while (std::ssize(ids) < prompt + sampling.max_tokens) {
    const auto input = at::tensor(std::vector<int64_t>(ids.begin(), ids.end())).unsqueeze(0);
    const auto hidden = model.forward(input).hidden_BTD;
    const SampleRow row{.sampling = &sampling,
                        .seen = ids,
                        .sample = sample_number,
                        .position = static_cast<uint64_t>(std::ssize(ids) - prompt)};
    ids.push_back(sample(model.logits(hidden.select(1, hidden.size(1) - 1)), {&row, 1})[0]);
  }
  return {ids.begin() + prompt, ids.end()};
}

// Every request with settings of its own, together and with passes ahead, cut short by a small cache.
TEST(PagedDecoding, SampledTextIsThatOfChoosingFromScoresReadAfresh) {
  const auto model = testing::small_model();
  std::vector<DecodeRequest> requests;
  for (int i = 0; i < 6; ++i) {
    auto& request = requests.emplace_back(greedy({i, 2, 3}, 18 + i));
    request.sampling.temperature = i == 3 ? 0 : 0.6 + 0.2 * i;
    request.sampling.repetition_penalty = i % 2 ? 1.3 : 1;
    if (i == 2) request.sampling.top_k = 5;
    if (i == 4) request.sampling.top_p = 0.8;
    if (i == 5) request.sampling.min_p = 0.05;
    request.sampling.seed = i, request.sample = static_cast<uint64_t>(i % 2);
  }
  std::vector<std::vector<int32_t>> wanted;
  for (const auto& request : requests)
    wanted.push_back(sampled_afresh(*model, request.prompt, request.sampling, request.sample));
  for (const int64_t ahead : {0, 3})
    for (const int64_t cache_tokens : {48, 4096}) {
      Decoder decoder(*model, {.cache_tokens = cache_tokens, .running = 4, .ahead = ahead});
      std::vector<Told> told(requests.size());
      for (size_t i = 0; i < requests.size(); ++i) submit(decoder, requests[i], told[i]);
      while (decoder.advance()) {
      }
      for (size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(told[i].ids, wanted[i]) << i << ", " << ahead << " ahead";
      EXPECT_EQ(decoder.load().preemptions > 0, cache_tokens < 100);
    }
}

TEST(PagedDecoding, OneWhoWantsLogProbabilitiesChangesNobodysText) {
  const auto model = testing::small_model();
  const auto wanted = slow_greedy(*model, {5, 6}, -1, 12);
  Decoder decoder(*model, {.ahead = 3});
  std::vector<Told> told(2);
  submit(decoder, greedy({5, 6}, 12), told[0]);
  for (int i = 0; i < 4; ++i) decoder.advance();
  auto request = greedy({5, 6}, 12);
  request.logprobs = 2;
  request.on_token = [&](const DecodedToken& token) {
    EXPECT_EQ(token.likeliest.at(0).first, token.id);
    return true;
  };
  submit(decoder, request, told[1]);
  while (decoder.advance()) {
  }
  EXPECT_EQ(told[0].ids, wanted);
  EXPECT_EQ(told[1].ids, wanted);
}

/// A model whose likeliest next token is a function of the last one: of each of these, the one behind it.
std::unique_ptr<LanguageModel> reciting_model(const std::vector<int32_t>& ids, int64_t vocabulary) {
  ModelConfig config;
  config.family = "llama", config.layers = 1, config.heads = 2, config.context = 64,
  config.tie_embeddings = false;
  config.width = (vocabulary + 63) / 64 * 64;
  config.resolve(vocabulary, 0);
  auto model = make_model(config, 1);
  c10::InferenceMode inference;
  for (const auto& parameter : model->parameters().all()) {
    if (parameter.name.ends_with("out") || parameter.name.ends_with("down") || parameter.name == "head")
      parameter.value.zero_();
    if (parameter.name == "embedding") parameter.value.copy_(at::eye(parameter.value.size(0), config.width));
    if (parameter.name == "head")
      for (size_t i = 0; i + 1 < ids.size(); ++i) parameter.value[ids[i + 1]][ids[i]].fill_(1);
  }
  return model;
}

TEST(PagedDecoding, WhatTheCalculatorWritesTakesBackWhatWasChosenBehindTheCall) {
  const testing::ByteTokenizer tokenizer(
      {"<|python_start|>", "<|python_end|>", "<|output_start|>", "<|output_end|>"});
  const CalculatorCalls calculator(tokenizer);
  const auto recited = tokenizer.encode("x<|python_start|>3*4<|python_end|>no<|output_end|>yes, uvw");
  const auto model = reciting_model(recited, tokenizer.vocab_size());
  const auto wanted =
      tokenizer.encode("<|python_start|>3*4<|python_end|><|output_start|>12<|output_end|>yes, ");
  for (const bool penalised : {false, true})
    for (int64_t ahead = 0; ahead < 5; ++ahead) {
      Decoder decoder(*model, {.ahead = ahead});
      Told told;
      auto request = greedy({recited[0]}, std::ssize(wanted));
      request.calculator = &calculator;
      if (penalised) request.sampling.repetition_penalty = 1.01;
      submit(decoder, request, told);
      while (decoder.advance()) {
      }
      EXPECT_EQ(tokenizer.decode(told.ids), tokenizer.decode(wanted)) << ahead;
      EXPECT_EQ(told.ids, wanted) << ahead;
    }
}

// It gave its place back, and comes again when no place is large enough: nobody behind it may wait for ever.
TEST(PagedDecoding, WhomTheCalculatorMakesLongerThanTheCacheEndsThere) {
  const testing::ByteTokenizer tokenizer(
      {"<|python_start|>", "<|python_end|>", "<|output_start|>", "<|output_end|>"});
  const CalculatorCalls calculator(tokenizer);
  const auto recited = tokenizer.encode("x<|python_start|>1/3<|python_end|>");
  const auto model = reciting_model(recited, tokenizer.vocab_size());
  for (const int64_t ahead : {0, 2}) {
    Decoder decoder(*model, {.cache_tokens = 32, .ahead = ahead});
    std::vector<Told> told(3);
    submit(decoder, greedy({1}, 14), told[0]);
    auto request = greedy({2, 3, 4, 5, 6, 7, 8, recited[0]}, 100);
    request.calculator = &calculator;
    submit(decoder, request, told[1]);
    submit(decoder, greedy({1}, 3), told[2]);
    while (decoder.advance()) {
    }
    ASSERT_EQ(told[1].ends.size(), 1u) << ahead;
    EXPECT_EQ(told[1].ends[0].end, AnswerEnd::kContextFull);
    EXPECT_EQ(tokenizer.decode(told[1].ids),
              "<|python_start|>1/3<|python_end|><|output_start|>0.3333333333333333<|output_end|>");
    EXPECT_EQ(told[0].ids.size(), 14u);
    EXPECT_EQ(told[2].ids.size(), 3u);
  }
}

class PagedDecodingOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  }
  /// Answers to so many prompts of unlike lengths, whose answers end one after another.
  static std::vector<Told> answers(LanguageModel& model, DecoderConfig config, size_t prompts,
                                   int64_t tokens) {
    std::mt19937 random(3);
    std::vector<Told> told(prompts);
    Decoder decoder(model, config);
    for (size_t i = 0; i < prompts; ++i)
      submit(decoder, greedy(random_prompt(random, 60), tokens + static_cast<int64_t>(i * 5)), told[i]);
    while (decoder.advance()) {
    }
    for (const Told& one : told) EXPECT_EQ(one.ends.at(0).error, "");
    // Products of experts in fp32 are torch's, which copies from the host: such passes cannot be captured.
    const bool capturable =
        !model.config().has_experts() || model.head().weight_VD.scalar_type() == at::kBFloat16;
    if (capturable) {
      EXPECT_EQ(decoder.load().replayed > 10, config.graphs) << model.config().family;
    }
    return told;
  }
};

TEST_F(PagedDecodingOnGpu, GreedyTokensAreThoseOfReadingEverythingAfreshWithGraphsAndWithout) {
  std::mt19937 random(21);
  std::set<std::string> families;
  for (int round = 0; round < 24; ++round) {
    const auto model = random_model(random);
    model->parameters().to({at::kCUDA, 0}, at::kFloat);
    families.insert(model->config().family);
    for (const bool graphs : {true, false}) {
      std::mt19937 same(3);
      const auto told =
          answers(*model, {.cache_tokens = 640, .running = 9, .prefill_tokens = 70, .graphs = graphs}, 12, 4);
      for (const Told& one : told)
        EXPECT_TRUE(is_greedy(*model, random_prompt(same, 60), one.ids).value_or(true))
            << model->config().family << ", round " << round << (graphs ? ", graphs" : ", no graphs");
    }
  }
  EXPECT_EQ(families.size(), 6u);
}

// From 64 requests down to one, over lengths at which blocks share a token's keys.
TEST_F(PagedDecodingOnGpu, ALongRunCrossesAllSizesOfGraphs) {
  ModelConfig config;
  config.family = "qwen3", config.layers = 2, config.width = 256, config.heads = 4, config.kv_heads = 2;
  config.head_size = 64, config.init_std = 0.2, config.context = 1024;
  config.resolve(500, 0);
  const auto model = make_model(config, 5);
  model->parameters().to({at::kCUDA, 0}, at::kFloat);
  std::mt19937 same(3);
  for (const Told& one : answers(*model, {.cache_tokens = 40000}, 64, 150))
    EXPECT_TRUE(is_greedy(*model, random_prompt(same, 60), one.ids).value_or(true));
  // In 16 bits, twice the same.
  model->parameters().to({at::kCUDA, 0}, at::kBFloat16);
  const auto first = answers(*model, {.cache_tokens = 40000}, 16, 100);
  const auto second = answers(*model, {.cache_tokens = 40000}, 16, 100);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].ids, second[i].ids) << i;
}

TEST_F(PagedDecodingOnGpu, TwoDecodersShareTheMemoryThatThereIs) {
  Device& gpu = device("cuda");
  ModelConfig config;
  config.layers = 8, config.width = 32, config.heads = 4, config.context = 64;
  config.resolve(kVocabulary, 0);
  const auto model = make_model(config, 7);
  model->parameters().to({at::kCUDA, 0}, at::kFloat);
  gpu.empty_cache();
  gpu.limit_memory(gpu.memory_stats().reserved + (int64_t{8} << 30));
  {
    const DecoderConfig large{.cache_tokens = 1 << 22, .running = 1};  // 8 GiB
    Decoder first(*model, large), second(*model, large);
    for (Decoder* decoder : {&first, &second}) {
      Told told;
      submit(*decoder, greedy({1, 2, 3}, 5), told);
      while (decoder->advance()) {
      }
      EXPECT_EQ(told.ends.at(0).error, "");
      EXPECT_EQ(told.ids.size(), 5u);
    }
    EXPECT_LT(second.load().cache_tokens, first.load().cache_tokens);
  }
  gpu.limit_memory(gpu.total_memory());
}

// Experts in 16 bits: their products, which find on the device whose rows they are, are captured.
TEST_F(PagedDecodingOnGpu, ExpertsAreCaptured) {
  ModelConfig config;
  config.family = "qwen3_moe", config.layers = 2, config.width = 128, config.heads = 4, config.kv_heads = 2;
  config.head_size = 32, config.experts = 4, config.experts_per_token = 2, config.expert_ffn = 64;
  config.init_std = 0.2, config.context = 256;
  config.resolve(100, 0);
  const auto model = make_model(config, 5);
  model->parameters().to({at::kCUDA, 0}, at::kBFloat16);
  const auto graphs = answers(*model, {}, 6, 30);
  EXPECT_EQ(graphs[5].ids.size(), 55u);
}

TEST_F(PagedDecodingOnGpu, TheHostWaitsForNothingButTheTokens) {
  const auto model = testing::small_model();
  model->parameters().to({at::kCUDA, 0}, at::kBFloat16);
  Decoder decoder(*model);
  std::vector<Told> told(3);
  for (auto& one : told) submit(decoder, greedy({1, 2, 3}, 40), one);
  for (int i = 0; i < 6; ++i) decoder.advance();  // captured by now
  device("cuda").forbid_syncs(true);
  while (decoder.advance()) {
  }
  device("cuda").forbid_syncs(false);
  for (const Told& one : told) {
    EXPECT_EQ(one.ends.at(0).error, "");
    EXPECT_EQ(one.ids.size(), 40u);
  }
}

}  // namespace
}  // namespace tightloop
