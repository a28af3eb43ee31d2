#include "serve/measures.h"

#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <cstdint>

#include "infer/text_loss.h"
#include "infer/token_scores.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop::serve {

namespace {

at::Tensor row_of(std::span<const int32_t> ids) {
  return at::tensor(std::vector<int64_t>(ids.begin(), ids.end())).unsqueeze(0);
}

}  // namespace

nlohmann::json score_json(LanguageModel& model, const Tokenizer& tokenizer, std::span<const int32_t> ids,
                          size_t bytes) {
  const auto text_of = [&](int32_t id) { return tokenizer.decode(std::span(&id, 1)); };
  nlohmann::json tokens = nlohmann::json::array();
  const auto add = [&](int32_t id, nlohmann::json scores) {
    const std::string text = text_of(id);
    scores.update({{"text", text}, {"id", id}});
    // A part of a character is no text, but together they are one.
    if (!is_utf8(text)) scores["bytes"] = std::vector<uint8_t>(text.begin(), text.end());
    tokens.push_back(std::move(scores));
  };
  add(ids[0], {{"loss", nullptr}, {"rank", nullptr}, {"best", nullptr}});
  TextLoss loss;
  if (ids.size() > 1) {
    const auto scores = score_tokens(model, row_of(ids.first(ids.size() - 1)), row_of(ids.subspan(1)));
    const auto* losses = scores.loss.const_data_ptr<double>();
    const auto *ranks = scores.rank.const_data_ptr<int64_t>(), *best = scores.best.const_data_ptr<int64_t>();
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto likeliest = static_cast<int32_t>(best[i]);
      add(ids[i + 1], {{"loss", losses[i]},
                       {"rank", ranks[i]},
                       {"best", likeliest < tokenizer.vocab_size() ? text_of(likeliest) : ""},
                       {"best_id", likeliest}});
      loss.sum += losses[i], ++loss.tokens;
    }
  }
  return {{"tokens", std::move(tokens)},
          {"mean_loss", loss.tokens ? nlohmann::json(loss.mean()) : nlohmann::json()},
          {"bits_per_byte",
           loss.tokens ? nlohmann::json(loss.bits_per_byte(static_cast<int64_t>(bytes))) : nlohmann::json()}};
}

std::vector<float> mean_state(LanguageModel& model, std::span<const int32_t> ids) {
  c10::InferenceMode inference;
  const auto states = model.forward(row_of(ids).to(model.device())).hidden_BTD;
  const auto mean = states[0].to(at::kFloat).mean(0).to(at::kCPU).contiguous();
  return {mean.const_data_ptr<float>(), mean.const_data_ptr<float>() + mean.numel()};
}

std::string base64(std::span<const float> numbers) {
  constexpr std::string_view kSigns = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto bytes = std::as_bytes(numbers);
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t here = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < here ? static_cast<uint32_t>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) text += j <= here ? kSigns[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

}  // namespace tightloop::serve
