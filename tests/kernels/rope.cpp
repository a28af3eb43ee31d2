// The CUDA kernel, as fibers on the CPU.
#include "ops/attention/rope_cuda.cpp"

#include "ops/attention/rope.cu"
