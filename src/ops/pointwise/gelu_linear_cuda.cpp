// A product with bias and gelu in its epilogue, by cuBLASLt.

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <cublasLt.h>
#include <torch/library.h>

#include <map>
#include <mutex>
#include <tuple>

#include "cuda/operator.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

void check_cublas(cublasStatus_t status) {
  TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS,
              "gelu_linear: cuBLASLt failed: ", cublasLtGetStatusString(status));
}

/// An object of cuBLASLt that is given back.
template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (handle_) kDestroy(handle_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Handle* slot() { return &handle_; }
  operator Handle() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// y = gelu(x weight^T + bias), before = what gelu is taken of; all dense.
struct Product {
  const Tensor &x, &weight, &bias, &before, &y;
};

constexpr size_t kWorkspace = 32 << 20;

/// Algorithms by what decides them, asked for once.
cublasLtMatmulAlgo_t algorithm_for(const Product& p, cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                   cublasLtMatrixLayout_t weight, cublasLtMatrixLayout_t x,
                                   cublasLtMatrixLayout_t y) {
  using Key = std::tuple<c10::DeviceIndex, at::ScalarType, int64_t, int64_t, int64_t>;
  static std::mutex mutex;
  static std::map<Key, cublasLtMatmulAlgo_t> found;
  const Key key{p.x.device().index(), p.x.scalar_type(), p.x.size(0), p.x.size(1), p.y.size(1)};
  const std::lock_guard lock(mutex);
  if (const auto at = found.find(key); at != found.end()) return at->second;
  Preference preference;
  check_cublas(cublasLtMatmulPreferenceCreate(preference.slot()));
  check_cublas(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &kWorkspace, sizeof kWorkspace));
  cublasLtMatmulHeuristicResult_t best{};
  int count = 0;
  check_cublas(cublasLtMatmulAlgoGetHeuristic(handle, operation, weight, x, y, y, preference, /*requested=*/1,
                                              &best, &count));
  TORCH_CHECK(count > 0, "gelu_linear: cuBLASLt has no algorithm for this product");
  return found[key] = best.algo;
}

void multiply(const Product& p) {
  // cuBLAS goes column by column: what it computes is y^T = weight x^T.
  const int64_t rows = p.x.size(0), inner = p.x.size(1), columns = p.y.size(1);
  const auto type = p.x.scalar_type() == at::kBFloat16 ? CUDA_R_16BF : CUDA_R_16F;
  Operation operation;
  check_cublas(cublasLtMatmulDescCreate(operation.slot(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t which, const auto& value) {
    check_cublas(cublasLtMatmulDescSetAttribute(operation, which, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.before.mutable_data_ptr());
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, columns);
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias.const_data_ptr());
  Layout weight, x, y;
  const auto describe = [&](Layout& layout, int64_t height, int64_t width) {
    check_cublas(cublasLtMatrixLayoutCreate(layout.slot(), type, height, width, height));
  };
  describe(weight, inner, columns), describe(x, inner, rows), describe(y, columns, rows);
  const cublasLtHandle_t handle = at::cuda::getCurrentCUDABlasLtHandle();
  const cublasLtMatmulAlgo_t algorithm = algorithm_for(p, handle, operation, weight, x, y);
  const Tensor workspace = at::empty({static_cast<int64_t>(kWorkspace)}, p.x.options().dtype(at::kByte));
  const float one = 1, zero = 0;
  check_cublas(cublasLtMatmul(handle, operation, &one, p.weight.const_data_ptr(), weight,
                              p.x.const_data_ptr(), x, &zero, p.y.mutable_data_ptr(), y,
                              p.y.mutable_data_ptr(), y, &algorithm, workspace.mutable_data_ptr(), kWorkspace,
                              c10::cuda::getCurrentCUDAStream().stream()));
}

std::tuple<Tensor, Tensor> gelu_linear_forward(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Guard guard(x.device());
  Tensor y = at::empty({x.size(0), weight.size(0)}, x.options()), before = at::empty_like(y);
  multiply({x, weight, bias, before, y});
  return {y, before};
}

TIGHTLOOP_KERNELS(m) { m.impl("gelu_linear_forward", gelu_linear_forward); }

}  // namespace

}  // namespace tightloop::cuda
