#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <deque>
#include <memory>
#include <optional>

#include "core/random.h"
#include "ops/loss/cross_entropy.h"
#include "train/engine/feed.h"
#include "train/engine/step_engine.h"
#include "train/engine/step_numbers.h"

namespace tightloop::testing {

/// Ids and targets (B, T) of a micro-batch.
struct Ids {
  at::Tensor inputs, targets;
  int64_t supervised() const { return (targets != ops::kIgnoreIndex).sum().item<int64_t>(); }
};

/// Inputs and targets that are a function of the seed.
inline Ids random_ids(uint64_t seed, int64_t rows, int64_t length, uint64_t vocabulary) {
  Random random(seed);
  Ids ids{at::zeros({rows, length}, at::kLong), at::zeros({rows, length}, at::kLong)};
  for (auto* tensor : {&ids.inputs, &ids.targets})
    for (int64_t i = 0; i < tensor->numel(); ++i)
      tensor->mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(random.below(vocabulary));
  return ids;
}

/// An engine around a language model, fed by hand.
struct EngineFixture {
  LanguageModel& model;
  TrainConfig config;
  Processes processes;
  Optimizer optimizer;
  LossBuffer buffer;
  std::function<bool()> make_room{};
  StepEngine engine;
  std::deque<Staged> waiting;
  Feed feed;

  EngineFixture(LanguageModel& model, const TrainConfig& config, at::ScalarType dtype,
                at::Device device = at::kCPU, int64_t interval = 1000, int64_t sources = 1,
                const std::optional<Rendezvous>& rendezvous = {}, Device* engine_device = nullptr,
                const DistConfig& dist = {})
      : model(model),
        config(config),
        processes(rendezvous),
        optimizer(model.parameters(), config, model.config(), dtype, {&processes, dist}),
        buffer(device, interval, sources,
               model.config().has_experts() ? model.config().experts * model.config().layers : 0,
               static_cast<int64_t>(optimizer.layers().count())),
        engine(engine_device ? *engine_device : tightloop::device(device.is_cpu() ? "cpu" : "cuda"),
               optimizer, buffer,
               [this](const auto& parts, const auto& scale, bool metrics) {
                 return loss_of(this->model, device_batch(parts),
                                {.training = true,
                                 .label_smoothing = this->config.label_smoothing,
                                 .z_loss = this->config.z_loss,
                                 .fused_head = this->config.fused_head,
                                 .scale = scale,
                                 .correct = metrics});
               },
               processes,
               {.graphs = config.graph != AutoSwitch::kOff,
                .time = config.time_parts,
                .global = config.loss_norm == LossNorm::kGlobal,
                .forbid_syncs = config.debug_syncs,
                .make_room = [this] { return make_room && make_room(); }}),
        feed(device,
             [this]() -> std::optional<Staged> {
               if (waiting.empty()) return {};
               Staged staged = std::move(waiting.front());
               waiting.pop_front();
               return staged;
             },
             {}) {}

  void add(const Ids& ids, const Rates& rates = {}, int64_t random = 0) {
    Staged staged;
    const std::vector<int64_t> shape{ids.inputs.size(0), ids.inputs.size(1)};
    staged.layout.add(at::kLong, shape);
    staged.layout.add(at::kLong, shape);
    staged.layout.add(at::kLong, {shape[0]});
    staged.allocate(feed_is_gpu());
    auto parts = staged.parts();
    parts[Staged::kFirst].copy_(ids.inputs);
    parts[Staged::kFirst + 1].copy_(ids.targets);
    parts[Staged::kFirst + 2].zero_();
    staged.set(step_numbers(config, rates, ids.supervised()), random);
    waiting.push_back(std::move(staged));
  }
  /// One micro-batch; with `last`, the update.
  void pass(bool first, bool last, bool metrics = false, bool by_layer = false) {
    engine.pass(feed, first, last, metrics, by_layer);
  }
  /// Adds up gradients of micro-batches and gives them divided, without an update.
  std::vector<at::Tensor> gradients(const std::vector<Ids>& batches) {
    for (const auto& ids : batches) add(ids);
    for (size_t i = 0; i < batches.size(); ++i) pass(i == 0, false);
    const double divisor = config.loss_norm == LossNorm::kGlobal ? sum(LossBuffer::kTokens) : 1;
    std::vector<at::Tensor> result;
    for (const auto& gradient : optimizer.gradients()) result.push_back(gradient / divisor);
    return result;
  }
  double sum(LossBuffer::Column column) const { return buffer.column(column).item<double>(); }
  bool feed_is_gpu() const { return buffer.row().is_cuda(); }
};

}  // namespace tightloop::testing
