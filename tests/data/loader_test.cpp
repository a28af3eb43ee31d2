#include "data/batch/loader.h"

#include <algorithm>
#include <set>

#include "support.h"

namespace tightloop {
namespace {

using Tokens = std::vector<int32_t>;

std::shared_ptr<TokenStore> counting(int64_t tokens) {
  auto store = std::make_shared<TokenStore>(1 << 20);
  Tokens ids;
  for (int32_t i = 0; i < tokens; ++i) ids.push_back(i);
  store->append(ids, {});
  return store;
}

LoaderOptions options(int64_t rows, int64_t seq_len) {
  LoaderOptions options;
  options.rows = rows;
  options.seq_len = seq_len;
  options.seed = 11;
  return options;
}

Tokens inputs_of(const Batch& batch) { return {batch.inputs, batch.inputs + batch.rows * batch.length}; }

std::vector<Tokens> take(Loader& loader, int count) {
  std::vector<Tokens> batches;
  for (int i = 0; i < count; ++i) batches.push_back(inputs_of(loader.next()));
  return batches;
}

TEST(Loader, OptionsThatMakeNoSenseAreRefused) {
  const auto store = counting(1000);
  const auto refused = [&](LoaderOptions wrong) {
    testing::error_of(ExitCode::kUsage, [&] { Loader(store, wrong); });
  };
  refused(options(0, 16));
  refused(options(4, 0));
  refused(options(4, -3));
  auto wrong = options(4, 16);
  wrong.first_batch = -5;
  refused(wrong);
  wrong = options(4, 16);
  wrong.rank = 2, wrong.world = 2;
  refused(wrong);
  testing::error_of(ExitCode::kUsage, [&] { Loader(nullptr, options(4, 16)); });
}

TEST(Loader, TheSameBatchesForAnyThreads) {
  const auto store = counting(10000);
  auto with = options(4, 16);
  with.threads = 0;
  Loader reference(store, with);
  const auto wanted = take(reference, 400);
  for (const int threads : {1, 2, 8}) {
    with.threads = threads;
    Loader loader(store, with);
    EXPECT_EQ(take(loader, 400), wanted) << threads;
  }
}

TEST(Loader, GoesOnFromAnyBatch) {
  const auto store = counting(5000);
  Loader whole(store, options(4, 16));
  const auto wanted = take(whole, 300);
  auto from = options(4, 16);
  from.first_batch = 137;
  Loader rest(store, from);
  for (int i = 137; i < 300; ++i) {
    const Batch& batch = rest.next();
    ASSERT_EQ(batch.index, i);
    ASSERT_EQ(inputs_of(batch), wanted[i]);
  }
}

TEST(Loader, AChangedSizeOrWorldGoesOnFromTheRow) {
  const auto store = counting(5000);
  auto whole = options(1, 16);
  whole.threads = 0;
  Loader one(store, whole);
  const auto rows = take(one, 700);  // more than two passes
  auto from = options(3, 16);
  from.world = 2, from.first_batch = 12, from.first_row = 4 * 37;
  std::vector<Tokens> seen(700 - 148);
  for (int rank = 0; rank < 2; ++rank) {
    from.rank = rank;
    Loader loader(store, from);
    for (int k = 0; k < 92; ++k) {
      const Batch& batch = loader.next();
      EXPECT_EQ(batch.index, 12 + k);
      EXPECT_EQ(loader.rows_before(batch.index), 148u + 6 * k);
      const auto inputs = inputs_of(batch);
      for (int r = 0; r < 3; ++r)
        seen.at(6 * k + 3 * rank + r) = Tokens(inputs.begin() + 16 * r, inputs.begin() + 16 * (r + 1));
    }
  }
  for (size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], rows[148 + i]) << "no row twice, none left out";
}

TEST(Loader, RanksShareOneOrder) {
  const auto store = counting(5000);
  Loader one(store, options(8, 16));
  auto half = options(4, 16);
  half.world = 2;
  Loader left(store, half);
  half.rank = 1;
  Loader right(store, half);
  for (int i = 0; i < 100; ++i) {
    const Tokens both = inputs_of(one.next());
    Tokens joined = inputs_of(left.next());
    const Tokens other = inputs_of(right.next());
    joined.insert(joined.end(), other.begin(), other.end());
    ASSERT_EQ(joined, both);
  }
}

TEST(Loader, EveryPassHasEveryRowOnceInAnotherOrder) {
  const auto store = counting(16 * 60 + 1);  // 60 rows
  Loader loader(store, options(4, 16));
  std::vector<std::vector<int32_t>> passes(3);
  for (auto& pass : passes)
    for (int i = 0; i < 15; ++i) {
      const Batch& batch = loader.next();
      for (int64_t r = 0; r < 4; ++r) pass.push_back(batch.inputs[r * 16]);
    }
  for (const auto& pass : passes) EXPECT_EQ(std::set<int32_t>(pass.begin(), pass.end()).size(), 60u);
  EXPECT_NE(passes[0], passes[1]);
  EXPECT_NE(passes[1], passes[2]);
  // The first pass cuts at multiples of the length, later ones elsewhere, but all rows of a pass alike.
  const auto shift = [](const std::vector<int32_t>& pass) {
    return *std::min_element(pass.begin(), pass.end());
  };
  EXPECT_EQ(shift(passes[0]), 0);
  EXPECT_NE(shift(passes[1]), shift(passes[2]));
  for (const auto& pass : passes)
    for (const int32_t start : pass) EXPECT_TRUE(start % 16 == shift(pass) || start == 16 * 59) << start;
  auto other = options(4, 16);
  other.seed = 12;
  Loader reseeded(store, other);
  EXPECT_NE(reseeded.next().inputs[0], passes[0][0]);
}

TEST(Loader, InOrderPassEndsAndMasksWhatIsMissing) {
  const auto store = counting(16 * 10 + 1);
  auto in_order = options(4, 16);
  in_order.shuffle = false;
  Loader loader(store, in_order);
  ASSERT_EQ(loader.batches(), 3);
  int64_t supervised = 0;
  for (int64_t i = 0; i < 3; ++i) {
    const Batch& batch = loader.next();
    supervised += batch.supervised;
    EXPECT_EQ(batch.inputs[0], i * 64);
    EXPECT_EQ(batch.bounds[batch.documents], 64);
    EXPECT_EQ(batch.padding, i == 2 ? 32 : 0);
  }
  EXPECT_EQ(supervised, 160);
  EXPECT_EQ(loader.try_next(), nullptr);
  testing::error_of(ExitCode::kData, [&] { loader.next(); });
}

TEST(Loader, BatchFactsAddUp) {
  auto store = std::make_shared<TokenStore>(1000);
  for (int32_t i = 0; i < 300; ++i) {
    const Tokens ids(2 + i % 30, i);
    std::vector<uint8_t> mask(ids.size(), 0);
    mask.back() = 1;
    store->append(ids, mask, i % 3);
  }
  for (const auto kind : {RowKind::kStream, RowKind::kPad, RowKind::kPack}) {
    auto with = options(5, 32);
    with.rows_kind = kind;
    Loader loader(store, with);
    for (int i = 0; i < 50; ++i) {
      const Batch& batch = loader.next();
      const int64_t cells = batch.rows * batch.length;
      ASSERT_EQ(batch.length, kind == RowKind::kPad ? 31 : 32);
      EXPECT_EQ(batch.bounds[0], 0);
      ASSERT_EQ(batch.bounds[batch.documents], cells);
      for (int64_t d = 0; d < batch.documents; ++d) {
        ASSERT_LT(batch.bounds[d], batch.bounds[d + 1]);
        // No document crosses a row.
        ASSERT_EQ(batch.bounds[d] / batch.length, (batch.bounds[d + 1] - 1) / batch.length);
      }
      int64_t supervised = 0;
      for (int64_t c = 0; c < cells; ++c) supervised += batch.loss_mask[c];
      EXPECT_EQ(batch.supervised, supervised);
      for (int64_t r = 0; r < batch.rows; ++r)
        EXPECT_EQ(batch.sources[r], batch.inputs[r * batch.length] % 3) << kind;
    }
  }
}

TEST(Loader, StopsAtAnyMoment) {
  for (int taken = 0; taken < 10; ++taken) {
    auto with = options(4, 16);
    with.threads = 3;
    Loader loader(counting(1000), with);
    for (int i = 0; i < taken; ++i) EXPECT_EQ(loader.next().index, i);
  }
}

TEST(Loader, CountsTheBytesOfSupervisedTargets) {
  auto store = std::make_shared<TokenStore>(100);
  store->append(Tokens{0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3},
                std::vector<uint8_t>{0, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0});
  auto with = options(2, 3);
  with.shuffle = false;
  with.token_bytes = std::make_shared<const Tokens>(Tokens{0, 1, 2, 4, 8, 16, 32, 64});  // none of 8
  Loader loader(store, with);
  int64_t bytes = 0;
  while (const Batch* batch = loader.try_next()) {
    int64_t wanted = 0;
    for (int64_t i = 0; i < batch->rows * batch->length; ++i)
      if (batch->loss_mask[i] && batch->targets[i] < 8) wanted += (*with.token_bytes)[batch->targets[i]];
    EXPECT_EQ(batch->bytes, wanted);
    bytes += batch->bytes;
  }
  EXPECT_EQ(bytes, 4 + 8 + 16 + 64 + 0 + 1);
  with.token_bytes.reset();
  EXPECT_EQ(Loader(store, with).next().bytes, 0);
}

}  // namespace
}  // namespace tightloop
