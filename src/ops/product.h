#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tightloop::ops {

/// What a product does to its result before it writes it: nothing; gelu in its tanh form, where `aux`
/// receives what gelu was taken of; or a multiplication by gelu's slope at `aux`.
enum class Epilogue { kNone, kGelu, kGeluSlope };

struct ProductOptions {
  std::optional<at::Tensor> bias{};                // (N), added to each row, before gelu
  std::optional<at::Tensor> a_scale{}, b_scale{};  // fp32 scalars that fp8 factors are multiplied by
  bool fast = false;  // fp8: the tensor cores' own sums, 14 bits of which are exact
  Epilogue epilogue = Epilogue::kNone;
  std::optional<at::Tensor> aux{};  // (M, N), dense, of the result's dtype
};

/// Whether products by cuBLASLt are there for x's device.
bool has_product(const at::Tensor& x);

/// a (M, K) times b (K, N), either of which may be transposed, by cuBLASLt; (M, N), dense, of a dtype of 16
/// or 32 bits. With autotune() the algorithms that the library proposes are timed on the tensors at hand when
/// a kind of product is first met, and the fastest is used from then on; never within a captured graph, which
/// takes what is known by then. Otherwise torch's own choice or, where torch has no such product, the
/// library's first proposal is used, whose bits are the same in
/// every process. Undefined where the library has no algorithm. No gradient.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype,
                   const ProductOptions& options = {});

/// The same in a's dtype; where the library has no algorithm, torch computes it.
at::Tensor product_or_matmul(const at::Tensor& a, const at::Tensor& b);

/// ops::linear by product(): 16 bits, and large enough that the choice of an algorithm is worth something.
bool product_takes(const at::Tensor& x, const at::Tensor& weight);
at::Tensor product_linear(const at::Tensor& x, const at::Tensor& weight,
                          const std::optional<at::Tensor>& bias);

/// For the whole process; off with torch's deterministic algorithms.
void use_autotune(bool on);
bool autotune();

}  // namespace tightloop::ops
