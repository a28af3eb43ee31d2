// Rows that hold several documents: what the model is told of them.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include "ops/attention/document_bounds.h"
#include "support.h"
#include "train/engine/loss.h"

namespace tightloop {
namespace {

/// Two rows of 6; `ends` are the documents' ends, `supervised` the loss mask.
struct Rows {
  std::vector<int32_t> inputs{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3},
      targets{2, 3, 9, 5, 6, 9, 8, 9, 1, 2, 3, 9};
  std::vector<int32_t> bounds{0}, sources{0, 0};
  std::vector<uint8_t> mask;
  Batch batch;

  Rows(const std::vector<int32_t>& ends, std::vector<uint8_t> supervised) : mask(std::move(supervised)) {
    bounds.insert(bounds.end(), ends.begin(), ends.end());
    batch.rows = 2, batch.length = 6, batch.documents = static_cast<int64_t>(ends.size());
    batch.inputs = inputs.data(), batch.targets = targets.data(), batch.loss_mask = mask.data();
    batch.bounds = bounds.data(), batch.sources = sources.data();
  }
};

const std::vector<uint8_t> kAll(12, 1);

TEST(PackedRows, EveryPositionKnowsItsDocument) {
  const Rows rows({3, 6, 12}, kAll);
  const auto batch = to_device(rows.batch, at::kCPU);
  const auto expected =
      at::tensor(std::vector<int32_t>{0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2}, at::kInt).view({2, 6});
  EXPECT_TRUE(at::equal(batch.documents_BT, expected));
}

// Bounds say the same; empty documents fill them up, so that few numbers of documents occur.
TEST(PackedRows, BoundsAreThoseOfTheDocuments) {
  const auto batch = to_device(Rows({3, 6, 12}, kAll).batch, at::kCPU);
  EXPECT_TRUE(at::equal(batch.document_bounds, at::tensor(std::vector<int32_t>{0, 3, 6, 12, 12}, at::kInt)));
  ops::DocumentBounds bounds(batch.document_bounds);
  EXPECT_EQ(bounds.documents(), 4);
  EXPECT_TRUE(at::equal(bounds.lengths(), at::tensor(std::vector<int32_t>{3, 3, 6, 0}, at::kInt)));
  EXPECT_TRUE(at::equal(bounds.begins(5), at::tensor(std::vector<int32_t>{0, 15, 30, 60, 60}, at::kInt)));
  EXPECT_FALSE(to_device(Rows({6, 12}, kAll).batch, at::kCPU).document_bounds.defined());
  const auto many = to_device(Rows({1, 2, 3, 4, 5, 6, 7, 8, 12}, kAll).batch, at::kCPU);
  EXPECT_EQ(many.document_bounds.size(0), 13) << "9 documents count as 12";
}

TEST(PackedRows, RowsOfOneDocumentAreLeftAlone) {
  EXPECT_FALSE(to_device(Rows({6, 12}, kAll).batch, at::kCPU).documents_BT.defined());
  const Rows padded({4, 6, 12}, {1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1});
  EXPECT_FALSE(to_device(padded.batch, at::kCPU).documents_BT.defined());
}

TEST(PackedRows, TheLossIsThatOfTheDocumentsAlone) {
  c10::NoGradGuard no_grad;
  ModelConfig config;
  config.layers = 2, config.width = 32, config.init_std = 0.3;
  config.resolve(10, 6);
  const auto model = make_model(config, 1);
  const auto loss = [&](const std::vector<int32_t>& ends) {
    return loss_of(*model, to_device(Rows(ends, kAll).batch, at::kCPU)).sum.item<double>();
  };
  const auto alone = [&](const std::vector<int64_t>& inputs, const std::vector<int64_t>& targets) {
    const DeviceBatch batch{at::tensor(inputs).unsqueeze(0), at::tensor(targets).unsqueeze(0)};
    return loss_of(*model, batch).sum.item<double>();
  };
  const double second = alone({7, 8, 9, 1, 2, 3}, {8, 9, 1, 2, 3, 9});
  const double parts = alone({1, 2, 3}, {2, 3, 9}) + alone({4, 5, 6}, {5, 6, 9}) + second;
  EXPECT_NEAR(loss({3, 6, 12}) / parts, 1, 1e-5);
  EXPECT_GT(std::abs(loss({6, 12}) / parts - 1), 1e-3);  // looking across makes a difference
}

}  // namespace
}  // namespace tightloop
