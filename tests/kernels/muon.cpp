// The CUDA kernel, as fibers on the CPU.
#include "ops/optim/muon_cuda.cpp"

#include "ops/optim/muon.cu"
