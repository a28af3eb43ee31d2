// The CUDA kernel, as fibers on the CPU.
#include "cuda/embedding.cpp"

#include "ops/embedding.cu"
