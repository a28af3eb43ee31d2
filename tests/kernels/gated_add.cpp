// The CUDA kernel, as fibers on the CPU.
#include "ops/pointwise/gated_add_cuda.cpp"

#include "ops/pointwise/gated_add.cu"
