#include "ops/product_choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "support.h"

namespace tightloop::cuda {
namespace {

ProductKey key_of(int64_t rows) {
  ProductKey key{};
  key[3] = rows, key[9] = -1;
  return key;
}

ProductChoice some_algorithm(uint64_t first) {
  ProductChoice choice;
  choice.algorithm.emplace();
  for (uint64_t& word : choice.algorithm->data) word = first++;
  return choice;
}

bool same(const ProductChoice* a, const ProductChoice& b) {
  return a && a->none == b.none && a->algorithm.has_value() == b.algorithm.has_value() &&
         (!b.algorithm || std::ranges::equal(a->algorithm->data, b.algorithm->data));
}

TEST(ProductChoices, AnotherProcessFindsThem) {
  const testing::TempFolder folder;
  const auto file = folder.path() / "cache" / "products.txt";
  const ProductChoice torch, none{.none = true}, own = some_algorithm(0xfedcba9876543210);
  {
    ProductChoices choices(file);
    EXPECT_EQ(choices.find(key_of(1)), nullptr);
    choices.add(key_of(1), torch);
    choices.add(key_of(2), none);
    choices.add(key_of(3), own);
  }
  const ProductChoices choices(file);
  EXPECT_TRUE(same(choices.find(key_of(1)), torch));
  EXPECT_EQ(choices.find(key_of(2)), nullptr) << "what failed may work next time";
  EXPECT_TRUE(same(choices.find(key_of(3)), own));
  EXPECT_EQ(choices.find(key_of(4)), nullptr);
}

TEST(ProductChoices, DamagedLinesArePassedOver) {
  ProductChoices whole{fs::path()};
  whole.add(key_of(1), some_algorithm(1));
  whole.add(key_of(2), some_algorithm(2));
  const std::string text = whole.to_text();
  for (size_t cut = 0; cut < text.size(); ++cut) {
    ProductChoices some{fs::path()};
    some.add_text(text.substr(0, cut));
    for (const int64_t rows : {1, 2})
      if (some.find(key_of(rows))) {
        EXPECT_TRUE(same(some.find(key_of(rows)), *whole.find(key_of(rows)))) << "cut at " << cut;
      }
  }
  ProductChoices other{fs::path()};
  other.add_text("of another version\n" + text);
  EXPECT_EQ(other.find(key_of(1)), nullptr);
}

TEST(ProductChoices, AFileThatCannotBeWrittenIsNoError) {
  ProductChoices choices("/proc/none/products.txt");
  choices.add(key_of(1), some_algorithm(1));
  EXPECT_TRUE(same(choices.find(key_of(1)), some_algorithm(1)));
}

TEST(ProductChoices, AFileIsOfOneCardAndOneLibrary) {
  ::setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(product_choices_file("NVIDIA H200", 130000),
            "/somewhere/tightloop/products-NVIDIA-H200-cublaslt-130000.txt");
  ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace tightloop::cuda
