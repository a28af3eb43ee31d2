#include "serve/serve_config.h"

#include "core/files.h"
#include "support.h"

namespace tightloop {
namespace {

TEST(ServeConfig, ThePageHasEverySettingWithItsDefault) {
  serve::ServeConfig config;
  Fields fields;
  config.describe(fields);
  const std::string page = read_file(testing::source_folder() / "docs/serving.md");
  for (const Field& field : fields.all()) {
    std::string value = field.default_text();
    std::erase(value, '"');
    const std::string row = "| `" + field.name() + "` | " + value + " | " + field.help() + " |\n";
    EXPECT_NE(page.find(row), std::string::npos) << "docs/serving.md lacks: " << row;
  }
}

}  // namespace
}  // namespace tightloop
