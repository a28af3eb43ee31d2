// The page of tightloop serve in a browser.
#include "e2e/program.h"

namespace tightloop::testing {
namespace {

TEST(ChatPageInABrowser, DoesWhatAPersonAsks) {
  SKIP_WITHOUT(python());
  const TempFolder folder;
  const auto outcome =
      run(folder.path(), "'" + python().string() +
                             "' '" TIGHTLOOP_SOURCE_DIR "/tests/e2e/chat_page.py' '" TIGHTLOOP_BINARY_DIR
                             "/tightloop' . 2>&1");
  if (outcome.exit_code == 77) GTEST_SKIP() << outcome.output;
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

}  // namespace
}  // namespace tightloop::testing
