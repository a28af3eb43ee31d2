#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tightloop::ops {

/// Whether products with weights compute in fp8 where they can (train.precision fp8), for the whole process.
void use_fp8(bool on);
bool fp8();

/// While one lives, they do not: for evaluating and sampling.
class WithoutFp8 {
 public:
  WithoutFp8() : before_(fp8()) { use_fp8(false); }
  ~WithoutFp8() { use_fp8(before_); }
  WithoutFp8(const WithoutFp8&) = delete;
  WithoutFp8& operator=(const WithoutFp8&) = delete;

 private:
  const bool before_;
};

/// Whether fp8 is on and takes this product: 16 bits, sizes that are multiples of 16 and weights of at least
/// 128 each way.
bool fp8_takes(const at::Tensor& x, const at::Tensor& weight);

/// to (M, N) = a (M, K) times b (K, N), both in fp8, b given by its columns (N, K). `fast`: the tensor cores'
/// own sums, 14 bits of which are exact, without a pass through fp32 registers every few products.
void fp8_product_out(at::Tensor& to, const at::Tensor& a_rows, const at::Tensor& a_scale,
                     const at::Tensor& b_columns, const at::Tensor& b_scale, bool fast);

/// ops::linear in fp8: each factor is scaled as a whole and rounded to e4m3, gradients that flow in to e5m2;
/// sums are fp32, results have x's dtype. Backward keeps x in fp8 alone, or x itself where somebody keeps
/// that anyway (`input_kept`), and casts it once more.
at::Tensor fp8_linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                      bool input_kept = false);

}  // namespace tightloop::ops
