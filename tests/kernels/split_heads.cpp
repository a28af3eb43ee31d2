// The CUDA kernel, as fibers on the CPU.
#include "ops/attention/split_heads_cuda.cpp"

#include "ops/attention/split_heads.cu"
