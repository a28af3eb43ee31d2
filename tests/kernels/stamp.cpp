// The CUDA kernel, as fibers on the CPU.
#include "ops/pointwise/stamp_cuda.cpp"

#include "ops/pointwise/stamp.cu"
