#include "ops/pointwise/dropout.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cstring>

#include "ops/operator.h"
#include "ops/pointwise/dropout_cpu.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Its gradient is itself, applied to the gradient that flows in.
TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def("dropout(Tensor x, float p, Tensor random, int site) -> Tensor");
}

constexpr int64_t kChunk = cpu::kChunk;

Tensor dropout_cpu(const Tensor& x_in, double p, const Tensor& random, int64_t site) {
  const Tensor x = x_in.contiguous();
  Tensor y = at::empty(x.sizes(), x.options());
  const auto key = static_cast<uint64_t>(*random.const_data_ptr<int64_t>());
  const uint32_t threshold = dropout_threshold(p);
  const auto scale = static_cast<float>(1 / (1 - p));
  const int64_t N = x.numel();
  cpu::with_dtype(x.scalar_type(), [&]<class T>(T) {
    const T* from = x.const_data_ptr<T>();
    T* to = y.mutable_data_ptr<T>();
    at::parallel_for(0, (N + kChunk - 1) / kChunk, cpu::grain(kChunk), [&](int64_t begin, int64_t end) {
      uint32_t words[kChunk];
      for (int64_t at = begin * kChunk; at < std::min(end * kChunk, N); at += kChunk) {
        cpu::random_words(key, static_cast<uint64_t>(at / 4), static_cast<uint64_t>(site), words);
        cpu::for_vectors(std::min(kChunk, N - at), [&](int64_t i, auto lanes) {
          cpu::Bits word;
          std::memcpy(&word, words + i, sizeof word);
          const cpu::Vec scaled = cpu::load(from + at + i, lanes) * scale;
          cpu::store(to + at + i, word >= threshold ? scaled : cpu::Vec{}, lanes);
        });
      }
    });
  });
  return y;
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) { m.impl("dropout", dropout_cpu); }

Tensor call_kernel(const Tensor& x, double p, const Tensor& random, int64_t site) {
  at::AutoDispatchBelowADInplaceOrView below;
  static const auto kernel =
      find_operator<Tensor(const Tensor&, double, const Tensor&, int64_t)>("tightloop::dropout");
  return kernel.call(x, p, random, site);
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, double p, const Tensor& random,
                        int64_t site) {
    context->save_for_backward({random});
    context->saved_data["p"] = p;
    context->saved_data["site"] = site;
    return call_kernel(x, p, random, site);
  }

  static variable_list backward(AutogradContext* context, const variable_list& dy) {
    const auto random = context->get_saved_variables()[0];
    const double p = context->saved_data["p"].toDouble();
    const int64_t site = context->saved_data["site"].toInt();
    return {call_kernel(dy[0], p, random, site), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

void check(const Dropout& drop, at::Device device) {
  if (drop.rate == 0) return;
  TORCH_CHECK(drop.rate > 0 && drop.rate < 1, "dropout: a rate of ", drop.rate, " cannot be dropped");
  TORCH_CHECK(drop.random.defined() && drop.random.numel() == 1 && drop.random.scalar_type() == at::kLong &&
                  drop.random.device() == device,
              "dropout: `random` must be one int64 on the device of what is dropped");
}

Tensor dropout(const Tensor& x, const Dropout& drop) {
  if (drop.rate == 0) return x;
  check(drop, x.device());
  return has_kernel(x) ? DropoutFunction::apply(x, drop.rate, drop.random, drop.site)
                       : dropout_plain(x, drop);
}

Tensor dropout_plain(const Tensor& x, const Dropout& drop) {
  if (drop.rate == 0) return x;
  check(drop, x.device());
  const Tensor wide = x.to(compute_dtype(x)), mask = dropout_mask(x.numel(), drop);
  return at::where(mask.view(x.sizes()), wide / (1 - drop.rate), 0.0).to(x.scalar_type());
}

Tensor dropout_mask(int64_t count, const Dropout& drop) {
  const auto& [p, random, site] = drop;
  // Philox 4x32-10 in int64: its words are in the lower half, and products wrap around.
  constexpr int64_t kWord = 0xffffffff;
  const auto low = [](const Tensor& v) { return v.bitwise_and(kWord); };
  const auto high = [&](const Tensor& v) { return low(v.bitwise_right_shift(32)); };
  const Tensor counter = at::arange((count + 3) / 4, random.options()), key = random.reshape({});
  Tensor c0 = low(counter), c1 = high(counter);
  Tensor c2 = at::full_like(counter, site & kWord), c3 = at::full_like(counter, site >> 32 & kWord);
  Tensor k0 = low(key), k1 = high(key);
  for (int round = 0; round < 10; ++round) {
    const Tensor p0 = c0 * int64_t{cpu::kPhiloxMultiplier0}, p1 = c2 * int64_t{cpu::kPhiloxMultiplier1};
    c0 = high(p1).bitwise_xor(c1).bitwise_xor(k0);
    c2 = high(p0).bitwise_xor(c3).bitwise_xor(k1);
    c1 = low(p1), c3 = low(p0);
    k0 = low(k0 + int64_t{cpu::kPhiloxStep0}), k1 = low(k1 + int64_t{cpu::kPhiloxStep1});
  }
  const Tensor words = at::stack({c0, c1, c2, c3}, 1).flatten().narrow(0, 0, count);
  return words >= int64_t{dropout_threshold(p)};
}

}  // namespace tightloop::ops
