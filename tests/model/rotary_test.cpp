#include "model/parts/rotary.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace tightloop {
namespace {

TEST(PositionTables, GrowByDoubling) {
  int64_t made = 0, rows_made = 0;
  PositionTables tables([&](int64_t rows) {
    ++made, rows_made += rows;
    return std::vector{at::empty({rows, 2})};
  });
  for (int64_t length = 1; length <= 32768; ++length)
    ASSERT_GE(tables.cover(length, at::kCPU, at::kFloat)[0].size(0), length);
  EXPECT_LE(made, 9) << "128, 256, ... 32768";
  EXPECT_LE(rows_made, 2 * 32768);
}

TEST(PositionTables, AreKeptForEachDtype) {
  int made = 0;
  PositionTables tables([&](int64_t rows) {
    ++made;
    return std::vector{at::empty({rows, 2})};
  });
  for (int i = 0; i < 4; ++i)
    for (const auto dtype : {at::kFloat, at::kBFloat16})
      EXPECT_EQ(tables.cover(100, at::kCPU, dtype)[0].scalar_type(), dtype);
  EXPECT_EQ(made, 2);
}

}  // namespace
}  // namespace tightloop
