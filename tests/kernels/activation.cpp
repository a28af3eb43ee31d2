// The CUDA kernel, as fibers on the CPU.
#include "cuda/activation.cpp"

#include "ops/activation.cu"
