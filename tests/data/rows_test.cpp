#include "data/batch/rows.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/random.h"
#include "data/batch/pack.h"
#include "support.h"

namespace tightloop {
namespace {

using Tokens = std::vector<int32_t>;

// Documents with tokens that are all different, so that every position can be told apart.
std::shared_ptr<TokenStore> numbered(const std::vector<int>& lengths, int64_t vocab = 1 << 20) {
  auto store = std::make_shared<TokenStore>(vocab);
  int32_t next = 1;
  for (const int length : lengths) {
    Tokens ids;
    for (int i = 0; i < length; ++i) ids.push_back(next++);
    store->append(ids, {});
  }
  return store;
}

struct Row {
  Tokens inputs, targets, bounds;
  std::vector<uint8_t> mask;
  RowFacts facts;
};

Row fill(const RowPlan& plan, uint64_t row, uint64_t shift = 0) {
  const auto length = static_cast<size_t>(plan.length());
  Row out{
      Tokens(length, -7), Tokens(length, -7), Tokens(length + 1, -7), std::vector<uint8_t>(length, 9), {}};
  out.facts =
      plan.fill(row, shift, {out.inputs.data(), out.targets.data(), out.mask.data(), out.bounds.data(), 0});
  out.bounds.resize(out.facts.documents);
  return out;
}

TEST(StreamRows, CutWithOneTokenOfOverlap) {
  const auto plan = make_row_plan(RowKind::kStream, numbered({3, 4, 4}), 5, 0, 0);  // tokens 1 to 11
  ASSERT_EQ(plan->rows(), 2u);
  EXPECT_EQ(fill(*plan, 0).inputs, (Tokens{1, 2, 3, 4, 5}));
  EXPECT_EQ(fill(*plan, 0).targets, (Tokens{2, 3, 4, 5, 6}));
  EXPECT_EQ(fill(*plan, 1).inputs, (Tokens{6, 7, 8, 9, 10}));
  EXPECT_EQ(fill(*plan, 1).targets, (Tokens{7, 8, 9, 10, 11}));
  EXPECT_EQ(fill(*plan, 1).facts.supervised, 5);
  EXPECT_EQ(plan->padding_share(), 0);
}

TEST(StreamRows, AShiftCutsElsewhere) {
  const auto plan = make_row_plan(RowKind::kStream, numbered({3, 4, 5}), 5, 0, 0);  // tokens 1 to 12
  EXPECT_EQ(fill(*plan, 0, 3).inputs, (Tokens{4, 5, 6, 7, 8}));
  EXPECT_EQ(fill(*plan, 0, 3).targets, (Tokens{5, 6, 7, 8, 9}));
  EXPECT_EQ(fill(*plan, 1, 3).inputs, (Tokens{7, 8, 9, 10, 11})) << "the last row stays inside";
  EXPECT_EQ(fill(*plan, 1, 3).targets, (Tokens{8, 9, 10, 11, 12}));
}

TEST(StreamRows, TooLittleDataIsSaid) {
  const auto message =
      testing::error_of(ExitCode::kData, [] { make_row_plan(RowKind::kStream, numbered({5}), 5, 0, 0); });
  EXPECT_NE(message.find("only 5 tokens"), std::string::npos) << message;
  EXPECT_EQ(make_row_plan(RowKind::kStream, numbered({6}), 5, 0, 0)->rows(), 1u);
}

TEST(PaddedRows, HaveTheShapeOfXYAndMask) {
  auto store = std::make_shared<TokenStore>(100);
  store->append(Tokens{10, 11, 12, 13}, std::vector<uint8_t>{0, 0, 1, 1}, 3);
  store->append(Tokens{20, 21, 22, 23, 24, 25, 26}, {}, 4);
  store->append(Tokens{30}, {});
  const auto plan = make_row_plan(RowKind::kPad, store, 6, 99, 0);
  ASSERT_EQ(plan->length(), 5);
  ASSERT_EQ(plan->rows(), 3u);
  const Row first = fill(*plan, 0);
  EXPECT_EQ(first.inputs, (Tokens{10, 11, 12, 13, 99}));
  EXPECT_EQ(first.targets, (Tokens{11, 12, 13, 99, 99}));
  EXPECT_EQ(first.mask, (std::vector<uint8_t>{0, 1, 1, 0, 0}));
  EXPECT_EQ(first.bounds, (Tokens{4, 5}));
  EXPECT_EQ(first.facts.source, 3);
  EXPECT_EQ(first.facts.supervised, 2);
  const Row second = fill(*plan, 1);  // cut off
  EXPECT_EQ(second.inputs, (Tokens{20, 21, 22, 23, 24}));
  EXPECT_EQ(second.targets, (Tokens{21, 22, 23, 24, 25}));
  EXPECT_EQ(fill(*plan, 2).facts.padding, 4);
  EXPECT_EQ(fill(*plan, 2).inputs, (Tokens{30, 99, 99, 99, 99}));
  EXPECT_EQ(plan->long_documents(), 1u);
  EXPECT_DOUBLE_EQ(plan->padding_share(), 5.0 / 15);
}

TEST(PackedRows, EveryPositionOfEveryDocumentOnce) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    std::vector<int> lengths;
    for (int i = 0; i < 200; ++i) lengths.push_back(1 + static_cast<int>(random.below(40)));
    const auto store = numbered(lengths);
    const auto plan = make_row_plan(RowKind::kPack, store, 24, 0, seed);
    std::map<int32_t, int32_t> predicted;  // input -> target
    int64_t padding = 0;
    for (uint64_t r = 0; r < plan->rows(); ++r) {
      const Row row = fill(*plan, r);
      padding += row.facts.padding;
      int32_t begin = 0;
      for (const int32_t end : row.bounds) {
        ASSERT_GT(end, begin);
        for (int32_t t = begin; t < end; ++t) {
          if (row.mask[t] == 0) continue;
          EXPECT_TRUE(predicted.emplace(row.inputs[t], row.targets[t]).second) << "twice";
          // Within the bounds the text runs on; at a bound it does not.
          EXPECT_EQ(t + 1 < end, t + 1 < 24 && row.mask[t + 1] && row.inputs[t + 1] == row.targets[t]);
        }
        begin = end;
      }
      ASSERT_EQ(begin, 24);
    }
    size_t wanted = 0;
    for (uint64_t d = 0; d < store->size(); ++d)
      for (uint64_t p = store->begin(d); p + 1 < store->begin(d + 1); ++p, ++wanted)
        EXPECT_EQ(predicted[static_cast<int32_t>(p) + 1], static_cast<int32_t>(p) + 2);
    EXPECT_EQ(predicted.size(), wanted);
    EXPECT_NEAR(plan->padding_share(), padding / (24.0 * plan->rows()), 1e-12);
    EXPECT_LT(plan->padding_share(), 0.05);
  }
}

// What RowPacking does, as plainly as it can be said.
struct PlainPacking {
  PlainPacking(const Documents& documents, int64_t length, uint64_t seed) {
    const Permutation order(documents.size(), seed);
    std::vector<Piece> window;
    for (uint64_t i = 0; i < documents.size(); ++i) {
      uint64_t position = documents.begin(order[i]);
      auto left = static_cast<int64_t>(documents.length(order[i])) - 1;
      for (; left > 0; position += length, left -= length)
        window.push_back({position, std::min(left, length)});
      if ((i + 1) % 16384 == 0) pack(window, length);
    }
    pack(window, length);
  }

  void pack(std::vector<Piece>& window, int64_t length) {
    std::ranges::stable_sort(window, [](const Piece& a, const Piece& b) { return a.count > b.count; });
    const size_t first = rows.size();
    std::set<std::pair<int64_t, size_t>> by_room;
    for (const Piece& piece : window) {
      int64_t room = length;
      size_t row = rows.size();
      if (const auto best = by_room.lower_bound({piece.count, first}); best != by_room.end()) {
        std::tie(room, row) = *best;
        by_room.erase(best);
      } else {
        rows.emplace_back();
      }
      rows[row].push_back(piece);
      if (room > piece.count) by_room.insert({room - piece.count, row});
    }
    window.clear();
  }

  std::vector<std::vector<Piece>> rows;
};

TEST(PackedRows, AreThoseOfThePlainWay) {
  for (const int64_t length : {1, 2, 63, 64, 65, 128, 200}) {
    Random random(length);
    std::vector<int> lengths;  // of three windows, the last not full
    for (int i = 0; i < 40000; ++i)
      lengths.push_back(static_cast<int>(random.below(random.below(10) ? 70 : 500)));
    const auto store = numbered(lengths, 1 << 30);
    const PlainPacking plain(*store, length, 5);
    const RowPacking packing(*store, length, 5);
    ASSERT_EQ(packing.row_begins.size(), plain.rows.size() + 1) << length;
    for (size_t row = 0; row < plain.rows.size(); ++row) {
      const auto& pieces = plain.rows[row];
      ASSERT_EQ(packing.row_begins[row + 1] - packing.row_begins[row], pieces.size())
          << length << ", " << row;
      for (size_t i = 0; i < pieces.size(); ++i) {
        const Piece& piece = packing.pieces[packing.row_begins[row] + i];
        ASSERT_EQ(piece.position, pieces[i].position) << length << ", " << row;
        ASSERT_EQ(piece.count, pieces[i].count) << length << ", " << row;
      }
    }
  }
}

TEST(PackedRows, FillRowsThatFitExactly) {
  const auto plan = make_row_plan(RowKind::kPack, numbered({5, 5, 5, 5, 9, 9}), 8, 0, 1);
  EXPECT_EQ(plan->rows(), 4u);
  EXPECT_EQ(plan->padding_share(), 0);
}

TEST(TokenStore, KeepsMasksAndWideIds) {
  TokenStore store(200000);
  Tokens ids;
  std::vector<uint8_t> mask;
  Random random(3);
  for (int document = 0; document < 50; ++document) {
    Tokens some;
    std::vector<uint8_t> bits;
    const bool masked = document > 10 && random.below(2);
    for (uint64_t i = random.below(90); i > 0; --i) {
      some.push_back(static_cast<int32_t>(random.below(200000)));
      if (masked) bits.push_back(random.below(2));
      mask.push_back(masked ? bits.back() : 1);
    }
    store.append(some, bits, document);
    ids.insert(ids.end(), some.begin(), some.end());
    EXPECT_EQ(store.source(document), document);
  }
  ASSERT_EQ(store.tokens(), ids.size());
  for (int i = 0; i < 200; ++i) {
    const uint64_t from = random.below(ids.size()), count = random.below(ids.size() - from + 1);
    Tokens got(count);
    std::vector<uint8_t> bits(count);
    store.read(from, count, got.data());
    store.read_mask(from, count, bits.data());
    EXPECT_TRUE(std::equal(got.begin(), got.end(), ids.begin() + from));
    EXPECT_TRUE(std::equal(bits.begin(), bits.end(), mask.begin() + from));
    const uint64_t document = store.document_at(from);
    EXPECT_LE(store.begin(document), from);
    EXPECT_GT(store.begin(document + 1), from);
  }
}

}  // namespace
}  // namespace tightloop
