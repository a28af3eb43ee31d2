#include "ops/side_gradients.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/custom_function.h>

#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Below some 10 us of products at a GPU's full speed, a product has fewer tiles than there are
// multiprocessors.
constexpr double kSmallFlops = 8e9;
// Bytes of activations and gradients that would be free without this.
constexpr int64_t kMostHeld = 512 << 20;

/// What one backward pass has started. Autograd's thread adds to it, the thread that began it joins.
struct Side : torch::CustomClassHolder {
  explicit Side(c10::Stream stream) : stream(stream) {}
  const c10::Stream stream;
  std::mutex mutex;
  bool open = true;                                  // the pass that it began in is not over
  std::vector<std::pair<Tensor, Tensor>> gradients;  // a leaf, and what is added to its gradient
  std::vector<Tensor> read;                          // until the stream has read them
  int64_t held = 0;                                  // bytes of these
  std::vector<c10::Event> events;
};
thread_local c10::intrusive_ptr<Side> current_side;

c10::Stream current_stream(const at::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/// Always the same of a device: torch keeps work space for products for each stream that it has seen.
c10::Stream side_stream(const at::Device& device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::Stream> streams;
  const std::lock_guard lock(mutex);
  const auto found = streams.find(device.index());
  if (found != streams.end()) return found->second;
  const c10::impl::VirtualGuardImpl pool(device.type());
  return streams.emplace(device.index(), pool.getStreamFromGlobalPool(device, /*isHighPriority=*/false))
      .first->second;
}

/// `later` waits for what `earlier` was given until now.
void order(const c10::Stream& earlier, const c10::Stream& later, std::vector<c10::Event>& events) {
  events.emplace_back(earlier.device_type());
  events.back().record(earlier);
  events.back().block(later);
}

Tensor flat_rows(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

struct SideLinear : torch::autograd::Function<SideLinear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, weight, or_undefined(bias)});
    context->saved_data["side"] = c10::IValue::make_capsule(current_side);
    return at::linear(x, weight, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const Tensor dy = flat_rows(d[0]), rows = flat_rows(x);
    Tensor dweight = at::empty_like(weight), dbias = bias.defined() ? at::empty_like(bias) : Tensor();
    const auto compute = [&] {
      at::mm_out(dweight, dy.t(), rows);
      if (dbias.defined()) at::sum_out(dbias, dy, at::IntArrayRef{0});
    };
    const auto side = c10::static_intrusive_pointer_cast<Side>(context->saved_data["side"].toCapsule());
    bool beside = false;
    {
      const std::lock_guard lock(side->mutex);
      if (side->open && side->held < kMostHeld) {
        beside = true;
        side->held += static_cast<int64_t>(dy.nbytes() + rows.nbytes());
        order(current_stream(dy.device()), side->stream, side->events);
        const c10::StreamGuard guard(side->stream);
        compute();
        side->read.insert(side->read.end(), {dy, rows});
        side->gradients.emplace_back(weight, dweight);
        if (dbias.defined()) side->gradients.emplace_back(bias, dbias);
      }
    }
    if (!beside) compute();
    Tensor dx;
    if (context->needs_input_grad(0)) dx = at::matmul(d[0], weight);
    return beside ? variable_list{dx, Tensor(), Tensor()} : variable_list{dx, dweight, dbias};
  }
};

bool learns(const Tensor& x) { return x.is_leaf() && x.requires_grad(); }

}  // namespace

SideGradients::SideGradients(at::Device device) {
  if (!device.is_cuda()) return;
  TORCH_CHECK(!current_side, "one backward pass of a thread at a time has its weights' gradients beside it");
  current_side = c10::make_intrusive<Side>(side_stream(device));
}

SideGradients::~SideGradients() {
  if (!current_side) return;
  const auto side = std::move(current_side);
  const std::lock_guard lock(side->mutex);
  side->open = false;
  if (!side->read.empty()) {
    // Memory that the stream still reads or writes must not be given to others before.
    try {
      order(side->stream, current_stream(side->stream.device()), side->events);
    } catch (const std::exception&) {  // the pass has failed, and will say so; that memory is lost
      new std::vector<Tensor>(std::move(side->read));
      new std::vector<std::pair<Tensor, Tensor>>(std::move(side->gradients));
    }
  }
  side->gradients.clear();
  side->read.clear();
}

void SideGradients::join() {
  if (!current_side) return;
  Side& side = *current_side;
  const std::lock_guard lock(side.mutex);
  if (side.gradients.empty()) return;
  c10::NoGradGuard no_grad;
  order(side.stream, current_stream(side.stream.device()), side.events);
  for (auto& [leaf, gradient] : side.gradients) {
    Tensor& to = leaf.mutable_grad();
    if (to.defined())
      to.add_(gradient);
    else
      to = std::move(gradient);
  }
  side.gradients.clear();
  side.read.clear();
  side.held = 0;
}

bool side_gradients_take(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
  if (!x.is_cuda() || !c10::GradMode::is_enabled() || plain()) return false;
  if (weight.dim() != 2 || x.scalar_type() != weight.scalar_type()) return false;
  if (!learns(weight) || (bias && !learns(*bias))) return false;
  const double flops = 2.0 * static_cast<double>(x.numel()) * static_cast<double>(weight.size(0));
  return current_side && flops > 0 && flops <= kSmallFlops;
}

Tensor side_linear(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
  return SideLinear::apply(x, weight, bias);
}

}  // namespace tightloop::ops
