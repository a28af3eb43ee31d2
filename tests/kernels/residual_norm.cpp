// The CUDA kernel, as fibers on the CPU.
#include "ops/norm/residual_norm_cuda.cpp"

#include "ops/norm/residual_norm.cu"
