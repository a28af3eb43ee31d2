#include "ops/product.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cublasLt.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <vector>

#include "cuda/operator.h"
#include "ops/product_choices.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;
using ops::Epilogue;
using Optional = std::optional<Tensor>;

constexpr int64_t kWorkspace = 64 << 20;  // bytes
constexpr int kProposals = 8;             // the library has no more for most products
constexpr double kWorthTuning = 1e9;      // FLOPs

void check_cublas(cublasStatus_t status) {
  TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt failed: ", cublasLtGetStatusString(status));
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

cudaDataType type_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return CUDA_R_32F;
    case at::kBFloat16:
      return CUDA_R_16BF;
    case at::kHalf:
      return CUDA_R_16F;
    case at::kFloat8_e4m3fn:
      return CUDA_R_8F_E4M3;
    case at::kFloat8_e5m2:
      return CUDA_R_8F_E5M2;
    default:
      TORCH_CHECK(false, "no product of ", dtype);
  }
}

/// Bytes that an address is a multiple of, 256 at most.
int64_t alignment_of(const void* data) {
  return data ? std::min<int64_t>(256, int64_t{1} << std::countr_zero(reinterpret_cast<uintptr_t>(data)))
              : 256;
}

/// A factor, row by row or, where it is a transposed view, column by column.
struct Factor {
  explicit Factor(const Tensor& x) {
    const auto dense = [](const Tensor& x, int64_t inner, int64_t outer) {
      return x.stride(inner) == 1 && x.stride(outer) >= std::max<int64_t>(1, x.size(inner));
    };
    matrix = dense(x, 1, 0) || dense(x, 0, 1) ? x : x.contiguous();
    by_columns = !dense(matrix, 1, 0);
    stride = matrix.stride(by_columns ? 1 : 0);
  }
  Tensor matrix;
  bool by_columns;
  int64_t stride;
};

/// cuBLAS goes column by column: what it computes is out^T = b^T a^T, with b as its first factor.
class Product {
 public:
  Product(const Tensor& a, const Tensor& b, at::ScalarType dtype, const ops::ProductOptions& options)
      : a_(a), b_(b), options_(options), out_(at::empty({a.size(0), b.size(1)}, a.options().dtype(dtype))) {
    check_cublas(cublasLtMatmulDescCreate(operation_.slot(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const int64_t M = a.size(0), K = a.size(1), N = b.size(1);
    set(CUBLASLT_MATMUL_DESC_TRANSA, b_.by_columns ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, a_.by_columns ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (options.a_scale) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, options.b_scale->const_data_ptr());
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, options.a_scale->const_data_ptr());
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(options.fast));
    }
    if (options.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, options.bias->const_data_ptr());
    if (options.aux) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, options.aux->mutable_data_ptr());
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, N);
    }
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue());
    layout(first_, b_, K, N);
    layout(second_, a_, M, K);
    check_cublas(cublasLtMatrixLayoutCreate(result_.slot(), type_of(dtype), N, M, N));
  }

  ProductKey key() const {
    const auto& o = options_;
    return {static_cast<int64_t>(a_.matrix.scalar_type()),
            static_cast<int64_t>(b_.matrix.scalar_type()),
            static_cast<int64_t>(out_.scalar_type()),
            a_.matrix.size(0),
            a_.matrix.size(1),
            b_.matrix.size(1),
            a_.by_columns,
            b_.by_columns,
            a_.stride,
            b_.stride,
            o.bias.has_value(),
            o.a_scale.has_value(),
            o.fast,
            static_cast<int64_t>(o.epilogue),
            alignment_of(a_.matrix.const_data_ptr()),
            alignment_of(b_.matrix.const_data_ptr()),
            alignment_of(data_of(o.bias)),
            alignment_of(data_of(o.aux))};
  }
  double flops() const {
    return 2.0 * static_cast<double>(a_.matrix.numel()) * static_cast<double>(b_.matrix.size(1));
  }

  std::vector<cublasLtMatmulAlgo_t> proposals(int count) const {
    Preference preference;
    check_cublas(cublasLtMatmulPreferenceCreate(preference.slot()));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
      check_cublas(cublasLtMatmulPreferenceSetAttribute(preference, which, &value, sizeof value));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<size_t>(kWorkspace));
    // Parts of a long sum are added in fp32, however fast it would be to add them in 16 bits.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    const auto aligned = [&](cublasLtMatmulPreferenceAttributes_t which, const void* data) {
      prefer(which, static_cast<uint32_t>(alignment_of(data)));
    };
    aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b_.matrix.const_data_ptr());
    aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a_.matrix.const_data_ptr());
    aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out_.const_data_ptr());
    aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out_.const_data_ptr());
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(count));
    int got = 0;
    if (cublasLtMatmulAlgoGetHeuristic(at::cuda::getCurrentCUDABlasLtHandle(), operation_, first_, second_,
                                       result_, result_, preference, count, found.data(),
                                       &got) != CUBLAS_STATUS_SUCCESS)
      return {};
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < got; ++i) algorithms.push_back(found[static_cast<size_t>(i)].algo);
    return algorithms;
  }

  bool run(const cublasLtMatmulAlgo_t& algorithm) const {
    const Tensor workspace = at::empty({kWorkspace}, out_.options().dtype(at::kByte));
    const float one = 1, zero = 0;
    return cublasLtMatmul(at::cuda::getCurrentCUDABlasLtHandle(), operation_, &one,
                          b_.matrix.const_data_ptr(), first_, a_.matrix.const_data_ptr(), second_, &zero,
                          out_.mutable_data_ptr(), result_, out_.mutable_data_ptr(), result_, &algorithm,
                          workspace.mutable_data_ptr(), kWorkspace,
                          c10::cuda::getCurrentCUDAStream().stream()) == CUBLAS_STATUS_SUCCESS;
  }

  /// Whether torch computes this, too: then its choice is one to compare with.
  bool torch_can() const {
    return !options_.a_scale && options_.epilogue == Epilogue::kNone &&
           out_.scalar_type() == a_.matrix.scalar_type();
  }
  void run_torch() {
    if (options_.bias)
      at::addmm_out(out_, *options_.bias, a_.matrix, b_.matrix);
    else
      at::mm_out(out_, a_.matrix, b_.matrix);
  }

  const Tensor& out() const { return out_; }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t which, const Value& value) {
    check_cublas(cublasLtMatmulDescSetAttribute(operation_, which, &value, sizeof value));
  }
  cublasLtEpilogue_t epilogue() const {
    switch (options_.epilogue) {
      case Epilogue::kGelu:
        return options_.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      case Epilogue::kGeluSlope:
        return CUBLASLT_EPILOGUE_DGELU;
      case Epilogue::kNone:
        break;
    }
    return options_.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
  static void layout(Layout& to, const Factor& factor, int64_t rows, int64_t columns) {
    const auto [inner, outer] = factor.by_columns ? std::pair{rows, columns} : std::pair{columns, rows};
    check_cublas(cublasLtMatrixLayoutCreate(to.slot(), type_of(factor.matrix.scalar_type()),
                                            static_cast<uint64_t>(inner), static_cast<uint64_t>(outer),
                                            factor.stride));
  }

  const Factor a_, b_;
  const ops::ProductOptions& options_;
  Tensor out_;
  Operation operation_;
  Layout first_, second_, result_;
};

/// Milliseconds of `work` on the stream at hand: the middle of three times a few.
class Stopwatch {
 public:
  Stopwatch() {
    TORCH_CHECK(cudaEventCreate(&begin_) == cudaSuccess && cudaEventCreate(&end_) == cudaSuccess,
                "no event to time products with");
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  template <class Work>
  float time(Work&& work) {
    constexpr int kEach = 2;
    const auto stream = c10::cuda::getCurrentCUDAStream().stream();
    std::array<float, 3> times{};
    work();
    for (float& ms : times) {
      C10_CUDA_CHECK(cudaEventRecord(begin_, stream));
      for (int i = 0; i < kEach; ++i) work();
      C10_CUDA_CHECK(cudaEventRecord(end_, stream));
      C10_CUDA_CHECK(cudaEventSynchronize(end_));
      C10_CUDA_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
    }
    std::ranges::sort(times);
    return times[1];
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// The fastest of the proposals and torch's own choice.
ProductChoice fastest(Product& product) {
  Stopwatch watch;
  ProductChoice best{.none = true};
  float least = 0;
  const auto consider = [&](float ms, std::optional<cublasLtMatmulAlgo_t> algorithm) {
    if (!best.none && ms >= least) return;
    best = {algorithm}, least = ms;
  };
  if (product.torch_can()) consider(watch.time([&] { product.run_torch(); }), {});
  for (const auto& algorithm : product.proposals(kProposals)) {
    if (!product.run(algorithm)) continue;
    consider(watch.time([&] { product.run(algorithm); }), algorithm);
  }
  return best;
}

/// The library's first, or torch's.
ProductChoice first(const Product& product) {
  if (product.torch_can()) return {};
  const auto proposed = product.proposals(1);
  return proposed.empty() ? ProductChoice{.none = true} : ProductChoice{proposed[0]};
}

bool capturing() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream().stream(), &status) != cudaSuccess ||
         status != cudaStreamCaptureStatusNone;
}

/// Of a device: what was timed, here or by an earlier process, and what is used without that.
struct DeviceChoices {
  explicit DeviceChoices(int device)
      : tuned(product_choices_file(at::cuda::getDeviceProperties(device)->name, cublasLtGetVersion())) {}
  ProductChoices tuned;
  std::map<ProductKey, ProductChoice> untuned;
};

/// `again`: what was known does not run here.
ProductChoice choice_for(Product& product, int device, bool again) {
  static std::mutex mutex;
  static std::map<int, DeviceChoices> devices;
  const std::lock_guard lock(mutex);
  DeviceChoices& choices = devices.try_emplace(device, device).first->second;
  const auto key = product.key();
  if (ops::autotune() && product.flops() >= kWorthTuning) {
    const ProductChoice* known = choices.tuned.find(key);
    if (known && !again) return *known;
    if (!capturing()) {
      const auto found = fastest(product);
      choices.tuned.add(key, found);
      return found;
    }
  }
  const auto [at, is_new] = choices.untuned.try_emplace(key);
  if (is_new)
    at->second = first(product);
  else if (again)
    at->second = {.none = true};
  return at->second;
}

Tensor compute_product(const Tensor& a, const Tensor& b, at::ScalarType dtype, const Optional& bias,
                       const Optional& a_scale, const Optional& b_scale, bool fast, int64_t epilogue,
                       const Optional& aux) {
  const Guard guard(a.device());
  TORCH_CHECK(!bias || bias->scalar_type() == dtype, "product: a bias in ", bias->scalar_type(),
              " for a result in ", dtype);
  const ops::ProductOptions options{.bias = bias ? Optional(bias->contiguous()) : bias,
                                    .a_scale = a_scale,
                                    .b_scale = b_scale,
                                    .fast = fast,
                                    .epilogue = static_cast<Epilogue>(epilogue),
                                    .aux = aux};
  Product product(a, b, dtype, options);
  for (const bool again : {false, true}) {
    const ProductChoice choice = choice_for(product, a.device().index(), again);
    if (choice.none) return {};
    if (!choice.algorithm) {
      if (!product.torch_can()) continue;  // a damaged line of the file
      product.run_torch();
      return product.out();
    }
    if (product.run(*choice.algorithm)) return product.out();
  }
  return {};
}

TIGHTLOOP_KERNELS(m) { m.impl("product", compute_product); }

}  // namespace

}  // namespace tightloop::cuda
