#include "train/recorded_device.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gtest/gtest.h>
#include <torch/library.h>

namespace tightloop::testing {

namespace {

// A key that torch leaves to others, below autograd and above the kernels.
constexpr auto kKey = c10::DispatchKey::Fake;

struct Call {
  c10::OperatorHandle op;
  c10::DispatchKeySet keys;
  torch::jit::Stack inputs, outputs;
};

thread_local std::vector<Call>* recording = nullptr;
thread_local std::function<void(const std::string&)>* watching = nullptr;

void on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard inside(kKey);  // what an operator calls belongs to it
  if (watching) (*watching)(op.schema().name());
  keys = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  const auto inputs = torch::jit::last(*stack, op.schema().arguments().size()).vec();
  op.redispatchBoxed(keys, stack);
  if (recording)
    recording->push_back({op, keys, inputs, torch::jit::last(*stack, op.schema().returns().size()).vec()});
}

TORCH_LIBRARY_IMPL(_, Fake, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_call>()); }

void put_back(const c10::IValue& from, const c10::IValue& to) {
  if (to.isTensor() && to.toTensor().defined()) {
    const at::Tensor &made = from.toTensor(), &wanted = to.toTensor();
    if (made.const_data_ptr() != wanted.const_data_ptr())
      wanted.detach().copy_(made);  // else in place or a view
  } else if (to.isTensorList()) {
    for (size_t i = 0; i < to.toTensorVector().size(); ++i)
      put_back(from.toTensorVector()[i], to.toTensorVector()[i]);
  }
}

class RecordedGraph : public Graph {
 public:
  explicit RecordedGraph(const std::function<void()>& work) {
    const c10::impl::IncludeDispatchKeyGuard on(kKey);
    recording = &calls_;
    try {
      work();
    } catch (...) {
      recording = nullptr;
      throw;
    }
    recording = nullptr;
  }

  void replay() override {
    c10::NoGradGuard no_grad;
    for (const Call& call : calls_) {
      torch::jit::Stack stack = call.inputs;
      call.op.redispatchBoxed(call.keys, &stack);
      for (size_t i = 0; i < stack.size(); ++i) put_back(stack[i], call.outputs[i]);
    }
  }

 private:
  std::vector<Call> calls_;
};

}  // namespace

struct WatchedOperators::Scope {
  std::function<void(const std::string&)> before;
  c10::impl::IncludeDispatchKeyGuard on{kKey};
};
WatchedOperators::WatchedOperators(std::function<void(const std::string& name)> before)
    : scope_(new Scope{.before = std::move(before)}) {
  watching = &scope_->before;
}
WatchedOperators::~WatchedOperators() { watching = nullptr; }

std::unique_ptr<Graph> RecordedDevice::capture(const std::function<void()>& work) {
  // A GPU's capture runs nothing. Here it runs, and what it did is undone by nobody: the replay that follows
  // would do it twice, so the first one is left out.
  struct First : Graph {
    explicit First(const std::function<void()>& work) : graph(work) {}
    void replay() override { replayed++ > 0 ? graph.replay() : void(); }
    RecordedGraph graph;
    int replayed = 0;
  };
  return std::make_unique<First>(work);
}

namespace {

TEST(RecordedDevice, ReplaysTensorsAndNothingElse) {
  RecordedDevice device;
  at::Tensor x = at::full({2, 3}, 2.0).requires_grad_(), sum = at::zeros({});
  int host = 0;
  const auto graph = device.capture([&] {
    ++host;
    (x * x).sum().backward();
    c10::NoGradGuard no_grad;
    sum.add_(x.grad().t().reshape({6}).sum());
    x.mutable_grad().reset();
  });
  graph->replay();
  EXPECT_EQ(sum.item<double>(), 24);
  x.detach().fill_(3);
  graph->replay();
  EXPECT_EQ(sum.item<double>(), 24 + 36);
  EXPECT_EQ(host, 1);
  EXPECT_FALSE(x.grad().defined());
}

}  // namespace

}  // namespace tightloop::testing
