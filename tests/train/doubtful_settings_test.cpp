#include "train/settings/doubtful_settings.h"

#include "support.h"

namespace tightloop {
namespace {

TEST(DoubtfulSettings, WhatIsHardlyMeantIsSaid) {
  Recipe recipe;
  recipe.data.train = {"a.txt"};
  EXPECT_TRUE(doubtful_settings(recipe).empty()) << doubtful_settings(recipe).front();
  const auto said = [](auto change) {
    Recipe recipe;
    recipe.data.train = {"a.txt"};
    change(recipe);
    const auto sentences = doubtful_settings(recipe);
    return sentences.size() == 1 ? sentences[0] : std::to_string(sentences.size()) + " sentences";
  };
  EXPECT_NE(said([](Recipe& r) { r.train.lr = 0; }).find("train.lr is 0"), std::string::npos);
  EXPECT_NE(said([](Recipe& r) { r.train.warmup_steps = r.train.steps; }).find("train.warmup_steps"),
            std::string::npos);
  EXPECT_NE(said([](Recipe& r) { r.train.min_lr = 6e-5; }).find("a share of the peak"), std::string::npos);
  EXPECT_NE(said([](Recipe& r) { r.data.val = {"a.txt"}; }).find("'a.txt' is in data.train and in data.val"),
            std::string::npos);
}

}  // namespace
}  // namespace tightloop
