#include "train/settings/other_names.h"

#include <cctype>
#include <set>

#include "core/error.h"
#include "support.h"
#include "train/settings/recipe.h"

namespace tightloop {
namespace {

TEST(OtherNames, EachMeansOneSettingThatExists) {
  Recipe recipe;
  Config config = recipe.bind();
  std::set<std::string> seen;
  for (const auto& same : other_names().same) {
    const Field* field = config.field(same.key);
    ASSERT_TRUE(field) << same.key;
    for (const auto& name : same.names) {
      EXPECT_EQ(config.field(name), field) << name << " is not " << same.key;
      EXPECT_TRUE(seen.insert(name).second) << name << " is there twice";
    }
  }
  for (const auto& one : other_names().switches) {
    EXPECT_TRUE(config.is_switch(one.name)) << one.name;
    EXPECT_NO_THROW(config.set(one.name, "true")) << one.name;
  }
  for (const auto& different : other_names().different)
    for (const auto& name : different.names) {
      EXPECT_FALSE(config.field(name)) << name << " is a setting";
      EXPECT_TRUE(seen.insert(name).second) << name << " is there twice";
    }
}

// "train.lr" in an answer is a name to type: it must be right.
TEST(OtherNames, AnswersNameSettingsThatExist) {
  Recipe recipe;
  Config config = recipe.bind();
  for (const auto& different : other_names().different) {
    const std::string& answer = different.answer;
    for (size_t at = 0; (at = answer.find('.', at)) != std::string::npos; ++at) {
      const auto part_of_name = [&](size_t i) {
        return i < answer.size() && (std::islower(answer[i]) || std::isdigit(answer[i]) || answer[i] == '_');
      };
      size_t begin = at, end = at + 1;
      while (begin > 0 && part_of_name(begin - 1)) --begin;
      while (part_of_name(end)) ++end;
      if (config.has_section(answer.substr(begin, at - begin)) && end > at + 1) {
        EXPECT_TRUE(config.field(answer.substr(begin, end - begin))) << answer;
      }
    }
  }
}

}  // namespace
}  // namespace tightloop
