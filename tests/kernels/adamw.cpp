// The CUDA kernel, as fibers on the CPU.
#include "ops/optim/adamw_cuda.cpp"

#include "ops/optim/adamw.cu"
