// The CUDA kernel, as fibers on the CPU.
#include "ops/loss/cross_entropy_cuda.cpp"

#include "ops/loss/cross_entropy.cu"
