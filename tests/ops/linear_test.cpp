#include "ops/linear.h"

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <dlfcn.h>

#include <string>

#include "ops/compare.h"

namespace tightloop::testing {
namespace {

at::Tensor with_bias(const std::vector<at::Tensor>& in) { return ops::linear(in[0], in[1], in[2]); }
at::Tensor without(const std::vector<at::Tensor>& in) { return ops::linear(in[0], in[1]); }

// core/cpu.cpp has a function that MKL's calls are to find before MKL's own.
TEST(Linear, MklAsksTheProgramAboutTheProcessor) {
  void* const found = ::dlsym(RTLD_DEFAULT, "mkl_serv_intel_cpu_true");
  Dl_info place{};
  ASSERT_TRUE(found && ::dladdr(found, &place));
  EXPECT_EQ(std::string(place.dli_fname).find("libtorch"), std::string::npos) << place.dli_fname;
}

// Whatever the CPU has: each product is rounded once.
TEST(Linear, AgreesWithTorchInEveryDtype) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const auto& [rows, in, out] : {std::tuple{1, 16, 8}, {2, 7, 5}, {33, 64, 129}, {128, 256, 64}}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << in << " x " << out << ' ' << dtype);
      const auto x = random_tensor({rows, in}, dtype, 1), weight = random_tensor({out, in}, dtype, 2, 0.2);
      const auto bias = random_tensor({out}, dtype, 3);
      expect_agreement(
          with_bias, [](const auto& i) { return at::linear(i[0], i[1], i[2]); }, {x, weight, bias},
          tolerance(dtype));
      expect_agreement(
          without, [](const auto& i) { return at::linear(i[0], i[1]); }, {x.view({1, rows, in}), weight},
          tolerance(dtype));
    }
}

TEST(Linear, NeedsNoGradientOfEither) {
  for (const size_t fixed : {0, 1})
    expect_agreement(without, [](const auto& i) { return at::linear(i[0], i[1]); },
                     {random_tensor({9, 32}, at::kBFloat16, 1), random_tensor({16, 32}, at::kBFloat16, 2)},
                     tolerance(at::kBFloat16), {fixed});
}

TEST(Linear, TakesNoRows) {
  const auto x = random_tensor({0, 32}, at::kBFloat16, 1), weight = random_tensor({16, 32}, at::kBFloat16, 2);
  EXPECT_EQ(ops::linear(x, weight).sizes(), (std::vector<int64_t>{0, 16}));
}

}  // namespace
}  // namespace tightloop::testing
