// The CUDA kernel, as fibers on the CPU.
#include "ops/pointwise/dropout_cuda.cpp"

#include "ops/pointwise/dropout.cu"
