// The CUDA kernel, as fibers on the CPU.
#include "ops/attention/attention_cuda.cpp"

#include "ops/attention/attention.cu"
