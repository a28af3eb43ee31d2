#include "core/cpu.h"

#include <gtest/gtest.h>

namespace tightloop {
namespace {

TEST(Cpu, ProductsInBf16AreFastWithAmxAlone) {
  EXPECT_FALSE(fast_bf16_products(/*amx=*/false, "", ""));
  EXPECT_TRUE(fast_bf16_products(true, "", ""));
}

TEST(Cpu, WhatTorchMayNotUseIsNotThere) {
  for (const char* isa : {"AVX2", "avx2", "AVX512_CORE", "AVX512_CORE_BF16"})
    EXPECT_FALSE(fast_bf16_products(true, "", isa)) << isa;
  for (const char* isa : {"DEFAULT", "ALL", "AVX512_CORE_AMX", "AVX10_1_512_AMX"})
    EXPECT_TRUE(fast_bf16_products(true, "", isa)) << isa;
  EXPECT_FALSE(fast_bf16_products(true, "avx2", ""));
  EXPECT_FALSE(fast_bf16_products(true, "default", ""));
  EXPECT_TRUE(fast_bf16_products(true, "avx512", ""));
}

TEST(Cpu, AmxWithoutTilePalettesIsHalfOffered) {
  EXPECT_TRUE(amx_is_half_offered(true, 0));
  EXPECT_FALSE(amx_is_half_offered(true, 1));
  EXPECT_FALSE(amx_is_half_offered(false, 0));
}

}  // namespace
}  // namespace tightloop
