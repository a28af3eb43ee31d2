#include "ops/attention/cudnn_plan.h"

#include <cudnn_frontend.h>

#include <stdexcept>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tightloop::cuda {

namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;

int64_t uid(CudnnTensor tensor) { return static_cast<int64_t>(tensor); }

class Plan : public CudnnPlan {
 public:
  Plan(std::shared_ptr<Graph> graph, std::vector<CudnnTensor> used, int64_t workspace)
      : graph_(std::move(graph)), used_(std::move(used)), workspace_(workspace) {}
  int64_t workspace() const override { return workspace_; }
  void run(cudnnContext* handle, CudnnMemory memory, void* workspace) const override {
    std::unordered_map<int64_t, void*> pointers;
    for (const CudnnTensor tensor : used_) pointers[uid(tensor)] = memory[static_cast<size_t>(tensor)];
    if (auto status = graph_->execute(handle, pointers, workspace); status.is_bad())
      throw std::runtime_error("cuDNN attention failed: " + status.get_message());
  }

 private:
  std::shared_ptr<Graph> graph_;
  std::vector<CudnnTensor> used_;
  const int64_t workspace_;
};

/// A graph of one operation and the tensors that were named in it.
class Builder {
 public:
  explicit Builder(const CudnnProblem& problem) : problem_(problem), graph_(std::make_shared<Graph>()) {
    const auto dtype = problem.bfloat16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
    graph_->set_io_data_type(dtype)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  void forward() {
    const auto [q, k, v] = inputs();
    auto options = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
    describe(options);
    auto [y, stats] = graph_->sdpa(q, k, v, options);
    output(y, CudnnTensor::kY, CudnnTensor::kBeginY, problem_.H, problem_.T, problem_.y);
    shape_stats(stats->set_output(true));
  }

  void backward() {
    const auto [q, k, v] = inputs();
    const auto y = heads(CudnnTensor::kY, CudnnTensor::kBeginY, problem_.H, problem_.T, problem_.y);
    const auto dy = heads(CudnnTensor::kDy, CudnnTensor::kBeginDy, problem_.H, problem_.T, problem_.dy);
    Tensor_attributes stats;
    const auto stats_in = graph_->tensor(shape_stats(stats));
    auto options = fe::graph::SDPA_backward_attributes().set_name("attention_backward");
    options.set_deterministic_algorithm(problem_.deterministic);
    if (problem_.ragged)
      options.set_max_total_seq_len_q(problem_.tokens).set_max_total_seq_len_kv(problem_.tokens);
    describe(options);
    auto [dq, dk, dv] = graph_->sdpa_backward(q, k, v, y, dy, stats_in, options);
    output(dq, CudnnTensor::kDq, CudnnTensor::kBeginDq, problem_.H, problem_.T, problem_.dq);
    output(dk, CudnnTensor::kDk, CudnnTensor::kBeginDk, problem_.K, problem_.P, problem_.dk);
    output(dv, CudnnTensor::kDv, CudnnTensor::kBeginDv, problem_.K, problem_.P, problem_.dv);
  }

  std::unique_ptr<CudnnPlan> build(cudnnContext* handle, std::string& why) {
    int64_t workspace = 0;
    auto status = graph_->build(handle, {fe::HeurMode_t::A});
    if (status.is_good()) status = graph_->get_workspace_size(workspace);
    if (status.is_good()) return std::make_unique<Plan>(graph_, used_, workspace);
    why = status.get_message();
    return nullptr;
  }

 private:
  Tensor_attributes named(CudnnTensor which) {
    used_.push_back(which);
    Tensor_attributes tensor;
    tensor.set_uid(uid(which));
    return tensor;
  }

  /// One number a batch (`extra`: and the end of the last), on the device.
  Tensor numbers(CudnnTensor which, int64_t count, fe::DataType_t dtype = fe::DataType_t::INT32) {
    for (const auto& [held, tensor] : numbers_)
      if (held == which) return tensor;
    auto tensor =
        graph_->tensor(named(which).set_dim({count, 1, 1, 1}).set_stride({1, 1, 1, 1}).set_data_type(dtype));
    return numbers_.emplace_back(which, tensor).second;
  }

  void shape(Tensor_attributes& tensor, CudnnTensor begins, int64_t H, int64_t T,
             const HeadStrides& strides) {
    tensor.set_dim({problem_.B, H, T, problem_.S})
        .set_stride({problem_.ragged ? strides.time * T : strides.batch, strides.head, strides.time, 1});
    if (problem_.ragged) tensor.set_ragged_offset(numbers(begins, problem_.B + 1));
  }

  Tensor heads(CudnnTensor which, CudnnTensor begins, int64_t H, int64_t T, const HeadStrides& strides) {
    auto tensor = named(which);
    shape(tensor, begins, H, T, strides);
    return graph_->tensor(tensor);
  }

  void output(const Tensor& tensor, CudnnTensor which, CudnnTensor begins, int64_t H, int64_t T,
              const HeadStrides& strides) {
    used_.push_back(which);
    tensor->set_output(true).set_uid(uid(which));
    shape(*tensor, begins, H, T, strides);
  }

  Tensor_attributes& shape_stats(Tensor_attributes& stats) {
    used_.push_back(CudnnTensor::kStats);
    const int64_t H = problem_.H, T = problem_.T;
    stats.set_uid(uid(CudnnTensor::kStats))
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({problem_.B, H, T, 1});
    if (!problem_.ragged) return stats.set_stride({H * T, T, 1, 1});
    return stats.set_stride({H * T, 1, H, 1})
        .set_ragged_offset(numbers(CudnnTensor::kBeginStats, problem_.B + 1));
  }

  std::tuple<Tensor, Tensor, Tensor> inputs() {
    return {heads(CudnnTensor::kQ, CudnnTensor::kBeginQ, problem_.H, problem_.T, problem_.q),
            heads(CudnnTensor::kK, CudnnTensor::kBeginK, problem_.K, problem_.P, problem_.k),
            heads(CudnnTensor::kV, CudnnTensor::kBeginV, problem_.K, problem_.P, problem_.v)};
  }

  template <class Options>
  void describe(Options& options) {
    options.set_attn_scale(problem_.scale);
    if (problem_.causal) options.set_causal_mask(true);
    if (problem_.window > 0)  // cuDNN counts the query's own position
      options.set_sliding_window_length(static_cast<int>(problem_.window + 1));
    if (problem_.ragged) {
      const auto lengths = numbers(CudnnTensor::kLengths, problem_.B);
      options.set_padding_mask(true).set_seq_len_q(lengths).set_seq_len_kv(lengths);
    }
    if (problem_.dropout > 0)
      options.set_dropout(problem_.dropout, numbers(CudnnTensor::kSeed, 1, fe::DataType_t::INT64),
                          numbers(CudnnTensor::kOffset, 1, fe::DataType_t::INT64));
  }

  const CudnnProblem& problem_;
  std::shared_ptr<Graph> graph_;
  std::vector<CudnnTensor> used_;
  std::vector<std::pair<CudnnTensor, Tensor>> numbers_;
};

}  // namespace

std::unique_ptr<CudnnPlan> make_cudnn_plan(cudnnContext* handle, const CudnnProblem& problem,
                                           std::string& why) {
  Builder builder(problem);
  problem.backward ? builder.backward() : builder.forward();
  return builder.build(handle, why);
}

}  // namespace tightloop::cuda
