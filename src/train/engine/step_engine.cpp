#include "train/engine/step_engine.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <optional>

#include "core/error.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "ops/pointwise/stamp.h"
#include "ops/side_gradients.h"
#include "train/engine/feed.h"
#include "train/engine/step_numbers.h"
#include "train/guard/spike_filter.h"
#include "train/report/flop_counter.h"

namespace tightloop {

namespace {

/// Hidden syncs of torch are errors while this lives.
class SyncsForbidden {
 public:
  SyncsForbidden(Device& device, bool on) : device_(device), on_(on) {
    if (on_) device_.forbid_syncs(true);
  }
  ~SyncsForbidden() {
    if (on_) device_.forbid_syncs(false);
  }

 private:
  Device& device_;
  bool on_;
};

// Autograd's own thread gets its CUDA context with the first kernel that it launches. Without one, the first
// product of the first backward pass makes cuBLAS warn that there is no context.
void start_autograd(const at::TensorOptions& options) {
  const at::Tensor one = at::ones({}, options).set_requires_grad(true);
  (one * one).backward();
}

}  // namespace

StepEngine::StepEngine(Device& device, Optimizer& optimizer, LossBuffer& buffer, Objective objective,
                       Processes& processes, const EngineOptions& options)
    : device_(device),
      optimizer_(optimizer),
      buffer_(buffer),
      objective_(std::move(objective)),
      processes_(processes),
      options_(options),
      apart_(options.graphs && device.is_cuda() && processes.several() && !processes.capturable()) {
  options_.graphs = options_.graphs && device.is_cuda() && !(apart_ && !optimizer.exchanges_after_replay());
  const int64_t sources = buffer.by_source().size(1);
  source_numbers_ = at::arange(sources, buffer.row().options().dtype(at::kLong)).unsqueeze(1);
  if (device.is_cuda()) start_autograd(buffer.row().options());
  if (options_.time) optimizer_.watch_waits([this](bool begins) { lap_wait(begins); });
  restart_clock();
}

StepEngine::~StepEngine() { optimizer_.watch_waits({}); }

void StepEngine::restart_clock() {
  at::Tensor row = buffer_.row();
  if (options_.time) ops::stamp_(row, LossBuffer::kClock);
}

void StepEngine::lap(LossBuffer::Column part) {
  at::Tensor row = buffer_.row();
  if (options_.time) ops::lap_(row, LossBuffer::kClock, part);
}

void StepEngine::lap_wait(bool begins) {
  if (!at_work_) return;
  c10::NoGradGuard no_grad;
  lap(begins ? *at_work_ : LossBuffer::kCommunication);
}

const Staged& StepEngine::pass(Feed& feed, bool first, bool last, bool metrics, bool by_layer) {
  const Staged& staged = feed.next();
  flops_ = 0;
  {
    const PassKey key{staged.layout, first, last, metrics, by_layer && last && !apart_};
    PassState& state = passes_[key];
    // The first time around, tables are made and libraries start. Metrics add little to that, and running
    // everything once more beside captured graphs would take twice the memory.
    bool& warm = passes_[{staged.layout, first, last, false, false}].warm;
    const SyncsForbidden strict(device_, options_.forbid_syncs && warm);
    lap(LossBuffer::kIdle);
    at::Tensor& buffer = buffers_[staged.layout];
    feed.deliver(buffer);
    lap(LossBuffer::kData);
    if (apart_ && first) begin_weights(/*by_block=*/false);
    if (options_.graphs && !state.graph && warm) try_capture(key, buffer, state);
    if (state.graph) {
      state.graph->replay();
      ++counts_.replayed;
    } else {
      compute_or_retry(key, buffer, warm);
      warm = true;
      ++counts_.eager;
    }
    if (last && apart_) {
      update(key.layout.parts(buffer)[Staged::kNumbers], by_layer);
      lap(LossBuffer::kUpdate);
    }
  }
  feed.prefetch();
  return staged;
}

void StepEngine::compute(const PassKey& key, const at::Tensor& buffer) {
  const auto parts = key.layout.parts(buffer);
  begin_weights(key);
  differentiate(key, parts, options_.overlap && !apart_);
  optimizer_.accumulate({key.first, key.last});
  end_backward();
  if (!key.last || apart_) return;
  update(parts[Staged::kNumbers], key.by_layer);
  lap(LossBuffer::kUpdate);
}

void StepEngine::begin_weights(const PassKey& key) {
  if (key.first && !apart_) begin_weights(options_.overlap && options_.waits_by_block);
}

void StepEngine::begin_weights(bool by_block) {
  at_work_ = LossBuffer::kForward;
  optimizer_.begin_weights(by_block);
}

void StepEngine::end_backward() {
  lap(LossBuffer::kBackward);
  at_work_.reset();
}

void StepEngine::differentiate(const PassKey& key, const std::vector<at::Tensor>& parts, bool overlap) {
  const at::Tensor& numbers = parts[Staged::kNumbers];
  at::Tensor scale = numbers[StepNumbers::kLossWeight];
  at::Tensor balance_weight = numbers[StepNumbers::kBalanceWeight];
  if (const GradScaler* scaler = optimizer_.scaler()) {
    scale = scaler->scale(scale);
    balance_weight = scaler->scale(balance_weight);
  }
  std::optional<FlopCounter> counter;
  if (counting_) counter.emplace();
  at_work_ = LossBuffer::kForward;
  const bool travels = overlap && processes_.several();
  std::optional<ops::SideGradients> side;  // those would be the last to arrive, and travel after backward
  if (!travels) side.emplace(buffer_.row().device());
  const BatchLoss loss = objective_(parts, scale, key.metrics);
  const at::Tensor objective =
      loss.balance.defined() ? loss.objective + loss.balance * balance_weight : loss.objective;
  record(loss, numbers);
  lap(LossBuffer::kForward);
  at_work_ = LossBuffer::kBackward;
  if (travels) optimizer_.begin_gradients({key.first, key.last});
  objective.backward();
  if (side) side->join();
  if (counter) flops_ = counter->count();
}

template <class Work, class Undo>
void StepEngine::retry(Work&& work, Undo&& undo) {
  for (bool again = false;; again = true) {
    std::string reason;
    try {
      return work();
    } catch (const c10::OutOfMemoryError& error) {
      reason = first_line(error.what_without_backtrace());
    }
    if (optimizer_.halfway())
      throw device_error(
          "the device has no memory left in the middle of an update or of its sums ({}): what is in memory "
          "is partly changed, and the run cannot go on. --resume goes on from the last checkpoint; "
          "'tightloop fit RECIPE' says what fits.",
          reason);
    if (again) {
      const auto memory = device_.memory_stats();
      throw device_error(
          "a pass over one micro-batch does not fit: {:.1f} GiB are in use and {:.1f} GiB reserved of {:.1f} "
          "GiB ({}). 'tightloop fit RECIPE' says what fits; a smaller train.micro_batch with more "
          "train.accumulate, model.gradient_checkpointing all and train.fused_head on need less.",
          static_cast<double>(memory.allocated) / (1 << 30), static_cast<double>(memory.reserved) / (1 << 30),
          static_cast<double>(device_.total_memory()) / (1 << 30), reason);
    }
    log::warn("The device has no memory left for a pass; its cache is emptied and the pass tried again.");
    syncs_.count("out_of_memory");
    undo();
    make_room();
    device_.synchronize();
    device_.empty_cache();
  }
}

template <class Work>
void StepEngine::retry_alone(Work&& work) {
  if (processes_.several()) return work();
  retry(work, [] {});
}

// What is added up or updated already is not done twice: each part is tried again by itself.
// Once gradients have begun to travel a pass cannot be made again; so those of the first pass of a kind,
// which is the one to find that memory is short, travel after it.
void StepEngine::compute_or_retry(const PassKey& key, const at::Tensor& buffer, bool warm) {
  const auto parts = key.layout.parts(buffer);
  const at::Tensor before = buffer_.row().clone();
  begin_weights(key);
  retry([&] { differentiate(key, parts, options_.overlap && warm && !apart_); },
        [&] {
          optimizer_.drop_gradients();
          buffer_.row().copy_(before);
        });
  retry_alone([&] { optimizer_.accumulate({key.first, key.last}); });
  end_backward();
  if (!key.last || apart_) return;
  retry_alone([&] { apply_update(parts[Staged::kNumbers], key.by_layer); });
  record_update();
  lap(LossBuffer::kUpdate);
}

bool StepEngine::try_capture(const PassKey& key, const at::Tensor& buffer, PassState& state) {
  syncs_.count("capture");
  device_.forbid_syncs(false);
  for (bool again = true; again && !state.graph;) {
    try {
      state.graph = device_.capture([&] { compute(key, buffer); });
      again = false;  // of a device without graphs there is none
      ++counts_.captured;
    } catch (const std::exception& error) {
      optimizer_.drop_capture();
      again = make_room();
      if (again) continue;
      log::warn("Steps run without CUDA graphs from here on, as this one cannot be captured: {}",
                first_line(error.what()));
      options_.graphs = false;
      // What is captured already goes on: its memory stays its own.
    }
  }
  device_.forbid_syncs(options_.forbid_syncs);
  return state.graph != nullptr;
}

void StepEngine::record(const BatchLoss& loss, const at::Tensor& numbers) {
  c10::NoGradGuard no_grad;
  const at::Tensor& row = buffer_.row();
  row[LossBuffer::kLoss].add_(loss.sum);
  // Tokens and bytes, which are neighbours in both, at once.
  row.narrow(0, LossBuffer::kTokens, 2).add_(numbers.narrow(0, StepNumbers::kTokens, 2));
  row[LossBuffer::kPasses].add_(1);
  if (loss.balance.defined()) row[LossBuffer::kBalance].add_(loss.balance.detach());
  if (loss.expert_loads_LE.defined()) buffer_.expert_loads().add_(loss.expert_loads_LE.flatten());
  if (!loss.correct.defined()) return;
  row[LossBuffer::kCorrect].add_(loss.correct.sum());
  if (source_numbers_.size(0) == 0) return;
  const auto by_row = [&](const at::Tensor& values) {
    return values.view({loss.sources_B.size(0), -1}).sum(1, /*keepdim=*/false, at::kDouble);
  };
  const at::Tensor sums = at::stack({by_row(loss.losses), by_row(loss.counted), by_row(loss.correct)});
  const at::Tensor own = source_numbers_ == loss.sources_B;  // (sources, rows)
  buffer_.by_source().add_((sums.unsqueeze(1) * own).sum(2));
}

void StepEngine::update(const at::Tensor& numbers, bool by_layer) {
  apply_update(numbers, by_layer);
  record_update();
}

void StepEngine::apply_update(const at::Tensor& numbers, bool by_layer) {
  c10::NoGradGuard no_grad;
  if (const GradScaler* scaler = optimizer_.scaler())
    buffer_.column(LossBuffer::kLossScale).copy_(scaler->factor());
  // Adjacent columns, so that they are added up over the processes as one.
  static_assert(LossBuffer::kLoss == 0 && LossBuffer::kTokens == 1);
  const at::Tensor sums = buffer_.row().narrow(0, LossBuffer::kLoss, 2).clone();
  optimizer_.finish_gradients();
  processes_.sum_(sums);
  if (processes_.several()) lap(LossBuffer::kCommunication);
  const at::Tensor loss = sums[0], tokens = sums[1];
  if (options_.spikes) options_.spikes->judge(loss / tokens);
  // Where each micro-batch was divided by its own count, only whether there was anything is left to say.
  const at::Tensor divisor = options_.global ? tokens * numbers[StepNumbers::kUnit]
                                             : (tokens > 0) * static_cast<double>(processes_.world());
  optimizer_.update(numbers, divisor, layer_norms(by_layer),
                    options_.spikes ? options_.spikes->spike() : at::Tensor());
}

void StepEngine::record_update() {
  c10::NoGradGuard no_grad;
  buffer_.column(LossBuffer::kGradNorm).copy_(optimizer_.norm());
  buffer_.column(LossBuffer::kSkipped).copy_(optimizer_.skipped());
  if (!options_.spikes) return;
  options_.spikes->commit();
  const at::Tensor& limit = options_.spikes->limit();
  buffer_.column(LossBuffer::kSpike).copy_(limit.masked_fill(options_.spikes->spike().logical_not(), 0));
}

}  // namespace tightloop
