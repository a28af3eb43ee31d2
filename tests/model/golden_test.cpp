// Tiny random models against transformers, nanochat and MiniMind: tests/golden/make_models.py made the
// numbers.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <c10/core/GradMode.h>

#include "golden.h"
#include "model/language_model.h"
#include "ops/compare.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::relative_error;

const testing::Golden& golden() {
  static const testing::Golden file("models.safetensors");
  return file;
}

class GoldenModels : public ::testing::TestWithParam<std::string> {
 protected:
  const at::Tensor& tensor(const std::string& name) const { return golden()[GetParam() + "." + name]; }
  std::unique_ptr<LanguageModel> model() const {
    auto model = make_model(golden().config(GetParam()), /*seed=*/1);
    c10::NoGradGuard no_grad;
    for (const auto& parameter : model->parameters().all()) {
      const auto& value = tensor("weight." + parameter.name);
      EXPECT_EQ(parameter.value.sizes(), value.sizes()) << parameter.name;
      parameter.value.detach().copy_(value);
    }
    return model;
  }

  void agrees() const {
    const auto model = this->model();
    const auto ids = tensor("ids").to(at::kLong);
    const auto forward = model->forward(ids, {.training = true});
    const auto logits = model->logits(forward.hidden_BTD);
    EXPECT_LT(relative_error(logits, tensor("logits")), 1e-5);

    const int64_t T = ids.size(1), V = logits.size(2);
    auto loss = at::cross_entropy_loss(logits.narrow(1, 0, T - 1).reshape({-1, V}),
                                       ids.narrow(1, 1, T - 1).reshape({-1}));
    if (GetParam().starts_with("minimind_moe")) loss = loss + forward.balance;
    EXPECT_LT(relative_error(loss, tensor("loss")), 1e-6);
    loss.backward();
    for (const auto& parameter : model->parameters().all())
      EXPECT_LT(relative_error(parameter.value.grad(), tensor("gradient." + parameter.name)), 1e-4)
          << parameter.name;
  }
};

TEST_P(GoldenModels, LogitsAndGradientsAgree) { agrees(); }

TEST_P(GoldenModels, PlainOperatorsAgreeToo) {
  const testing::PlainScope plain;
  agrees();
}

TEST_P(GoldenModels, NoWeightIsLeftOver) {
  const size_t weights = golden().part(GetParam() + ".weight.").tensors.size();
  EXPECT_EQ(model()->parameters().all().size(), weights);
}

INSTANTIATE_TEST_SUITE_P(Each, GoldenModels,
                         ::testing::Values("gpt2", "llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_moe_raw",
                                           "minimind", "minimind_moe", "minimind_moe_two", "nanochat"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tightloop
