// The CUDA side of a kernel of few_rows.cu, as fibers on the CPU.
#include "ops/decode/normed_linear_cuda.cpp"
