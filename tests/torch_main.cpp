#include <gtest/gtest.h>

#include "core/cpu.h"
#include "core/plugin.h"

int main(int argc, char** argv) {
  tightloop::avoid_half_offered_amx();
  tightloop::load_cuda_plugin();  // where there is a GPU its tests run too
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
