#include "train/guard/diagnosis.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <optional>

#include "train/engine/step_numbers.h"
#include "train/guard/non_finite_watch.h"
#include "train/optim/state_slice.h"

namespace tightloop {

namespace {

constexpr size_t kMostRows = 4;

/// "blocks.3" of "blocks.3.down"; the whole name where nothing is numbered.
std::string layer_of(const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    if (end > begin && std::all_of(name.begin() + begin, name.begin() + end, ::isdigit))
      return name.substr(0, end);
    begin = end + 1;
  }
  return name;
}

/// What the model reads, by name.
NamedTensors weights_of(const DiagnosedRun& run) {
  NamedTensors weights = run.task.frozen();
  for (const Parameter& parameter : run.task.trained().all())
    weights.emplace_back(parameter.name, parameter.value.detach());
  return weights;
}

double largest(const NamedTensors& weights, const std::string& name) {
  for (const auto& [other, tensor] : weights)
    if (other == name) return tensor.abs().max().item<double>();
  return 0;
}

/// What came of one more pass over a micro-batch.
struct SecondPass {
  std::optional<FirstNonFinite> forward, backward;
  bool loss_finite = true, gradients_finite = true;
  std::string gradient;  // of the first parameter, in the order of backward, whose gradient is not finite
  std::vector<int64_t> bad_rows;  // whose losses are not finite
};

SecondPass pass_again(const DiagnosedRun& run, const Staged& staged, const NamedTensors& weights,
                      double loss_scale) {
  const auto parts = staged.layout.parts(staged.buffer.to(run.device));
  const at::Tensor& numbers = parts[Staged::kNumbers];
  const double factor = loss_scale > 0 ? loss_scale : 1;
  SecondPass pass;
  BatchLoss loss;
  {
    const NonFiniteWatch watch(weights);
    loss = run.task.loss(parts, numbers[StepNumbers::kLossWeight] * factor, /*metrics=*/true);
    pass.forward = watch.first();
  }
  pass.loss_finite = count_non_finite(loss.sum) == 0;
  if (!pass.loss_finite) {
    const at::Tensor by_row = loss.losses.view({loss.sources_B.size(0), -1}).sum(1).to(at::kCPU, at::kDouble);
    for (int64_t row = 0; row < by_row.size(0); ++row)
      if (!std::isfinite(by_row[row].item<double>())) pass.bad_rows.push_back(row);
  }
  {
    const NonFiniteWatch watch(weights);
    const at::Tensor balance = numbers[StepNumbers::kBalanceWeight] * factor;
    (loss.balance.defined() ? loss.objective + loss.balance * balance : loss.objective).backward();
    pass.backward = watch.first();
  }
  const auto& parameters = run.task.trained().all();
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    const at::Tensor& gradient = parameter->value.grad();
    if (!gradient.defined() || count_non_finite(gradient) == 0) continue;
    pass.gradients_finite = false;
    if (pass.gradient.empty()) pass.gradient = parameter->name;
  }
  run.optimizer.drop_gradients();
  return pass;
}

void name_first(Diagnosis& found, const FirstNonFinite& first, const NamedTensors& weights,
                const std::string& where) {
  found.layer = layer_of(first.weight), found.tensor = first.weight, found.op = first.op;
  found.text += fmt::format(" The first value that is not finite in the {} comes out of {}", where, first.op);
  if (first.weight.empty()) return void(found.text += ", before any weight is read.");
  found.text +=
      fmt::format(" {} weight '{}', whose largest value is {:.3g}.", first.reads_weight ? "with" : "after",
                  first.weight, largest(weights, first.weight));
}

void take_rows(Diagnosis& found, const Task& task, int64_t micro_batch,
               const std::vector<int64_t>& bad_rows) {
  const auto origins = task.origins(micro_batch);
  for (const int64_t row : bad_rows)
    if (row < std::ssize(origins)) found.rows.push_back(origins[row]);
  if (found.rows.empty()) found.rows = origins;
  const bool blamed = !bad_rows.empty() && bad_rows.size() < origins.size();
  found.text += fmt::format(
      " {} of micro-batch {}: ", blamed ? "The rows whose losses are not finite" : "Rows", micro_batch);
  for (size_t i = 0; i < std::min(kMostRows, found.rows.size()); ++i)
    found.text += (i > 0 ? "; " : "") + found.rows[i];
  found.text +=
      found.rows.size() > kMostRows ? fmt::format("; {} more.", found.rows.size() - kMostRows) : ".";
}

bool blame_weights(Diagnosis& found, const NamedTensors& weights) {
  std::string others;
  for (const auto& [name, tensor] : weights) {
    const int64_t bad = tensor.is_floating_point() ? count_non_finite(tensor) : 0;
    if (bad == 0) continue;
    if (found.tensor.empty()) {
      found.cause = SkipCause::kWeight, found.tensor = name, found.layer = layer_of(name);
      found.text += fmt::format(
          " The weights themselves are not finite: {} of {} values of '{}'. Every step will be skipped; go "
          "back to a checkpoint that is good.",
          bad, tensor.numel(), name);
    } else if (others.size() < 80) {
      others += (others.empty() ? "" : ", ") + name;
    }
  }
  if (!others.empty()) found.text += fmt::format(" Also: {}.", others);
  return !found.tensor.empty();
}

/// An update of AdamW moves each weight by about the learning rate.
void judge_rate(Diagnosis& found, const DiagnosedRun& run, int64_t step) {
  if (run.train.optimizer != OptimizerKind::kAdamw) return;
  constexpr double kHigh = 0.1;
  double squares = 0, count = 0;
  for (const auto& [name, sizes, begin, tensor] : run.optimizer.weight_slices()) {
    squares += tensor.to(at::kDouble).square().sum().item<double>();
    count += static_cast<double>(tensor.numel());
  }
  const double size = std::sqrt(squares / count),
               lr = run.optimizer.lr(rates_at(run.train, step, run.task.config().width));
  if (std::isfinite(size) && lr > kHigh * size)
    found.text += fmt::format(
        " The learning rate is high: an update moves a weight by about {:.2g}, and weights are about {:.2g} "
        "(root mean square).",
        lr, size);
}

std::vector<WorstRow> keep_worst(std::vector<WorstRow> rows) {
  constexpr size_t kWorst = 3;
  // With the weights of a later step a loss may be no number: that comes first.
  const auto rank = [](const WorstRow& row) { return std::isnan(row.loss) ? HUGE_VAL : row.loss; };
  std::ranges::stable_sort(rows, std::greater(), rank);
  rows.resize(std::min(kWorst, rows.size()));
  return rows;
}

/// What a pass shows; false: nothing.
bool blame_pass(Diagnosis& found, const DiagnosedRun& run, const Staged& staged, const NamedTensors& weights,
                double loss_scale) {
  const SecondPass pass = pass_again(run, staged, weights, loss_scale);
  if (pass.loss_finite && pass.gradients_finite) return false;
  if (!pass.loss_finite) {
    found.cause = pass.forward && !pass.forward->op.ends_with("cross_entropy") ? SkipCause::kActivation
                                                                               : SkipCause::kLoss;
    if (pass.forward) name_first(found, *pass.forward, weights, "forward pass");
  } else {
    // Kernels of the loss make its gradient in the forward pass.
    const auto& first = pass.forward ? pass.forward : pass.backward;
    found.cause = SkipCause::kGradient;
    found.text += " The loss is finite, and its gradient is not.";
    if (first) name_first(found, *first, weights, "gradient");
    if (found.tensor.empty()) found.tensor = pass.gradient, found.layer = layer_of(pass.gradient);
    found.text += fmt::format(" The gradient of '{}' is not finite.", pass.gradient);
    if (loss_scale > 1) {
      const bool finite = pass_again(run, staged, weights, 1).gradients_finite;
      if (finite) found.cause = SkipCause::kLossScale;
      found.text += fmt::format(" fp16: the loss scale was {:g}; at 1 gradients are {}.", loss_scale,
                                finite ? "finite, so the scale alone is too large and goes down by itself"
                                       : "not finite either, so it is not the scale");
    } else if (loss_scale > 0) {
      found.text += fmt::format(
          " fp16: the loss scale is {:g} already; train.precision bf16 or fp32 has a "
          "larger range.",
          loss_scale);
    }
  }
  take_rows(found, run.task, staged.index, pass.bad_rows);
  return true;
}

}  // namespace

nlohmann::json Diagnosis::fields() const {
  nlohmann::json fields{{"cause", name_of(cause)}, {"rows", rows}};
  if (!layer.empty()) fields["layer"] = layer;
  if (!tensor.empty()) fields["tensor"] = tensor;
  if (!op.empty()) fields["operator"] = op;
  return fields;
}

Diagnosis diagnose(const DiagnosedRun& run, const StepSums& sums) {
  Diagnosis found;
  const int64_t accumulate = run.train.accumulate, first = (sums.step - 1) * accumulate;
  if (sums[LossBuffer::kTokens] == 0) {
    found.cause = SkipCause::kLossMask;
    found.text = "None of its tokens is to be learned: the loss mask is all zero.";
    take_rows(found, run.task, first, {});
    return found;
  }
  {
    c10::NoGradGuard no_grad;
    const NamedTensors weights = weights_of(run);
    if (blame_weights(found, weights)) return found;
  }
  const NamedTensors weights = weights_of(run);
  bool blamed = false;
  for (int64_t i = 0; i < accumulate && !blamed; ++i)
    blamed = blame_pass(found, run, run.staging.again(first + i), weights, sums[LossBuffer::kLossScale]);
  if (!blamed) {
    found.text +=
        " In a second pass over the same micro-batches, with the weights as they are now, all is finite.";
    take_rows(found, run.task, first, {});
  }
  c10::NoGradGuard no_grad;
  judge_rate(found, run, sums.step);
  return found;
}

std::vector<WorstRow> worst_rows(const DiagnosedRun& run, int64_t step) {
  c10::NoGradGuard no_grad;
  std::vector<WorstRow> rows;
  for (int64_t i = 0; i < run.train.accumulate; ++i) {
    const int64_t micro_batch = (step - 1) * run.train.accumulate + i;
    const Staged staged = run.staging.again(micro_batch);
    const auto parts = staged.layout.parts(staged.buffer.to(run.device));
    const BatchLoss loss =
        run.task.loss(parts, parts[Staged::kNumbers][StepNumbers::kLossWeight], /*metrics=*/true);
    const int64_t B = loss.sources_B.size(0);
    const auto by_row = [&](const at::Tensor& values) {
      return values.view({B, -1}).sum(1, /*keepdim=*/false, at::kDouble).to(at::kCPU);
    };
    const at::Tensor sums = by_row(loss.losses), tokens = by_row(loss.counted);
    const auto origins = run.task.origins(micro_batch);
    for (int64_t row = 0; row < std::min<int64_t>(B, std::ssize(origins)); ++row)
      if (const double count = tokens[row].item<double>(); count > 0)
        rows.push_back({sums[row].item<double>() / count, origins[row]});
  }
  return keep_worst(std::move(rows));
}

std::vector<std::string> worst_of_all(const std::vector<WorstRow>& own, Processes& processes) {
  using Handler = nlohmann::json::error_handler_t;  // paths need not be UTF-8
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [loss, origin] : own) list.push_back({fmt::format("{}", loss), origin});  // also infinity
  std::vector<WorstRow> rows;
  for (const auto& text : processes.gather(list.dump(-1, ' ', /*ensure_ascii=*/false, Handler::replace)))
    for (const auto& one : nlohmann::json::parse(text))
      rows.push_back({std::strtod(one[0].get<std::string>().c_str(), nullptr), one[1].get<std::string>()});
  std::vector<std::string> texts;
  for (const auto& [loss, origin] : keep_worst(std::move(rows)))
    texts.push_back(fmt::format("{} (loss {:.3g})", origin, loss));
  return texts;
}

}  // namespace tightloop
