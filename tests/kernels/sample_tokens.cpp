// The CUDA kernels, as fibers on the CPU.
#include "ops/decode/sample_tokens_cuda.cpp"

#include "ops/decode/sample_tokens.cu"
