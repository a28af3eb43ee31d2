// The CUDA kernel, as fibers on the CPU.
#include "cuda/attention.cpp"

#include "ops/attention.cu"
