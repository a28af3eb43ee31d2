#include "ops/pointwise/stamp.h"

#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <thread>

#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

class StampOn : public OnDevice {};
ON_EVERY_DEVICE(StampOn);

double column(const Tensor& row, int64_t index) { return row[index].item<double>(); }

void pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

TEST_P(StampOn, AddsUpTheParts) {
  const Tensor row = at::zeros({4}, at::TensorOptions(at::kDouble).device(device));
  const auto begin = std::chrono::steady_clock::now();
  ops::stamp_(row, 0);
  const double first = column(row, 0);  // waits for the device
  for (int round = 0; round < 3; ++round) {
    pause(4);
    ops::lap_(row, 0, 1);
    (void)column(row, 0);
    pause(1);
    ops::lap_(row, 0, 2);
    (void)column(row, 0);
  }
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double last = column(row, 0), a = column(row, 1), b = column(row, 2);
  EXPECT_GE(a, 0.0119);  // a clock of a GPU may tick by the microsecond
  EXPECT_GE(b, 0.0029);
  EXPECT_NEAR(a + b, last - first, 1e-6) << "the laps leave nothing out";
  EXPECT_LE(a + b, wall + 1e-4);
  EXPECT_EQ(column(row, 3), 0);
}

TEST_P(StampOn, TellsWhenTheWorkBeforeWasDone) {
  const Tensor row = at::zeros({2}, at::TensorOptions(at::kDouble).device(device));
  const Tensor x = at::ones({1024, 1024}, at::TensorOptions(at::kFloat).device(device));
  ops::stamp_(row, 0);
  for (int i = 0; i < 4; ++i) at::matmul(x, x);
  ops::lap_(row, 0, 1);
  EXPECT_GT(column(row, 1), 4e-6) << "8 GFLOP";
  EXPECT_LT(column(row, 1), 60);
}

TEST(Stamp, RefusesWhatItCannotWriteTo) {
  const Tensor row = at::zeros({3}, at::kDouble);
  EXPECT_THROW(ops::stamp_(row, 3), c10::Error);
  EXPECT_THROW(ops::stamp_(row, -1), c10::Error);
  EXPECT_THROW(ops::lap_(row, 0, 3), c10::Error);
  EXPECT_THROW(ops::lap_(row, 1, 1), c10::Error);
  EXPECT_THROW(ops::stamp_(at::zeros({3}, at::kFloat), 0), c10::Error);
  EXPECT_THROW(ops::stamp_(at::zeros({3, 3}, at::kDouble), 0), c10::Error);
}

}  // namespace
}  // namespace tightloop::testing
