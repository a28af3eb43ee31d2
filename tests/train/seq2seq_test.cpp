// Tiny encoder-decoder models against plain PyTorch: tests/golden/make_seq2seq.py made the numbers.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/kl_div.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "golden.h"
#include "ops/compare.h"
#include "ops/config.h"
#include "support.h"
#include "train/engine/pair_loss.h"
#include "train/optim/optimizer.h"

namespace tightloop {
namespace {

using testing::relative_error;

constexpr int64_t kPad = 0;

const testing::Golden& seq2seq_golden() {
  static const testing::Golden file("seq2seq.safetensors");
  return file;
}

DevicePairs batch_of(const at::Tensor& source, const at::Tensor& target) {
  const auto inputs = target.slice(1, 0, -1), targets = target.slice(1, 1);
  return {source, (source != kPad).sum(1), inputs, targets.masked_fill(targets == kPad, ops::kIgnoreIndex)};
}

class GoldenSeq2Seq : public ::testing::TestWithParam<const char*> {
 protected:
  at::Tensor tensor(const std::string& name) const {
    return seq2seq_golden()[std::string(GetParam()) + "." + name];
  }
  void agrees() const {
    Seq2Seq model(seq2seq_golden().config(GetParam()), 1);
    load_weights(model.parameters(), seq2seq_golden().part(std::string(GetParam()) + ".weight."),
                 "seq2seq.safetensors");
    const auto batch = batch_of(tensor("source").to(at::kLong)[0], tensor("target").to(at::kLong)[0]);
    const auto logits =
        model.logits(model.decode(batch.inputs_BT, model.encode(batch.source_BS, batch.source_lengths_B)));
    const auto counted = (batch.targets_BT != ops::kIgnoreIndex).unsqueeze(-1);
    EXPECT_LT(relative_error(logits * counted, tensor("logits") * counted), 1e-5);
    for (const auto& [name, form] :
         {std::pair("usual", Smoothing::kUniform), std::pair("divergence", Smoothing::kKullbackLeibler)}) {
      for (const auto head : {AutoSwitch::kOff, AutoSwitch::kOn}) {
        for (const auto& parameter : model.parameters().all()) parameter.value.mutable_grad().reset();
        const auto loss = pair_loss(
            model, batch, {.label_smoothing = 0.1, .smoothing = form, .pad_id = kPad, .fused_head = head});
        EXPECT_LT(relative_error(loss.sum, tensor(name)), 1e-5) << name << " " << head;
        EXPECT_LT(relative_error(loss.losses.sum(), tensor(name)), 1e-5) << name << " " << head;
        EXPECT_EQ(loss.count.item<int64_t>(), counted.sum().item<int64_t>());
        loss.objective.backward();
        for (const auto& parameter : model.parameters().all())
          EXPECT_LT(relative_error(parameter.value.grad(), tensor(std::string(name) + "." + parameter.name)),
                    1e-5)
              << name << " " << head << " " << parameter.name;
      }
    }
  }
};

TEST_P(GoldenSeq2Seq, LogitsLossesAndAllGradientsAreThoseOfPyTorch) { agrees(); }

TEST_P(GoldenSeq2Seq, PlainOperatorsAgreeToo) {
  ops::use_plain(true);
  agrees();
  ops::use_plain(false);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenSeq2Seq, ::testing::Values("pre", "post", "rotary"),
                         [](const auto& name) { return std::string(name.param); });

TEST(GoldenSeq2SeqTraining, FiftyStepsFollowPyTorch) {
  const auto sizes = seq2seq_golden().config("training");
  Seq2Seq model(sizes, 1);
  load_weights(model.parameters(), seq2seq_golden().part("training.weight."), "seq2seq.safetensors");
  TrainConfig train;
  train.steps = 50, train.warmup_steps = 20, train.lr = 0.3, train.schedule = ScheduleKind::kNoam,
  train.clip = 0;
  train.weight_decay = 0, train.beta1 = 0.9, train.beta2 = 0.98, train.eps = 1e-9;
  Optimizer optimizer(model.parameters(), train, sizes, at::kFloat);
  const auto sources = seq2seq_golden()["training.source"].to(at::kLong),
             targets = seq2seq_golden()["training.target"].to(at::kLong),
             losses = seq2seq_golden()["training.losses"];
  for (int64_t step = 0; step < train.steps; ++step) {
    const auto loss =
        pair_loss(model, batch_of(sources[step], targets[step]),
                  {.training = true, .label_smoothing = 0.1, .smoothing = Smoothing::kKullbackLeibler});
    loss.objective.backward();
    optimizer.accumulate({true});
    const auto count = loss.count.item<double>();
    optimizer.step(rates_at(train, step + 1, sizes.width), count);
    EXPECT_NEAR(loss.sum.item<double>() / count / losses[step].item<double>(), 1, 1e-4)
        << "step " << step + 1;
  }
  for (const auto& [name, tensor] : optimizer.weights()) {
    const auto& expected = seq2seq_golden()["training.end." + name];
    // A bias of keys moves all scores of a query alike: its gradient is rounding, which Adam makes large.
    const int64_t D = sizes.width;
    if (name.ends_with("qkv_bias")) {
      EXPECT_LT(relative_error(tensor.slice(0, 0, D), expected.slice(0, 0, D)), 1e-3) << name;
      EXPECT_LT(relative_error(tensor.slice(0, 2 * D), expected.slice(0, 2 * D)), 1e-3) << name;
    } else {
      const int64_t first = name.ends_with("cross_kv_bias") ? D : 0;
      EXPECT_LT(relative_error(tensor.slice(0, first), expected.slice(0, first)), 1e-3) << name;
    }
  }
}

TEST(Smoothing, TheDivergenceIsThatOfTorchForEveryAmount) {
  const int64_t N = 12, D = 6, V = 9, pad = 3;
  for (const double amount : {0.0, 0.1, 0.5}) {
    auto hidden = at::randn({N, D}).requires_grad_(), weight = at::randn({V, D}).requires_grad_();
    auto targets = at::randint(0, V, {N}, at::kLong);
    targets.masked_fill_(targets == pad, ops::kIgnoreIndex);
    targets[0] = ops::kIgnoreIndex;
    const auto gradients = [&](const at::Tensor& sum) {
      hidden.mutable_grad().reset(), weight.mutable_grad().reset();
      sum.backward();
      return std::pair(hidden.grad().clone(), weight.grad().clone());
    };
    const auto ours =
        smoothed_loss(hidden, weight, targets,
                      {.label_smoothing = amount, .smoothing = Smoothing::kKullbackLeibler, .pad_id = pad});
    const auto log_p = at::log_softmax(at::linear(hidden, weight), -1);
    const auto counted = targets != ops::kIgnoreIndex;
    auto wanted = at::full_like(log_p.detach(), amount / (V - 2));
    wanted.scatter_(1, targets.masked_fill(counted.logical_not(), pad).unsqueeze(1), 1 - amount);
    wanted.select(1, pad).zero_();
    wanted = wanted * counted.unsqueeze(1);
    const auto theirs = at::kl_div(log_p, wanted, at::Reduction::Sum);
    EXPECT_NEAR(ours.sum.item<double>(), theirs.item<double>(), 1e-4) << amount;
    EXPECT_NEAR(ours.losses.sum().item<double>(), theirs.item<double>(), 1e-4);
    const auto a = gradients(ours.objective), b = gradients(theirs);
    EXPECT_LT(relative_error(a.first, b.first), 1e-5);
    EXPECT_LT(relative_error(a.second, b.second), 1e-5);
  }
}

TEST(PairLoss, BatchesArriveOnTheDevice) {
  std::vector<int32_t> source{1, 5, 2, 1, 2, 0}, lengths{3, 2}, inputs{1, 7, 8, 1, 6, 0},
      targets{7, 8, 2, 6, 2, 0}, target_lengths{3, 2};
  PairBatch batch;
  batch.rows = 2, batch.source_length = 3, batch.target_length = 3;
  batch.source = source.data(), batch.source_lengths = lengths.data(), batch.inputs = inputs.data(),
  batch.targets = targets.data(), batch.target_lengths = target_lengths.data();
  const auto pairs = to_device(batch, at::kCPU);
  EXPECT_EQ(pairs.targets_BT[1][2].item<int64_t>(), ops::kIgnoreIndex);
  EXPECT_EQ(pairs.targets_BT[1][1].item<int64_t>(), 2);
  EXPECT_EQ(pairs.source_BS[0][1].item<int64_t>(), 5);
  EXPECT_EQ(pairs.source_lengths_B[1].item<int64_t>(), 2);
}

}  // namespace
}  // namespace tightloop
