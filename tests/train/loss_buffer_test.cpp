#include "train/engine/loss_buffer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include "ops/compare.h"
#include "support.h"

namespace tightloop::testing {
namespace {

class LossBufferOn : public OnDevice {};
ON_EVERY_DEVICE(LossBufferOn);

// Runs `steps` steps whose losses are awkward numbers, looking every `interval`.
std::vector<StepSums> losses(at::Device device, int64_t steps, int64_t interval, Syncs& syncs) {
  LossBuffer buffer(device, interval, 2);
  std::vector<StepSums> all;
  const auto take = [&](size_t outstanding) {
    for (auto& sums : buffer.arrived(outstanding)) all.push_back(std::move(sums));
  };
  for (int64_t step = 1; step <= steps; ++step) {
    buffer.row()[LossBuffer::kLoss].add_(1.0 / static_cast<double>(step * 3));
    buffer.row()[LossBuffer::kLoss].add_(0.1);  // a second micro-batch
    buffer.row()[LossBuffer::kTokens].add_(static_cast<double>(step));
    buffer.row()[LossBuffer::kSkipped].fill_(step % 7 == 0 ? 1.0 : 0.0);
    buffer.row()[LossBuffer::kColumns + 1].add_(2.0);  // loss of the second source
    buffer.row()[LossBuffer::kColumns + 3].add_(5.0);  // its tokens
    buffer.finish(step);
    if (buffer.full()) buffer.extract(syncs);
    take(1);
  }
  buffer.extract(syncs);
  take(0);
  return all;
}

TEST_P(LossBufferOn, GivesEveryStepOnceAndInOrderHoweverOftenOneLooks) {
  Syncs often, seldom;
  const auto each = losses(device, 105, 1, often), tenth = losses(device, 105, 10, seldom);
  ASSERT_EQ(each.size(), 105u);
  ASSERT_EQ(tenth.size(), 105u);
  EXPECT_EQ(often.of("loss_extract"), 105);
  EXPECT_EQ(seldom.of("loss_extract"), 11);
  EXPECT_EQ(seldom.total(), 11);
  double sum_each = 0, sum_tenth = 0;
  for (size_t i = 0; i < each.size(); ++i) {
    EXPECT_EQ(each[i].step, static_cast<int64_t>(i + 1));
    EXPECT_EQ(each[i][LossBuffer::kLoss], 0.0 + 1.0 / (3.0 * (static_cast<double>(i) + 1)) + 0.1);
    EXPECT_EQ(each[i][LossBuffer::kTokens], static_cast<double>(i + 1));
    EXPECT_EQ(each[i][LossBuffer::kSkipped], (i + 1) % 7 == 0 ? 1 : 0);
    EXPECT_EQ(each[i].source_loss, (std::vector<double>{0, 2}));
    EXPECT_EQ(each[i].source_tokens, (std::vector<double>{0, 5}));
    sum_each += each[i][LossBuffer::kLoss], sum_tenth += tenth[i][LossBuffer::kLoss];
  }
  EXPECT_EQ(sum_each, sum_tenth) << "to the last bit";
}

// However fast copies are: several processes see the same steps in the same call.
TEST_P(LossBufferOn, SoManyAreLeftForLaterWhereTheirNumberIsAskedFor) {
  Syncs syncs;
  LossBuffer buffer(device, 1, 0);
  const auto step = [&](int64_t number) {
    buffer.finish(number);
    buffer.extract(syncs);
  };
  for (int64_t number : {1, 2, 3}) step(number);
  const auto first = buffer.arrived(1, /*exactly=*/true);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first.back().step, 2);
  EXPECT_TRUE(buffer.arrived(1, /*exactly=*/true).empty());
  step(4);
  const auto second = buffer.arrived(1, /*exactly=*/true);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second.front().step, 3);
  EXPECT_EQ(buffer.arrived(0, /*exactly=*/true).size(), 1u);
}

TEST_P(LossBufferOn, NothingNewCostsNothing) {
  Syncs syncs;
  LossBuffer buffer(device, 4, 0);
  buffer.extract(syncs);
  EXPECT_EQ(syncs.total(), 0);
  EXPECT_TRUE(buffer.arrived(0).empty());
}

TEST_P(LossBufferOn, OverflowIsRefused) {
  LossBuffer buffer(device, 2, 0);
  buffer.finish(1);
  EXPECT_FALSE(buffer.full());
  buffer.finish(2);
  EXPECT_TRUE(buffer.full());
  EXPECT_THROW(buffer.finish(3), std::logic_error);
}

}  // namespace
}  // namespace tightloop::testing
