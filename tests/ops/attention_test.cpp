#include "ops/attention/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

struct Shape {
  int64_t B, H, T, S, size;
};

/// Keys that each batch sees: all of them, one, and something between.
Tensor some_lengths(const Shape& shape) {
  std::vector<int64_t> lengths;
  for (int64_t b = 0; b < shape.B; ++b) lengths.push_back(b == 0 ? shape.S : 1 + (b * 37) % shape.S);
  return at::tensor(lengths, at::kLong);
}

ops::Dropout dropout(double share, at::Device device) {
  return {share, at::full({}, 0x1234567, at::TensorOptions(at::kLong).device(device)), 5};
}

class AttentionOn : public OnDevice {
 protected:
  /// In 16 bits where there is a kernel, else in fp32: torch's passes round every intermediate.
  std::vector<at::ScalarType> dtypes() const {
    if (has_kernel_for("tightloop::attention_forward", device)) return {at::kBFloat16, at::kHalf};
    return {at::kFloat};
  }
  /// Weights and the scores' gradients are rounded before they meet the next product.
  static double attention_tolerance(at::ScalarType dtype) { return 2 * tolerance(dtype); }

  void compare_self(const Shape& shape, bool causal, bool lengths, double share) {
    for (const auto dtype : dtypes()) {
      SCOPED_TRACE(::testing::Message() << "self " << shape.T << " of " << shape.size << " causal " << causal
                                        << " lengths " << lengths << " dropout " << share << ' ' << dtype);
      const auto mask = [&](const Tensor& x) {
        return ops::KeyMask{lengths ? some_lengths(shape).to(x.device()) : Tensor(), causal};
      };
      expect_agreement(
          [&](const auto& in) {
            return ops::self_attention(in[0], mask(in[0]), dropout(share, in[0].device()));
          },
          [&](const auto& in) {
            return ops::attention_plain(in[0].select(2, 0), in[0].select(2, 1), in[0].select(2, 2),
                                        mask(in[0]), dropout(share, in[0].device()));
          },
          {random_tensor({shape.B, shape.T, 3, shape.H, shape.size}, dtype, 1).to(device)},
          attention_tolerance(dtype));
    }
  }

  void compare_cross(const Shape& shape, double share) {
    for (const auto dtype : dtypes()) {
      SCOPED_TRACE(::testing::Message() << "cross " << shape.T << " to " << shape.S << " of " << shape.size
                                        << " dropout " << share << ' ' << dtype);
      const auto mask = [&](const Tensor& x) { return ops::KeyMask{some_lengths(shape).to(x.device())}; };
      expect_agreement(
          [&](const auto& in) {
            return ops::cross_attention(in[0], in[1], mask(in[0]), dropout(share, in[0].device()));
          },
          [&](const auto& in) {
            return ops::attention_plain(in[0], in[1].select(2, 0), in[1].select(2, 1), mask(in[0]),
                                        dropout(share, in[0].device()));
          },
          {random_tensor({shape.B, shape.T, shape.H, shape.size}, dtype, 2).to(device),
           random_tensor({shape.B, shape.S, 2, shape.H, shape.size}, dtype, 3).to(device)},
          attention_tolerance(dtype));
    }
  }
};
ON_EVERY_DEVICE(AttentionOn);

TEST_P(AttentionOn, OfItselfAgreesWithThePlainTwin) {
  for (const bool causal : {false, true})
    for (const double share : {0.0, 0.3}) {
      compare_self({2, 3, 40, 40, 64}, causal, /*lengths=*/true, share);
      compare_self({3, 1, 17, 17, 32}, causal, /*lengths=*/true, share);
    }
  compare_self({1, 2, 1, 1, 64}, true, false, 0);
  compare_self({2, 1, 64, 64, 64}, false, false, 0.1);
}

TEST_P(AttentionOn, TakesMoreThanOneTile) {
  compare_self({1, 2, 70, 70, 64}, true, false, 0.3);
  compare_self({2, 1, 130, 130, 32}, false, true, 0);
  compare_self({1, 1, 129, 129, 32}, true, true, 0.2);
}

TEST_P(AttentionOn, AcrossAgreesWithThePlainTwin) {
  compare_cross({4, 2, 40, 33, 64}, 0.3);
  compare_cross({2, 1, 5, 80, 64}, 0);
  compare_cross({2, 1, 70, 3, 32}, 0.5);
  compare_cross({1, 1, 1, 1, 32}, 0);
}

TEST_P(AttentionOn, TakesLongHeads) {
  compare_self({1, 1, 20, 20, 128}, true, false, 0.2);
  compare_cross({2, 1, 18, 66, 128}, 0);
}

TEST_P(AttentionOn, SizesWithoutAKernelAreServedToo) {
  const auto x = random_tensor({2, 5, 3, 2, 8}, at::kFloat, 1).to(device);
  expect_agreement(
      [&](const auto& in) {
        return ops::self_attention(in[0], {{}, true});
      },
      [&](const auto& in) {
        return ops::attention_plain(in[0].select(2, 0), in[0].select(2, 1), in[0].select(2, 2), {{}, true},
                                    {});
      },
      {x}, tolerance(at::kFloat));
}

TEST_P(AttentionOn, PaddingChangesNothing) {
  for (const auto dtype : dtypes()) {
    const auto q = random_tensor({2, 9, 2, 32}, dtype, 1).to(device);
    auto kv = random_tensor({2, 12, 2, 2, 32}, dtype, 2).to(device);
    const ops::KeyMask mask{at::tensor({7, 12}, at::kLong).to(device)};
    const auto before = ops::cross_attention(q, kv, mask);
    kv[0].slice(0, 7).fill_(1000);
    EXPECT_TRUE(at::equal(ops::cross_attention(q, kv, mask), before)) << dtype;
  }
}

TEST_P(AttentionOn, RefusesWhatItCannotUse) {
  const auto q = random_tensor({2, 4, 1, 32}, at::kFloat, 1).to(device),
             kv = random_tensor({2, 5, 2, 1, 32}, at::kFloat, 1).to(device);
  EXPECT_THROW(ops::cross_attention(q, kv, {{}, /*causal=*/true}), c10::Error);
  EXPECT_THROW(ops::cross_attention(q, kv, {at::tensor({1}, at::kLong).to(device)}), c10::Error);
  EXPECT_THROW(ops::cross_attention(q, kv, {}, {0.1, {}, 1}), c10::Error);
  EXPECT_THROW(ops::self_attention(q), c10::Error);
  EXPECT_THROW(ops::cross_attention(q, kv.slice(0, 0, 1)), c10::Error) << "other batches";
  EXPECT_THROW(ops::cross_attention(q, kv.to(at::kDouble)), c10::Error) << "another dtype";
}

}  // namespace
}  // namespace tightloop::testing
