// The plug-in's device services, through core's interface. Nothing here runs without a GPU.

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <torch/cuda.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "core/plugin.h"
#include "support.h"

namespace tightloop::testing {
namespace {

class CudaDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(CudaDevice, ComesFromThePlugin) {
  EXPECT_TRUE(load_cuda_plugin().loaded) << load_cuda_plugin().reason;
  Device& gpu = device("auto");
  EXPECT_EQ(gpu.name(), "cuda:0");
  EXPECT_EQ(&gpu, &device("cuda"));
  EXPECT_EQ(&gpu, &device("cuda:0"));
  EXPECT_NE(gpu.description().find("cuda:0 "), std::string::npos);
  EXPECT_NE(gpu.versions().find("driver"), std::string::npos) << gpu.versions();
  EXPECT_GT(gpu.total_memory(), gpu.free_memory());
  EXPECT_GT(gpu.free_memory(), 0);
}

TEST_F(CudaDevice, CountsTheAllocatorsPeak) {
  Device& gpu = device("cuda");
  gpu.reset_peak_memory();
  const int64_t before = gpu.memory_stats().allocated;
  constexpr int64_t kBytes = 64 << 20;
  { const at::Tensor big = at::empty({kBytes}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA)); }
  EXPECT_GE(gpu.memory_stats().allocated_peak, before + kBytes);
  EXPECT_EQ(gpu.memory_stats().allocated, before);
  EXPECT_GE(gpu.memory_stats().reserved_peak, kBytes);
  gpu.reset_peak_memory();
  EXPECT_EQ(gpu.memory_stats().allocated_peak, before);
}

TEST_F(CudaDevice, PinsHostMemory) {
  HostBuffer buffer(device("cuda"), 4096);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  at::Tensor host = at::from_blob(buffer.data(), {1024}, at::kFloat);
  EXPECT_TRUE(host.is_pinned());
  host.fill_(2.5);
  const at::Tensor there = host.to(at::kCUDA, at::kFloat, /*non_blocking=*/true);
  device("cuda").synchronize();
  EXPECT_EQ(there.sum().item<float>(), 2560.0f);
}

TEST_F(CudaDevice, ReplaysForwardAndBackward) {
  Device& gpu = device("cuda");
  const auto options = at::TensorOptions(at::kFloat).device(at::kCUDA);
  at::Tensor weight = at::full({64, 64}, 0.5, options).requires_grad_(),
             input = at::full({8, 64}, 1.0, options);
  at::Tensor total = at::full({}, 0.0, options);
  const auto work = [&] {
    weight.mutable_grad().reset();
    const auto loss = at::matmul(input, weight).pow(2).sum();
    loss.backward();
    total.add_(loss.detach());
  };
  work();
  const double once = total.item<double>();
  const auto graph = gpu.capture(work);
  ASSERT_TRUE(graph);
  EXPECT_EQ(total.item<double>(), once) << "a capture runs nothing";
  const at::Tensor gradient = weight.grad();
  input.fill_(2.0);  // the graph reads what is there when it runs
  for (int i = 0; i < 3; ++i) graph->replay();
  EXPECT_EQ(total.item<double>(), once * 13);
  EXPECT_EQ(gradient[0][0].item<double>(), 2.0 * 8 * 2.0 * 64.0);
}

TEST_F(CudaDevice, WhatCannotBeCapturedSaysSoAndLeavesTheDeviceUsable) {
  Device& gpu = device("cuda");
  const at::Tensor x = at::full({4}, 1.0, at::TensorOptions(at::kFloat).device(at::kCUDA));
  EXPECT_ANY_THROW(gpu.capture([&] { x.sum().item<float>(); }));
  EXPECT_EQ(x.sum().item<float>(), 4.0f);
}

// A server has a thread for each model. What one thread's graph has left may be read after those of another
// have run again.
TEST_F(CudaDevice, GraphsOfSeveralThreadsShareNoMemory) {
  Device& gpu = device("cuda");
  const at::Tensor x = at::full({1 << 20}, 1.0, at::TensorOptions(at::kFloat).device(at::kCUDA));
  std::unique_ptr<Graph> other;
  std::thread([&] {
    const auto work = [&] { (x + 7).mul(2).add(1); };
    work();
    other = gpu.capture(work);
  }).join();
  at::Tensor left;
  const auto work = [&] { left = x * 3; };
  work();
  const auto own = gpu.capture(work);
  own->replay();
  other->replay();
  EXPECT_EQ(left.min().item<float>(), 3);
  EXPECT_EQ(left.max().item<float>(), 3);
}

TEST_F(CudaDevice, SeveralThreadsCaptureAtTheSameTime) {
  Device& gpu = device("cuda");
  std::atomic<int> right = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&gpu, &right, i] {
      for (int round = 0; round < 10; ++round) {
        at::Tensor x = at::full({64}, i, at::TensorOptions(at::kFloat).device(at::kCUDA));
        const auto work = [&] { x.add_(1); };
        work();
        const auto graph = gpu.capture(work);
        graph->replay();
        right += x.sum().item<float>() == static_cast<float>(64 * (i + 2));
      }
    });
  threads.clear();
  EXPECT_EQ(right, 40);
}

TEST_F(CudaDevice, HiddenSyncsCanBeForbidden) {
  Device& gpu = device("cuda");
  const at::Tensor x = at::full({4}, 1.0, at::TensorOptions(at::kFloat).device(at::kCUDA));
  gpu.forbid_syncs(true);
  EXPECT_ANY_THROW(x.sum().item<float>());
  gpu.forbid_syncs(false);
  EXPECT_EQ(x.sum().item<float>(), 4.0f);
}

TEST_F(CudaDevice, MeasuresCopies) {
  const CopySpeed speed = device("cuda").measure_copies(size_t{32} << 20);
  for (const double rate : {speed.pinned_to_device, speed.pinned_from_device, speed.pageable_to_device,
                            speed.pageable_from_device}) {
    EXPECT_GT(rate, 1e8);
    EXPECT_LT(rate, 1e13);
  }
}

}  // namespace
}  // namespace tightloop::testing
