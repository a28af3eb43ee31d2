#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace tightloop {

/// One operator on tensors of one shape: what tests compare and benches time.
struct OpCase {
  using Function = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

  std::string op, shape;
  std::vector<at::Tensor> inputs;
  std::vector<size_t> fixed;  // inputs that get no gradient
  Function fused, plain;      // ours, and its twin in ordinary ATen
  bool backward =
      true;  // there is a backward pass, which is timed with the forward one; else it updates in place
  /// What is timed as a graph on a device that has them: of what runs in one, as decoding does, the host's
  /// part would be most of the time.
  enum class Graphs { kNone, kFused, kBoth } graph = Graphs::kNone;
  bool loss = false;  // a loss, which takes no other gradient than 1
  double bytes = 0;   // that any implementation must move, forward and backward
  double flops = 0;   // of its products; 0 where memory is the limit
};

/// How large the cases are: of the tests, small enough for differences; of a bench, a layer of a 124M model.
struct OpSizes {
  int64_t rows, width, heads, head_size, length, vocabulary;
};
inline constexpr OpSizes kTestSizes{6, 16, 2, 8, 3, 20};
inline constexpr OpSizes kBenchSizesCpu{2048, 768, 12, 64, 256, 4096};
inline constexpr OpSizes kBenchSizesGpu{65536, 768, 12, 64, 1024, 50304};

/// Every operator, on random tensors of a dtype on a device.
std::vector<OpCase> op_cases(const OpSizes& sizes, at::ScalarType dtype, at::Device device);

}  // namespace tightloop
