// A whole translator in bf16 on the CUDA kernels, as fibers, against the plain twins in fp32.
#include "model/families/seq2seq/seq2seq.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "ops/compare.h"

namespace tightloop {
namespace {

class FusedSeq2Seq : public ::testing::TestWithParam<std::pair<NormPlacement, PositionEncoding>> {
 protected:
  static ModelConfig config() {
    ModelConfig config;
    config.family = "seq2seq";
    config.layers = 1, config.encoder_layers = 1, config.width = 64, config.heads = 2, config.dropout = 0.1;
    config.norm_place = GetParam().first, config.positions = GetParam().second;
    config.vocab_size = 24;
    config.resolve(0, 0);
    return config;
  }

  static at::Tensor ids(at::IntArrayRef shape, uint64_t seed) {
    return 3 + testing::random_tensor(shape, at::kDouble, seed, 1000).abs().to(at::kLong).remainder(21);
  }

  /// The states that the head reads of some sentences, then all gradients.
  static std::vector<at::Tensor> run(at::ScalarType dtype, uint64_t seed) {
    Seq2Seq model(config(), seed);
    model.parameters().to(at::kCPU, dtype);
    const Pass pass{.training = true, .random = at::scalar_tensor(static_cast<int64_t>(seed), at::kLong)};
    const auto memory = model.encode(ids({3, 19}, seed), at::tensor({19, 4, 1}, at::kLong), pass);
    const auto hidden = model.decode(ids({3, 17}, seed + 10), memory, pass);
    (hidden.to(at::kFloat) * testing::random_tensor(hidden.sizes(), at::kFloat, seed)).sum().backward();
    std::vector<at::Tensor> all{hidden.detach()};
    for (const auto& parameter : model.parameters().all()) all.push_back(parameter.value.grad());
    return all;
  }
};

// A few layers in bf16 are several percent away from fp32, on the twins as on the kernels. A gradient that is
// missing a part would be much further.
TEST_P(FusedSeq2Seq, IsAsNearToFp32AsThePlainTwinsAre) {
  double ours = 0, theirs = 0;
  for (const uint64_t seed : {1, 2}) {
    const auto fused = run(at::kBFloat16, seed);
    const testing::PlainScope plain;
    const auto twins = run(at::kBFloat16, seed), exact = run(at::kFloat, seed);
    const auto distance = [&](const at::Tensor& got, size_t i) {
      const auto wanted = exact[i].to(at::kDouble);
      return ((got.to(at::kDouble) - wanted).norm() / wanted.norm()).item<double>();
    };
    ASSERT_EQ(fused.size(), exact.size());
    for (size_t i = 0; i < fused.size(); ++i) {
      ours += distance(fused[i], i), theirs += distance(twins[i], i);
      EXPECT_LT(distance(fused[i], i), 2 * distance(twins[i], i) + 0.01)
          << "tensor " << i << ' ' << exact[i].sizes();
    }
  }
  EXPECT_LT(ours, 1.5 * theirs);  // of single inputs the ratio is 0.7 to 1.2, by chance
}

INSTANTIATE_TEST_SUITE_P(Each, FusedSeq2Seq,
                         ::testing::Values(std::pair(NormPlacement::kPre, PositionEncoding::kSinusoidal),
                                           std::pair(NormPlacement::kPost, PositionEncoding::kSinusoidal),
                                           std::pair(NormPlacement::kPre, PositionEncoding::kRotary)),
                         [](const auto& kind) {
                           return fmt::format("{}_{}", name_of(kind.param.first), name_of(kind.param.second));
                         });

}  // namespace
}  // namespace tightloop
