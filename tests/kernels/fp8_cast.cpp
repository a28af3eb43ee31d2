// The CUDA kernel, as fibers on the CPU.
#include "ops/fp8/fp8_cast_cuda.cpp"

#include "ops/fp8/fp8_cast.cu"
