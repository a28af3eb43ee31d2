// The CUDA kernel, as fibers on the CPU.
#include "ops/attention/paged_attention_cuda.cpp"

#include "ops/attention/paged_attention.cu"
