#include "train/optim/shard_plan.h"

#include <algorithm>
#include <map>

#include "core/random.h"
#include "support.h"

namespace tightloop::testing {
namespace {

using Matrix = PlannedParameter::Matrix;

std::vector<PlannedParameter> random_parameters(uint64_t seed) {
  Random random(seed);
  std::vector<PlannedParameter> parameters;
  const auto count = 1 + random.below(30);
  for (uint64_t i = 0; i < count; ++i) {
    PlannedParameter one{.dtype = random.below(4) == 0 ? at::kBFloat16 : at::kFloat};
    if (random.below(2) == 0) {
      const auto matrices = 1 + random.below(6);
      for (uint64_t j = 0; j < matrices; ++j)
        one.matrices.push_back(
            {1 + static_cast<int64_t>(random.below(40)), 1 + static_cast<int64_t>(random.below(40))});
      for (const auto& [rows, columns] : one.matrices) one.size += rows * columns;
    } else {
      one.size = 1 + static_cast<int64_t>(random.below(5000));
    }
    parameters.push_back(std::move(one));
  }
  return parameters;
}

TEST(ShardPlan, EveryValueIsUpdatedByOneProcessAndMatricesByOneAlone) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const auto parameters = random_parameters(seed);
    const int world = 1 + static_cast<int>(seed % 9);
    const ShardPlan plan(
        parameters, {.bytes = 1 + static_cast<int64_t>(seed * 37 % 9000), .world = world, .sharded = true});
    std::vector<std::vector<int>> owners;
    for (const auto& one : parameters) owners.emplace_back(one.size, -1);
    for (int rank = 0; rank < world; ++rank) {
      const auto own = plan.own(rank);
      EXPECT_TRUE(std::ranges::is_sorted(own, {}, [](const ShardPlan::Own& one) {
        return std::pair(one.piece.parameter, one.piece.begin);
      })) << "sums over what is updated are in one order";
      for (const auto& [bucket, offset, piece] : own) {
        const BucketExtent& extent = plan.buckets()[bucket];
        const int64_t room = extent.owner == BucketExtent::kSliced ? plan.slice(extent) : extent.size;
        EXPECT_LE(offset + piece.size(), room);
        for (int64_t i = piece.begin; i < piece.end; ++i) {
          EXPECT_EQ(owners[piece.parameter][i], -1) << "updated twice";
          owners[piece.parameter][i] = rank;
        }
      }
    }
    for (size_t p = 0; p < parameters.size(); ++p) {
      EXPECT_EQ(std::ranges::count(owners[p], -1), 0) << "not updated";
      int64_t begin = 0;
      for (const auto& [rows, columns] : parameters[p].matrices) {
        for (int64_t i = begin; i < begin + rows * columns; ++i) EXPECT_EQ(owners[p][i], owners[p][begin]);
        begin += rows * columns;
      }
    }
  }
}

TEST(ShardPlan, BucketsAreInTheOrderInWhichBackwardCompletesThem) {
  for (uint64_t seed = 0; seed < 100; ++seed)
    for (const bool sharded : {false, true}) {
      const ShardPlan plan(random_parameters(seed), {.bytes = 4000, .world = 3, .sharded = sharded});
      std::vector<size_t> last;
      for (const auto& bucket : plan.buckets()) {
        size_t lowest = bucket.pieces.front().parameter;
        for (const auto& piece : bucket.pieces) lowest = std::min(lowest, piece.parameter);
        last.push_back(lowest);
      }
      EXPECT_TRUE(!sharded || std::ranges::is_sorted(last, std::greater<>())) << seed;
    }
}

TEST(ShardPlan, SlicesAreEqualAndAligned) {
  for (const int world : {1, 2, 3, 7, 8}) {
    const ShardPlan plan({{.size = 1000}, {.size = 3}, {.size = 7777}},
                         {.bytes = 1 << 20, .world = world, .sharded = true});
    ASSERT_EQ(plan.buckets().size(), 1U);
    const BucketExtent& bucket = plan.buckets()[0];
    EXPECT_EQ(bucket.size % world, 0);
    EXPECT_EQ(plan.slice(bucket) * 4 % ShardPlan::kAlignment, 0);
    EXPECT_EQ(bucket.pieces.front(), (ParameterPiece{2, 0, 7777}));
  }
}

TEST(ShardPlan, MuonsCostIsSharedOut) {
  std::vector<PlannedParameter> parameters;
  for (int layer = 0; layer < 12; ++layer)
    for (const Matrix& matrix : {Matrix{768, 768}, Matrix{768, 768}, Matrix{3072, 768}, Matrix{768, 3072}})
      parameters.push_back({.size = matrix.rows * matrix.columns, .matrices = {matrix}});
  for (const int world : {2, 4, 8}) {
    const ShardPlan plan(parameters, {.world = world, .sharded = true});
    std::map<int, double> loads;
    double total = 0;
    for (const auto& bucket : plan.buckets()) {
      const double cost = muon_cost(parameters[bucket.pieces.front().parameter].matrices[0]);
      loads[bucket.owner] += cost, total += cost;
    }
    ASSERT_EQ(loads.size(), static_cast<size_t>(world));
    for (const auto& [owner, load] : loads) EXPECT_LT(load, 1.1 * total / world) << owner;
  }
}

TEST(ShardPlan, UnshardedIsEverythingForEverybody) {
  const ShardPlan plan({{.size = 10, .matrices = {{2, 5}}}, {.size = 4}}, {.world = 3});
  for (int rank = 0; rank < 3; ++rank) {
    const auto own = plan.own(rank);
    ASSERT_EQ(own.size(), 2U);
    EXPECT_EQ(own[0].piece, (ParameterPiece{0, 0, 10}));
    EXPECT_EQ(own[1].piece, (ParameterPiece{1, 0, 4}));
  }
}

}  // namespace
}  // namespace tightloop::testing
