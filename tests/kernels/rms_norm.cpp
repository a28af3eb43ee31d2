// The CUDA kernel, as fibers on the CPU.
#include "ops/norm/rms_norm_cuda.cpp"

#include "ops/norm/rms_norm.cu"
