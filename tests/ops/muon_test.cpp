#include "ops/optim/muon.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>

#include "ops/compare.h"
#include "train/allocations.h"

namespace tightloop::testing {
namespace {

using at::Tensor;
using ops::MuonTensors;

ops::MuonSettings settings(at::ScalarType dtype) { return {0.02, 0.9, 0.3, dtype}; }

Tensor control(int64_t step, bool skip, at::Device device) {
  const auto s = static_cast<float>(step);
  return at::tensor({1 - 0.05f * s, 3.0f, s, skip ? 1.0f : 0.0f, 0.85f + 0.01f * s, 1 - s / 12}).to(device);
}

struct Shape {
  int64_t matrices, m, n;
};
// Odd sizes, tall and wide ones, a row, a column, several blocks.
const std::vector<Shape> kShapes{{3, 5, 7},   {2, 7, 5}, {1, 1, 9},   {2, 9, 1},
                                 {4, 16, 16}, {2, 8, 4}, {2, 33, 36}, {2, 24, 72}};

/// The matrices of a tensor whose first rows belong to somebody else, as those of q, k and v do.
std::vector<Tensor> parts_of(const Tensor& whole, const Shape& shape) {
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < shape.matrices; ++i) parts.push_back(whole.narrow(0, 3 + i * shape.m, shape.m));
  return parts;
}

MuonTensors make(const Shape& shape, at::ScalarType gradients, at::ScalarType dtype, at::Device device) {
  const auto [K, m, n] = shape;
  const Tensor masters = random_tensor({3 + K * m, n}, at::kFloat, 1, 0.5).to(device);
  const auto options = masters.options();
  return {.masters = parts_of(masters, shape),
          .gradients = parts_of(at::zeros_like(masters, options.dtype(gradients)), shape),
          .values = parts_of(masters.to(dtype), shape),  // in fp32 the masters
          .momentum = at::zeros({K, m, n}, options),
          .variance = m >= n ? at::zeros({K, m, 1}, options) : at::zeros({K, 1, n}, options)};
}

/// The same values elsewhere: masters and state in `dtype`, in tensors of their own.
MuonTensors copy_of(const MuonTensors& from, at::ScalarType dtype, at::Device device) {
  const auto copy = [&](const Tensor& x, at::ScalarType to) { return x.clone().to(device, to); };
  MuonTensors made;
  const bool masters = from.values[0].const_data_ptr() == from.masters[0].const_data_ptr();
  for (size_t i = 0; i < from.masters.size(); ++i) {
    made.masters.push_back(copy(from.masters[i], dtype));
    made.gradients.push_back(copy(from.gradients[i], from.gradients[i].scalar_type()));
    made.values.push_back(masters || dtype == at::kDouble
                              ? made.masters.back()
                              : copy(from.values[i], from.values[i].scalar_type()));
  }
  made.momentum = copy(from.momentum, dtype), made.variance = copy(from.variance, dtype);
  return made;
}

void draw_gradients(const MuonTensors& tensors, int64_t step) {
  for (size_t i = 0; i < tensors.gradients.size(); ++i)
    tensors.gradients[i].copy_(
        random_tensor(tensors.gradients[i].sizes(), at::kFloat, 1000 * static_cast<uint64_t>(step) + i)
            .to(tensors.gradients[i].scalar_type()));
}

Tensor flat(const std::vector<Tensor>& list) { return at::stack(list).to(at::kCPU, at::kDouble); }

/// How far `ours` ended from `wanted`, as a share of the way from `start`.
double strayed(const MuonTensors& ours, const MuonTensors& wanted, const Tensor& start) {
  const Tensor end = flat(wanted.masters);
  return ((flat(ours.masters) - end).norm() / (end - start).norm()).item<double>();
}
// Another last digit of x somewhere goes through five steps in 16 bits.
constexpr double kStray = 0.03;

TEST(Muon, WorksInTheMemoryThatIsPredicted) {
  for (const Shape& shape : {Shape{8, 128, 128}, {6, 96, 256}, {6, 256, 96}})
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const MuonTensors tensors = make(shape, at::kFloat, dtype, at::kCPU);
      const Tensor numbers = control(1, /*skip=*/false, at::kCPU);
      ops::muon_plain_(tensors, settings(dtype), numbers);
      const Allocations all;
      ops::muon_plain_(tensors, settings(dtype), numbers);
      const double predicted =
          ops::muon_workspace(shape.matrices, shape.m, shape.n, dtype, /*kernels=*/false);
      EXPECT_NEAR(predicted / all.peak(), 1, 0.05) << shape.m << " x " << shape.n << ", " << dtype;
    }
}

class MuonOn : public OnDevice {};
ON_EVERY_DEVICE(MuonOn);

TEST_P(MuonOn, InFp32AgreesWithThePlainTwinInFp64) {
  for (const Shape& shape : kShapes)
    for (const auto gradients : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(::testing::Message() << shape.matrices << " x " << shape.m << " x " << shape.n << ' '
                                        << gradients << ' ' << device);
      const MuonTensors ours = make(shape, gradients, at::kFloat, device),
                        exact = copy_of(ours, at::kDouble, at::kCPU);
      for (int64_t step = 1; step <= 3; ++step) {
        draw_gradients(ours, step), draw_gradients(exact, step);
        ops::muon_(ours, settings(at::kFloat), control(step, false, device));
        ops::muon_plain_(exact, settings(at::kDouble), control(step, false, at::kCPU));
      }
      EXPECT_LT(relative_error(ours.momentum, exact.momentum), 1e-6);
      EXPECT_LT(relative_error(ours.variance, exact.variance), 2e-5);
      EXPECT_LT(relative_error(flat(ours.masters), flat(exact.masters)), 2e-6);
      EXPECT_TRUE(at::equal(flat(ours.values), flat(ours.masters)));
    }
}

// Large groups of long matrices have steps of Polar Express joined; one alone has not.
TEST_P(MuonOn, ManyLongMatricesAreUpdatedAsOneAlone) {
  if (kFibers) GTEST_SKIP() << "too many elements for fibers";
  for (const auto& [m, n] : {std::pair{128, 512}, {512, 128}}) {
    const MuonTensors many = make({257, m, n}, at::kFloat, at::kFloat, device);
    draw_gradients(many, 1);
    const MuonTensors one = copy_of({.masters = {many.masters[0]},
                                     .gradients = {many.gradients[0]},
                                     .values = {many.masters[0]},
                                     .momentum = many.momentum.narrow(0, 0, 1),
                                     .variance = many.variance.narrow(0, 0, 1)},
                                    at::kFloat, device);
    const Tensor start = flat(one.masters);
    ops::muon_(many, settings(at::kFloat), control(1, false, device));
    ops::muon_(one, settings(at::kFloat), control(1, false, device));
    const Tensor end = flat(one.masters);
    EXPECT_LT(((flat({many.masters[0]}) - end).norm() / (end - start).norm()).item<double>(), 1e-4);
  }
}

TEST_P(MuonOn, In16BitsAgreesWithThePlainTwin) {
  if (!has_kernel_for("tightloop::muon_start_", device)) GTEST_SKIP() << "the twin is all there is";
  std::vector dtypes{at::kBFloat16};
  if (device.is_cuda()) dtypes.push_back(at::kHalf);
  for (const Shape& shape : kShapes)
    for (const auto dtype : dtypes)
      for (const auto gradients : {at::kFloat, dtype}) {
        SCOPED_TRACE(::testing::Message() << shape.matrices << " x " << shape.m << " x " << shape.n << ' '
                                          << gradients << ' ' << dtype << ' ' << device);
        const MuonTensors ours = make(shape, gradients, dtype, device),
                          plain = copy_of(ours, at::kFloat, device);
        const Tensor start = flat(ours.masters);
        for (int64_t step = 1; step <= 3; ++step) {
          draw_gradients(ours, step), draw_gradients(plain, step);
          ops::muon_(ours, settings(dtype), control(step, false, device));
          ops::muon_plain_(plain, settings(dtype), control(step, false, device));
        }
        EXPECT_LT(relative_error(ours.momentum, plain.momentum), 1e-6);
        EXPECT_LT(strayed(ours, plain, start), kStray);
        for (size_t i = 0; i < ours.masters.size(); ++i)
          ASSERT_TRUE(at::equal(ours.values[i], ours.masters[i].to(dtype))) << i;
      }
}

TEST_P(MuonOn, TakesMoreMatricesThanATableHolds) {
  if (!has_kernel_for("tightloop::muon_start_", device)) GTEST_SKIP() << "the twin is all there is";
  const MuonTensors ours = make({520, 2, 3}, at::kBFloat16, at::kBFloat16, device),
                    plain = copy_of(ours, at::kFloat, device);
  const Tensor start = flat(ours.masters);
  draw_gradients(ours, 1), draw_gradients(plain, 1);
  ops::muon_(ours, settings(at::kBFloat16), control(1, false, device));
  ops::muon_plain_(plain, settings(at::kBFloat16), control(1, false, device));
  EXPECT_LT(relative_error(ours.momentum, plain.momentum), 1e-6);
  EXPECT_LT(strayed(ours, plain, start), kStray);
}

TEST_P(MuonOn, ASkippedUpdateChangesNothing) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const MuonTensors ours = make({3, 8, 12}, dtype, dtype, device);
    draw_gradients(ours, 1);
    ops::muon_(ours, settings(dtype), control(1, false, device));
    const MuonTensors before = copy_of(ours, at::kFloat, device);
    ours.gradients[1].fill_(std::numeric_limits<float>::quiet_NaN());
    ops::muon_(ours, settings(dtype), control(2, true, device));
    EXPECT_TRUE(at::equal(flat(ours.masters), flat(before.masters)));
    EXPECT_TRUE(at::equal(flat(ours.values), flat(before.values)));
    EXPECT_TRUE(at::equal(ours.momentum, before.momentum));
    EXPECT_TRUE(at::equal(ours.variance, before.variance));
  }
}

TEST_P(MuonOn, NoGradientMeansNoUpdateButDecay) {
  const MuonTensors ours = make({2, 8, 4}, at::kBFloat16, at::kBFloat16, device);
  const Tensor start = flat(ours.masters);
  ops::muon_(ours, settings(at::kBFloat16), control(0, false, device));
  EXPECT_LT(relative_error(flat(ours.masters), start * (1 - 0.02 * std::sqrt(2.0) * 0.3)), 1e-6);
}

// From the definition: without decay and on the first step, a square matrix moves by lr times an orthogonal
// one whose rows have one norm.
TEST_P(MuonOn, MovesByAnOrthogonalMatrix) {
  const MuonTensors ours = make({2, 16, 16}, at::kFloat, at::kFloat, device);
  // Singular values that are not too small: five steps bring those near 1.
  for (const Tensor& gradient : ours.gradients)
    gradient.copy_(at::eye(16) * 3 + random_tensor({16, 16}, at::kFloat, 5, 0.3));
  const Tensor start = flat(ours.masters);
  auto without_decay = settings(at::kFloat);
  without_decay.decay = 0;
  ops::muon_(ours, without_decay, control(0, false, device));
  const Tensor moved = (start - flat(ours.masters)) / 0.02;
  EXPECT_LT((at::matmul(moved, moved.mT()) - at::eye(16, at::kDouble)).abs().max().item<double>(), 0.2);
  EXPECT_LT((moved.pow(2).sum(-1) - 1).abs().max().item<double>(), 1e-4);
}

}  // namespace
}  // namespace tightloop::testing
