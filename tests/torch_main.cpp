#include <gtest/gtest.h>

#include <cstdlib>

#include "core/cpu.h"
#include "core/plugin.h"
#include "support.h"

int main(int argc, char** argv) {
  // What the user's cache knows of products would not be timed again.
  const tightloop::testing::TempFolder cache;
  ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  tightloop::avoid_half_offered_amx();
  tightloop::load_cuda_plugin();  // where there is a GPU its tests run too
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
