// The CUDA kernel, as fibers on the CPU.
#include "ops/few_rows_cuda.cpp"

#include "ops/few_rows.cu"
