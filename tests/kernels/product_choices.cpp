// What the plug-in keeps of products that it has timed.
#include "ops/product_choices_cuda.cpp"
