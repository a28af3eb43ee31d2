// The CUDA kernel, as fibers on the CPU.
#include "cuda/muon.cpp"

#include "ops/muon.cu"
