// The CUDA kernel, as fibers on the CPU.
#include "ops/pointwise/activation_cuda.cpp"

#include "ops/pointwise/activation.cu"
