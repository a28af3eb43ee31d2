// Attention by cuDNN: causal or not, in windows, over packed documents one by one, with dropout, with a
// deterministic backward pass. Loading the plug-in puts it in front of torch's own.

#include <ATen/Context.h>
#include <ATen/cudnn/Handle.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/log.h"
#include "cuda/operator.h"
#include "ops/attention/attention_backend.h"
#include "ops/attention/cudnn_plan.h"
#include "ops/operator.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;
using ops::AttentionCall;
using ops::or_undefined;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Plans by device and problem, each made once and kept: the process has few of them.
class Plans {
 public:
  /// Whether one more is worth its time for a call that is not trained on, as those of texts of all lengths
  /// are.
  bool worth_making(const CudnnProblem& problem, c10::DeviceIndex device) {
    constexpr size_t kMost = 64;
    const std::lock_guard lock(mutex_);
    return plans_.size() < kMost || plans_.contains({device, problem});
  }
  /// Null where cuDNN has none.
  const CudnnPlan* find(const CudnnProblem& problem, c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    auto at = plans_.find({device, problem});
    if (at == plans_.end()) {
      std::string why;
      auto made = make_cudnn_plan(at::native::getCudnnHandle(), problem, why);
      at = plans_.try_emplace({device, problem}, std::move(made)).first;
      if (!at->second) log::write(log::Level::kDebug, "cuDNN has no attention for this shape: " + why);
    }
    return at->second.get();
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<c10::DeviceIndex, CudnnProblem>, std::unique_ptr<CudnnPlan>> plans_;
};

Plans& plans() {
  static Plans all;
  return all;
}

/// Queries, keys and values as (B, T, heads, S).
struct Parts {
  Tensor q, k, v;
};

/// The parts of (B, T, H + 2 K, S).
Parts parts_of(const Tensor& qkv, int64_t H) {
  const int64_t K = (qkv.size(2) - H) / 2;
  return {qkv.narrow(2, 0, H), qkv.narrow(2, H, K), qkv.narrow(2, H + K, K)};
}

HeadStrides strides_of(const Tensor& x_BTHS) {
  return {x_BTHS.stride(0), x_BTHS.stride(2), x_BTHS.stride(1)};
}

/// A call, less its tensors: what the backward pass needs to know of it.
struct Setup : torch::CustomClassHolder {
  explicit Setup(const AttentionCall& call)
      : causal(call.causal), window(call.window), scale(call.scale), drop(call.drop), bounds(call.bounds) {}

  CudnnProblem problem(const Parts& parts) const {
    CudnnProblem problem{.B = parts.q.size(0),
                         .H = parts.q.size(2),
                         .K = parts.k.size(2),
                         .T = parts.q.size(1),
                         .P = parts.k.size(1),
                         .S = parts.q.size(3)};
    problem.q = strides_of(parts.q), problem.k = strides_of(parts.k), problem.v = strides_of(parts.v);
    problem.y = {problem.T * problem.H * problem.S, problem.S, problem.H * problem.S};
    problem.bfloat16 = parts.q.scalar_type() == at::kBFloat16;
    problem.causal = causal, problem.window = window;
    problem.scale = static_cast<float>(scale.value_or(1 / std::sqrt(static_cast<double>(problem.S))));
    problem.dropout = static_cast<float>(drop.rate);
    if (bounds) {
      problem.ragged = true, problem.tokens = problem.B * problem.T;
      problem.B = bounds->documents();
      // Of stretches only the distance from one position to the next counts.
      for (HeadStrides* strides : {&problem.q, &problem.k, &problem.v, &problem.y}) strides->batch = 0;
    }
    return problem;
  }

  /// The same for the backward pass. Gradients of the parts are dense, or lie in one tensor as the parts do.
  CudnnProblem backward_problem(const Parts& parts, bool packed) const {
    CudnnProblem problem = this->problem(parts);
    problem.backward = true;
    problem.deterministic = at::globalContext().deterministicAlgorithms();
    problem.dy = problem.y;
    const auto dense = [&](int64_t length, int64_t heads) {
      return HeadStrides{bounds ? 0 : length * heads * problem.S, problem.S, heads * problem.S};
    };
    problem.dq = packed ? problem.q : dense(problem.T, problem.H);
    problem.dk = packed ? problem.k : dense(problem.P, problem.K);
    problem.dv = packed ? problem.v : dense(problem.P, problem.K);
    return problem;
  }

  const bool causal;
  const int64_t window;
  const std::optional<double> scale;
  const ops::Dropout drop;
  const std::shared_ptr<ops::DocumentBounds> bounds;
};

void put(CudnnMemory& memory, CudnnTensor which, const Tensor& x) {
  memory[static_cast<size_t>(which)] = const_cast<void*>(x.const_data_ptr());
}

/// Where each site's random numbers begin: cuDNN reads that from the device, too. So far apart that no two
/// meet.
Tensor site_offset(const ops::Dropout& drop) {
  constexpr int64_t kSites = 1 << 16, kApart = int64_t{1} << 40;
  TORCH_CHECK(drop.site < kSites, "attention: dropout has ", kSites, " sites, not ", drop.site);
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, Tensor> offsets;
  const std::lock_guard lock(mutex);
  Tensor& all = offsets[drop.random.device().index()];
  if (!all.defined()) all = at::arange(0, kSites * kApart, kApart, drop.random.options());
  return all[drop.site];
}

void put_common(CudnnMemory& memory, const Setup& setup, const CudnnProblem& problem, const Parts& parts,
                const Tensor& y, const Tensor& stats) {
  put(memory, CudnnTensor::kQ, parts.q), put(memory, CudnnTensor::kK, parts.k);
  put(memory, CudnnTensor::kV, parts.v), put(memory, CudnnTensor::kY, y);
  put(memory, CudnnTensor::kStats, stats);
  if (setup.drop.rate > 0) {
    put(memory, CudnnTensor::kSeed, setup.drop.random);
    put(memory, CudnnTensor::kOffset, site_offset(setup.drop));
  }
  if (!setup.bounds) return;
  put(memory, CudnnTensor::kLengths, setup.bounds->lengths());
  const auto begins = [&](CudnnTensor which, int64_t stride) {
    put(memory, which, setup.bounds->begins(stride));
  };
  begins(CudnnTensor::kBeginQ, problem.q.time), begins(CudnnTensor::kBeginK, problem.k.time);
  begins(CudnnTensor::kBeginV, problem.v.time), begins(CudnnTensor::kBeginY, problem.y.time);
  begins(CudnnTensor::kBeginStats, problem.H);
  if (!problem.backward) return;
  begins(CudnnTensor::kBeginDy, problem.dy.time), begins(CudnnTensor::kBeginDq, problem.dq.time);
  begins(CudnnTensor::kBeginDk, problem.dk.time), begins(CudnnTensor::kBeginDv, problem.dv.time);
}

void run_plan(const CudnnProblem& problem, const CudnnMemory& memory, const Tensor& like) {
  const CudnnPlan* plan = plans().find(problem, like.device().index());
  TORCH_CHECK(plan, "attention: cuDNN has no plan for a problem that it was asked for");
  const Tensor workspace = at::empty({plan->workspace()}, like.options().dtype(at::kByte));
  plan->run(at::native::getCudnnHandle(), memory, workspace.mutable_data_ptr());
}

Parts parts_of(const Tensor& q, const Tensor& k, const Tensor& v, int64_t H) {
  return k.defined() ? Parts{q, k, v} : parts_of(q, H);
}

/// Of queries, keys and values, or (k and v undefined) of the one tensor that they are parts of.
struct CudnnAttention : torch::autograd::Function<CudnnAttention> {
  static Tensor forward(AutogradContext* context, const Tensor& q, const std::optional<Tensor>& k,
                        const std::optional<Tensor>& v, int64_t H, const c10::intrusive_ptr<Setup>& setup) {
    at::AutoDispatchBelowADInplaceOrView below;
    const Guard on_device(q.device());
    const Parts parts = parts_of(q, or_undefined(k), or_undefined(v), H);
    RECORD_FUNCTION("tightloop::attention_forward", (std::vector<c10::IValue>{parts.q, parts.k}));  // FLOPs
    const CudnnProblem problem = setup->problem(parts);
    const int64_t B = parts.q.size(0), T = problem.T, S = problem.S;
    Tensor y = at::empty({B, T, H, S}, q.options());
    const Tensor stats = at::empty({B * T * H}, q.options().dtype(at::kFloat));
    CudnnMemory memory{};
    put_common(memory, *setup, problem, parts, y, stats);
    run_plan(problem, memory, q);
    context->save_for_backward({q, or_undefined(k), or_undefined(v), y, stats});
    context->saved_data["setup"] = c10::IValue::make_capsule(setup);
    context->saved_data["heads"] = H;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto saved = context->get_saved_variables();
    const auto setup = c10::static_intrusive_pointer_cast<Setup>(context->saved_data["setup"].toCapsule());
    const Guard on_device(saved[0].device());
    const int64_t H = context->saved_data["heads"].toInt();
    const bool packed = !saved[1].defined();
    const Parts parts = parts_of(saved[0], saved[1], saved[2], H);
    RECORD_FUNCTION("tightloop::attention_backward",
                    (std::vector<c10::IValue>{d[0], saved[3], saved[4], parts.q, parts.k}));
    const CudnnProblem problem = setup->backward_problem(parts, packed);
    const Tensor dy = dense(d[0]);
    // As dense as the product that made it, so that the parts' strides are theirs.
    const Tensor dqkv =
        packed ? at::empty_strided(saved[0].sizes(), saved[0].strides(), saved[0].options()) : Tensor();
    const auto like = [](const Tensor& x) { return at::empty(x.sizes(), x.options()); };
    const Parts gradients = packed ? parts_of(dqkv, H) : Parts{like(parts.q), like(parts.k), like(parts.v)};
    CudnnMemory memory{};
    put_common(memory, *setup, problem, parts, saved[3], saved[4]);
    put(memory, CudnnTensor::kDy, dy), put(memory, CudnnTensor::kDq, gradients.q);
    put(memory, CudnnTensor::kDk, gradients.k), put(memory, CudnnTensor::kDv, gradients.v);
    run_plan(problem, memory, dy);
    if (packed) return {dqkv, Tensor(), Tensor(), Tensor(), Tensor()};
    return {gradients.q, gradients.k, gradients.v, Tensor(), Tensor()};
  }
};

Parts parts_of(const AttentionCall& call) {
  return {call.q_BHTS.transpose(1, 2), call.k_BKPS.transpose(1, 2), call.v_BKPS.transpose(1, 2)};
}

/// Whether the gradient of (B, T, H + 2 K, S) may be given as a whole.
bool is_packed(const AttentionCall& call) { return call.qkv_BTJS.defined() && call.qkv_BTJS.is_contiguous(); }

/// Rows of heads that cuDNN's loads can begin at: 16 bytes.
bool is_readable(const Tensor& x_BTHS) {
  const auto wide = [](int64_t stride) { return stride % 8 == 0; };
  return x_BTHS.stride(3) == 1 && wide(x_BTHS.stride(0)) && wide(x_BTHS.stride(1)) &&
         wide(x_BTHS.stride(2)) && reinterpret_cast<uintptr_t>(x_BTHS.const_data_ptr()) % 16 == 0;
}

/// Whether stretches of the rows lie as if the rows were one.
bool is_one_row(const Tensor& x_BTHS) { return x_BTHS.stride(0) == x_BTHS.size(1) * x_BTHS.stride(1); }

bool can(const AttentionCall& call) {
  const Tensor& q = call.q_BHTS;
  const bool narrow = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  if (!q.is_cuda() || !narrow || call.growing || call.bias_BHTP.defined() || q.size(3) % 8 != 0 ||
      q.numel() == 0 || (call.causal && q.size(2) != call.k_BKPS.size(2)) ||
      call.documents_BT.defined() != static_cast<bool>(call.bounds))
    return false;
  const Parts parts = parts_of(call);
  for (const Tensor* x : {&parts.q, &parts.k, &parts.v}) {
    if (x->scalar_type() != q.scalar_type() || !is_readable(*x)) return false;
    if (call.bounds && (!is_one_row(*x) || x->size(0) * x->stride(0) > std::numeric_limits<int32_t>::max()))
      return false;
  }
  const Guard guard(q.device());
  const Setup setup(call);
  const auto device = q.device().index();
  // With dropout always: a block that is computed again must find what the first pass found.
  const bool learns = call.drop.rate > 0 ||
                      (c10::GradMode::is_enabled() &&
                       (q.requires_grad() || call.k_BKPS.requires_grad() || call.v_BKPS.requires_grad()));
  const auto problem = setup.problem(parts);
  if (!learns && !plans().worth_making(problem, device)) return false;
  if (!plans().find(problem, device)) return false;
  return !learns || plans().find(setup.backward_problem(parts, is_packed(call)), device);
}

Tensor run(const AttentionCall& call) {
  const auto setup = c10::make_intrusive<Setup>(call);
  const int64_t H = call.q_BHTS.size(1);
  if (is_packed(call))
    return CudnnAttention::apply(call.qkv_BTJS, std::nullopt, std::nullopt, H, setup).transpose(1, 2);
  const Parts parts = parts_of(call);
  return CudnnAttention::apply(parts.q, parts.k, parts.v, H, setup).transpose(1, 2);
}

[[maybe_unused]] const bool added = [] {
  ops::add_attention_backend({"cuDNN", can, run});
  return true;
}();

}  // namespace

}  // namespace tightloop::cuda
