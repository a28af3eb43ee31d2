// The CUDA kernels, as fibers on the CPU.
#include "ops/decode/likeliest_tokens_cuda.cpp"

#include "ops/decode/likeliest_tokens.cu"
