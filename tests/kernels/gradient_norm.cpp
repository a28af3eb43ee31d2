// The CUDA kernel, as fibers on the CPU.
#include "ops/optim/gradient_norm_cuda.cpp"

#include "ops/optim/gradient_norm.cu"
