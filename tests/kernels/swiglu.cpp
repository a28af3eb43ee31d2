// The CUDA kernel, as fibers on the CPU.
#include "ops/pointwise/swiglu_cuda.cpp"

#include "ops/pointwise/swiglu.cu"
