// The CUDA kernel, as fibers on the CPU.
#include "ops/pointwise/embedding_cuda.cpp"

#include "ops/pointwise/embedding.cu"
