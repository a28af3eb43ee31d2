// The CUDA side of a kernel of few_rows.cu, as fibers on the CPU.
#include "ops/decode/swiglu_linear_cuda.cpp"
