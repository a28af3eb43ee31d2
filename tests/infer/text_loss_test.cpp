#include "infer/text_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "core/random.h"
#include "infer/model.h"
#include "infer/token_scores.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::small_model;

std::vector<int32_t> random_ids(size_t count) {
  Random random(11);
  std::vector<int32_t> ids(count);
  for (auto& id : ids) id = static_cast<int32_t>(random.below(40));
  return ids;
}

// One token after another, each from a pass of its own over the tokens [begin, at).
double slow_loss(LanguageModel& model, const std::vector<int32_t>& ids, int64_t begin, int64_t at) {
  c10::NoGradGuard no_grad;
  const auto input = at::tensor(std::vector<int64_t>(ids.begin() + begin, ids.begin() + at)).unsqueeze(0);
  const auto scores = model.logits(model.forward(input).hidden_BTD)[0][at - begin - 1].to(at::kDouble);
  return -at::log_softmax(scores, 0)[ids[at]].item<double>();
}

TEST(TextLoss, OneWindowIsTheMeanOverAllButTheFirst) {
  const auto model = small_model();
  const auto ids = random_ids(20);
  double sum = 0;
  for (int64_t at = 1; at < 20; ++at) sum += slow_loss(*model, ids, 0, at);
  const auto loss = text_loss(*model, ids, {.window = 64});
  EXPECT_EQ(loss.tokens, 19);
  EXPECT_NEAR(loss.sum, sum, 1e-4 * sum);
  EXPECT_NEAR(loss.bits_per_byte(50), sum / std::log(2.0) / 50, 1e-4);
}

TEST(TextLoss, WindowsPredictEveryTokenOnceWithEnoughBeforeIt) {
  const auto model = small_model();
  const auto ids = random_ids(50);
  for (const int64_t stride : {1, 3, 4, 8}) {
    for (const int64_t rows : {1, 3}) {
      double sum = 0;
      // Windows of 8 inputs: token t is predicted by the first that holds it as a target.
      for (int64_t at = 1, end = 8; at < 50; ++at) {
        if (at > end) end = std::min<int64_t>(49, end + stride);
        sum += slow_loss(*model, ids, end - 8, at);
      }
      const auto loss = text_loss(*model, ids, {.window = 8, .stride = stride, .rows = rows});
      EXPECT_EQ(loss.tokens, 49);
      EXPECT_NEAR(loss.sum, sum, 1e-4 * sum) << stride;
    }
  }
}

TEST(TextLoss, BadInputIsRefused) {
  const auto model = small_model();
  error_of(ExitCode::kData, [&] { text_loss(*model, random_ids(1), {.window = 8}); });
  error_of(ExitCode::kData, [&] { text_loss(*model, std::vector<int32_t>{}, {.window = 8}); });
  error_of(ExitCode::kData, [&] { text_loss(*model, std::vector<int32_t>{1, 64}, {.window = 8}); });
  error_of(ExitCode::kUsage, [&] { text_loss(*model, random_ids(30), {.window = 8, .stride = 9}); });
}

TEST(TokenScores, RankAndBestAgreeWithASort) {
  const auto model = small_model();
  const auto ids = random_ids(13);
  const auto inputs = at::tensor(std::vector<int64_t>(ids.begin(), ids.end() - 1)).unsqueeze(0);
  const auto targets = at::tensor(std::vector<int64_t>(ids.begin() + 1, ids.end())).unsqueeze(0);
  const auto scores = score_tokens(*model, inputs, targets);
  c10::NoGradGuard no_grad;
  const auto order = model->logits(model->forward(inputs).hidden_BTD).argsort(-1, /*descending=*/true)[0];
  for (int64_t t = 0; t < 12; ++t) {
    const int64_t rank = scores.rank[0][t].item<int64_t>();
    EXPECT_EQ(order[t][rank - 1].item<int64_t>(), ids[t + 1]);
    EXPECT_EQ(order[t][0].item<int64_t>(), scores.best[0][t].item<int64_t>());
  }
}

}  // namespace
}  // namespace tightloop
