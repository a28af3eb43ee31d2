// Tables of whole models by the CUDA kernel, as fibers, against the plain twins.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include "model/model_of.h"

namespace tightloop {
namespace {

using testing::model_of;
using testing::random_tensor;

constexpr int64_t kLength = 45, kVocabulary = 40;  // common tokens and rare ones, in three windows

class TablesOf : public ::testing::TestWithParam<std::string> {
 protected:
  /// All gradients of two rows, each of several documents, by name.
  static std::vector<std::pair<std::string, at::Tensor>> gradients(const char* checkpointing) {
    ModelConfig config;
    config.family = GetParam(), config.layers = 3, config.width = 32, config.heads = 4;
    config.vocab_size = kVocabulary, config.context = 50, config.gradient_checkpointing = checkpointing;
    config.resolve(0, 0);
    const auto model = model_of(config);
    const auto ids = random_tensor({2, kLength}, at::kDouble, 3, 8).abs().to(at::kLong);
    const auto documents = at::arange(2 * kLength, at::kInt).view({2, kLength}).floor_divide(20);
    const auto hidden =
        model->forward(ids.clamp_max(kVocabulary - 1), {.training = true, .documents_BT = documents})
            .hidden_BTD;
    (hidden * random_tensor(hidden.sizes(), at::kFloat, 5)).sum().backward();
    std::vector<std::pair<std::string, at::Tensor>> found;
    for (const auto& parameter : model->parameters().all())
      if (parameter.value.grad().defined()) found.emplace_back(parameter.name, parameter.value.grad());
    return found;
  }
};
INSTANTIATE_TEST_SUITE_P(Each, TablesOf, ::testing::Values("gpt2", "nanochat"),
                         [](const auto& info) { return info.param; });

TEST_P(TablesOf, HaveTheGradientsOfThePlainTwinsAlsoWhenBlocksAreRecomputed) {
  const auto got = gradients("none"), again = gradients("all");
  const testing::PlainScope plain;
  const auto wanted = gradients("none");
  ASSERT_EQ(got.size(), wanted.size());
  ASSERT_EQ(got.size(), again.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_LT(testing::relative_error(got[i].second, wanted[i].second), 1e-5) << got[i].first;
    EXPECT_TRUE(at::equal(again[i].second, got[i].second)) << got[i].first;
  }
}

}  // namespace
}  // namespace tightloop
