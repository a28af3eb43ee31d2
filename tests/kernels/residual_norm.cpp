// The CUDA kernel, as fibers on the CPU.
#include "cuda/residual_norm.cpp"

#include "ops/residual_norm.cu"
