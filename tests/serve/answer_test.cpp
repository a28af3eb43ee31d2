// What is told of answers beside their text.
#include <cctype>

#include "serve/api/answer_json.h"
#include "support.h"

namespace tightloop {
namespace {

using namespace serve;

TEST(Answer, CallsHaveIdsThatEveryTemplateTakes) {
  const std::vector<ToolCall> calls{{"f", "{}"}, {"f", "{}"}};
  const auto json = calls_json(calls);
  for (const auto& call : json) {
    const std::string id = call["id"].get<std::string>();
    EXPECT_EQ(id.size(), 9u) << "templates of Mistral refuse others";
    EXPECT_TRUE(std::ranges::all_of(id, [](unsigned char c) { return std::isalnum(c); })) << id;
  }
  EXPECT_NE(json[0]["id"], json[1]["id"]);
}

}  // namespace
}  // namespace tightloop
