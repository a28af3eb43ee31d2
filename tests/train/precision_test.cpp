#include "train/engine/precision.h"

#include "core/cpu.h"
#include "core/log.h"
#include "dist/several.h"
#include "train/engine/device_speed.h"

namespace tightloop::testing {
namespace {

const Environment kSlow{{"ATEN_CPU_CAPABILITY", "avx2"}, {"ONEDNN_MAX_CPU_ISA", "AVX2"}};

TEST(Precision, ACpuThatIsSlowAtBf16NeverTakesItByDefault) {
  if (!in_child()) return expect_success(1, kSlow);
  Device& cpu = cpu_device();
  EXPECT_EQ(compute_dtype(Precision::kAuto, cpu), at::kFloat);
  EXPECT_EQ(compute_dtype(Precision::kBf16, cpu), at::kBFloat16);
  for (const auto trained : {Precision::kBf16, Precision::kFp16, Precision::kAuto, Precision::kFp32})
    EXPECT_EQ(inference_dtype({}, trained, cpu), at::kFloat) << name_of(trained);
  EXPECT_EQ(inference_dtype(Precision::kAuto, Precision::kBf16, cpu), at::kFloat);
  EXPECT_EQ(inference_dtype(Precision::kBf16, Precision::kFp32, cpu), at::kBFloat16) << "asked for by name";
}

TEST(Precision, ProductsThatTheCpuHasNotAreNamed) {
  if (!in_child()) return expect_success(1, kSlow);
  const fs::path file = fs::path(std::getenv("TIGHTLOOP_TEST_FOLDER")) / "log";
  log::to_file(file);
  warn_of_slow_products(at::kFloat, cpu_device());
  EXPECT_EQ(read_file(file).find("products"), std::string::npos);
  warn_of_slow_products(at::kBFloat16, cpu_device());
  log::shut_down();
  EXPECT_NE(read_file(file).find("This CPU has no products in bf16"), std::string::npos) << read_file(file);
}

TEST(Precision, ACpuHasNoTf32) { EXPECT_EQ(precision_name(Precision::kTf32, cpu_device()), "fp32"); }

TEST(Utilization, AboveThePeakIsNoFigure) {
  EXPECT_EQ(utilization(1, 4), 0.25);
  EXPECT_EQ(utilization(4, 4), 1.0);
  EXPECT_EQ(utilization(102, 1), std::nullopt);
  EXPECT_EQ(utilization(1, 0), std::nullopt);
}

}  // namespace
}  // namespace tightloop::testing
