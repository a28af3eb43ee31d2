// The CUDA kernel, as fibers on the CPU.
#include "cuda/split_heads.cpp"

#include "ops/split_heads.cu"
