#include <gtest/gtest.h>

#include <csignal>

int main(int argc, char** argv) {
  std::signal(SIGHUP, SIG_DFL);  // under nohup, programs that tests start would ignore it too
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
