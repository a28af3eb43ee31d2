// The CUDA kernels, as fibers on the CPU.
#include "ops/quantized_linear_cuda.cpp"

#include "ops/quantized_linear.cu"
