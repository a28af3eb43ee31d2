#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/square.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "ops/adamw.h"
#include "train/update_rules.h"

namespace tightloop {

namespace {

using at::Tensor;

// X <- a X + b (X X^T) X + c (X X^T)^2 X, five times: Polar Express (arXiv:2505.16932), whose coefficients
// are computed for five steps, a safety factor of 2e-2 and a cushion of 2.
constexpr std::array<std::array<double, 3>, 5> kPolarExpress{{
    {8.156554524902461, -22.48329292557795, 15.878769915207462},
    {4.042929935166739, -2.808917465908714, 0.5000178451051316},
    {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
    {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
    {2.3465413258596377, -1.7097828382687081, 0.42323551169305323},
}};

// Norms of matrices (K, 1, 1) and of rows (K, m, 1) of X (K, m, n).
Tensor matrix_norm(const Tensor& x) { return at::linalg_vector_norm(x, 2, at::IntArrayRef{-2, -1}, true); }
Tensor row_norm(const Tensor& x) { return at::linalg_vector_norm(x, 2, at::IntArrayRef{-1}, true); }

/// Nearly the nearest semi-orthogonal matrix to each of g (K, m, n).
Tensor orthogonal(const Tensor& g, at::ScalarType dtype) {
  Tensor x = g.to(dtype);
  const Tensor wide = x.to(at::kFloat);
  const auto rows = static_cast<double>(x.size(-2));
  const Tensor even = matrix_norm(wide) / std::sqrt(rows) / row_norm(wide).clamp_min(1e-6);
  x = x * even.to(dtype);
  x = x / (matrix_norm(x) * 1.01 + 1e-6);
  const bool tall = x.size(-2) > x.size(-1);
  for (const auto& [a, b, c] : kPolarExpress) {
    const Tensor square = tall ? at::bmm(x.mT(), x) : at::bmm(x, x.mT());
    const Tensor polynomial = at::baddbmm(square, square, square, b, c);
    x = tall ? at::baddbmm(x, x, polynomial, a) : at::baddbmm(x, polynomial, x, a);
  }
  x = x.to(g.scalar_type());
  const double norm = std::sqrt(static_cast<double>(std::min(x.size(-2), x.size(-1))));
  return x * (norm / matrix_norm(x).clamp_min(1e-6));
}

/// The matrices inside a parameter (m, n) or (E, m, n), as views.
std::vector<Tensor> matrices_of(const Tensor& parameter, const std::vector<int64_t>& parts) {
  std::vector<Tensor> matrices;
  const Tensor batch = parameter.dim() == 2 ? parameter.unsqueeze(0) : parameter;
  for (const Tensor& one : batch.unbind(0)) {
    int64_t begin = 0;
    for (const int64_t rows : parts) {
      matrices.push_back(one.narrow(0, begin, rows));
      begin += rows;
    }
  }
  return matrices;
}

/// Matrices of one shape, whose products run as one.
struct Stack {
  struct Place {
    size_t parameter, matrix;  // in the group, in the parameter
  };
  std::vector<Place> places;
  std::vector<Tensor> masters;  // views
  std::vector<std::string> names;
  Tensor momentum, variance;  // (K, m, n); (K, m, 1) where m >= n, else (K, 1, n)
};

class MuonRule : public UpdateRule {
 public:
  MuonRule(Group group, const std::vector<std::vector<int64_t>>& parts, const MuonSettings& settings)
      : group_(std::move(group)), parts_(parts), settings_(settings) {
    std::map<std::pair<int64_t, int64_t>, size_t> by_shape;
    for (size_t i = 0; i < group_.masters.size(); ++i) {
      const auto matrices = matrices_of(group_.masters[i], parts_[i]);
      for (size_t j = 0; j < matrices.size(); ++j) {
        const auto found =
            by_shape.try_emplace({matrices[j].size(0), matrices[j].size(1)}, stacks_.size()).first;
        if (found->second == stacks_.size()) stacks_.emplace_back();
        Stack& stack = stacks_[found->second];
        stack.places.push_back({i, j});
        stack.masters.push_back(matrices[j]);
        stack.names.push_back(fmt::format("{}.{}", group_.names[i], j));
      }
    }
    for (Stack& stack : stacks_) {
      const auto K = static_cast<int64_t>(stack.masters.size());
      const int64_t m = stack.masters[0].size(0), n = stack.masters[0].size(1);
      const auto options = stack.masters[0].options();
      stack.momentum = at::zeros({K, m, n}, options);
      stack.variance = m >= n ? at::zeros({K, m, 1}, options) : at::zeros({K, 1, n}, options);
    }
  }

  void update(const std::vector<Tensor>& gradients, const UpdateControl& control) override {
    std::vector<std::vector<Tensor>> pieces;
    for (size_t i = 0; i < group_.indices.size(); ++i)
      pieces.push_back(matrices_of(gradients[group_.indices[i]], parts_[i]));
    const Tensor divisor = control.adamw[ops::AdamwControl::kDivisor], skip = control.keep.logical_not();
    for (Stack& stack : stacks_) {
      std::vector<Tensor> own;
      for (const auto& place : stack.places) own.push_back(pieces[place.parameter][place.matrix]);
      // What is to be left out becomes 0, so that the zeros of `keep` below meet no NaN.
      update(stack, at::stack(own).to(at::kFloat).div_(divisor).masked_fill_(skip, 0), control);
    }
    if (group_.values.front().scalar_type() != at::kFloat) at::_foreach_copy_(group_.values, group_.masters);
  }

  NamedTensors state() const override {
    NamedTensors named;
    for (const Stack& stack : stacks_)
      for (size_t i = 0; i < stack.names.size(); ++i) {
        named.emplace_back("momentum." + stack.names[i], stack.momentum[static_cast<int64_t>(i)]);
        named.emplace_back("variance." + stack.names[i], stack.variance[static_cast<int64_t>(i)]);
      }
    return named;
  }

 private:
  void update(Stack& stack, Tensor g, const UpdateControl& control) {
    const auto m = static_cast<double>(g.size(-2)), n = static_cast<double>(g.size(-1));
    const Tensor keep = control.keep.to(at::kFloat);
    stack.momentum.lerp_(g, (1 - control.momentum) * keep);
    g = orthogonal(g.lerp_(stack.momentum, control.momentum), settings_.compute_dtype);

    // Even out the variance along the longer side, and keep the whole norm as it was.
    const int64_t along = m >= n ? -1 : -2;
    const auto size = static_cast<double>(g.size(along));
    const Tensor mean = at::square(g).mean(at::IntArrayRef{along}, /*keepdim=*/true);
    stack.variance.lerp_(mean, keep * (1 - settings_.beta2));
    const Tensor scale = stack.variance.clamp_min(1e-10).rsqrt();
    const auto whole = [](const Tensor& x) {
      return x.sum(at::IntArrayRef{-2, -1}, /*keepdim=*/true).sqrt();
    };
    const Tensor before = whole(mean * size), after = whole(mean * size * at::square(scale));
    g = g * (scale * (before / after.clamp_min(1e-10)));

    const Tensor lr = control.share * keep * (settings_.lr * std::sqrt(std::max(1.0, m / n)));
    if (settings_.decay > 0) {
      const Tensor weights = at::stack(stack.masters);
      g = g + weights * (g * weights >= 0) * (control.decay_share * settings_.decay);
    }
    at::_foreach_sub_(stack.masters, g.mul_(lr).unbind(0));
  }

  Group group_;
  const std::vector<std::vector<int64_t>> parts_;
  const MuonSettings settings_;
  std::vector<Stack> stacks_;
};

}  // namespace

std::unique_ptr<UpdateRule> muon_rule(Group group, const std::vector<std::vector<int64_t>>& parts,
                                      const MuonSettings& settings) {
  return std::make_unique<MuonRule>(std::move(group), parts, settings);
}

}  // namespace tightloop
