#include "model/parts/parameters.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <stdexcept>

#include "core/hash.h"
#include "core/interrupt.h"
#include "core/random.h"
#include "ops/quantized_linear.h"

namespace tightloop {

namespace {

// Box-Muller over Philox: element i depends on (key, i) alone, so neither threads nor devices change it.
void fill_normal(float* out, int64_t count, double std, uint64_t key) {
  at::parallel_for(0, (count + 3) / 4, 1 << 12, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const auto words = philox(key, block);
      for (int pair = 0; pair < 2; ++pair) {
        const double radius = std * std::sqrt(-2 * std::log((words[2 * pair] + 1.0) * 0x1.0p-32));
        const double angle = 2 * std::numbers::pi * words[2 * pair + 1] * 0x1.0p-32;
        const int64_t at = block * 4 + pair * 2;
        if (at < count) out[at] = static_cast<float>(radius * std::cos(angle));
        if (at + 1 < count) out[at + 1] = static_cast<float>(radius * std::sin(angle));
      }
    }
  });
}

void fill_uniform(float* out, int64_t count, double low, double high, uint64_t key) {
  at::parallel_for(0, (count + 3) / 4, 1 << 12, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const auto words = philox(key, block);
      for (int64_t i = 0; i < std::min<int64_t>(4, count - block * 4); ++i)
        out[block * 4 + i] = static_cast<float>(low + (high - low) * words[i] * 0x1.0p-32);
    }
  });
}

void fill_ramp(float* out, int64_t count, double first, double last) {
  const auto steps = static_cast<double>(std::max<int64_t>(1, count - 1));
  for (int64_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(first + (last - first) * static_cast<double>(i) / steps);
}

void fill(at::Tensor& value, const Init& init, uint64_t key) {
  float* data = value.data_ptr<float>();
  const int64_t count = value.numel();
  if (init.kind == Init::kNormal) fill_normal(data, count, init.std, key);
  if (init.kind == Init::kUniform) fill_uniform(data, count, init.low, init.high, key);
  if (init.kind == Init::kRamp) fill_ramp(data, count, init.low, init.high);
  if (init.kind == Init::kOnes) std::fill_n(data, count, 1.0f);
  if (init.kind == Init::kZeros) std::fill_n(data, count, 0.0f);
}

}  // namespace

at::Tensor Parameters::add(const std::string& name, at::IntArrayRef shape, Init init, ParameterRole role,
                           std::vector<int64_t> parts) {
  if (find(name)) throw std::logic_error("two parameters are called " + name);
  if (seed_.weights) throw_if_interrupted();  // filling takes time; shapes are asked for also in a step
  const bool matrix = shape.size() >= 2;
  if (matrix && parts.empty()) parts = {shape[shape.size() - 2]};
  if (matrix && std::accumulate(parts.begin(), parts.end(), int64_t{0}) != shape[shape.size() - 2])
    throw std::logic_error("the parts of " + name + " are not all of it");
  auto value = at::empty(shape, at::TensorOptions(at::kFloat).device(seed_.weights ? at::kCPU : at::kMeta));
  if (seed_.weights) fill(value, init, hash64(name, seed_.number));
  value.requires_grad_();
  const Parameter& made = all_.emplace_back(Parameter{name, value, role, std::move(parts)});
  by_name_.emplace(made.name, &made);
  return value;
}

void Parameters::to(at::Device device, at::ScalarType dtype) {
  c10::NoGradGuard no_grad;
  for (auto& parameter : all_) {
    auto& value = parameter.value;
    value.set_data(value.detach().to(device, ops::is_quantized(value) ? value.scalar_type() : dtype));
  }
}

const Parameter* Parameters::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

int64_t Parameters::count() const {
  int64_t total = 0;
  for (const auto& parameter : all_) total += parameter.value.numel();
  return total;
}

std::vector<at::Tensor> Parameters::values() const {
  std::vector<at::Tensor> values;
  for (const auto& parameter : all_) values.push_back(parameter.value);
  return values;
}

}  // namespace tightloop
