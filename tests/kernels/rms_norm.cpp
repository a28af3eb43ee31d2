// The CUDA kernel, as fibers on the CPU.
#include "cuda/rms_norm.cpp"

#include "ops/rms_norm.cu"
