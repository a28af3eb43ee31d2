// The CUDA kernel, as fibers on the CPU.
#include "ops/pointwise/expert_rows_cuda.cpp"

#include "ops/pointwise/expert_rows.cu"
