#include "bench/kernel_table.h"

#include <cmath>
#include <map>
#include <sstream>

#include "support.h"

namespace tightloop {
namespace {

TEST(ShortKernelName, TellsElementwiseFunctorsApart) {
  const auto plain = [](const std::string& functor) {
    return short_kernel_name("void at::native::vectorized_elementwise_kernel<4, " + functor +
                             ", std::array<char*, 3ul> >(int, " + functor + ", std::array<char*, 3ul>)");
  };
  EXPECT_EQ(plain("at::native::CUDAFunctor_add<c10::BFloat16>"), "elementwise: CUDAFunctor_add<bf16>");
  EXPECT_EQ(plain("at::native::CUDAFunctor_add<float>"), "elementwise: CUDAFunctor_add<fp32>");
  EXPECT_EQ(plain("at::native::FillFunctor<long>"), "elementwise: FillFunctor<int64>");
  EXPECT_EQ(plain("at::native::BinaryFunctor<c10::Half, c10::Half, c10::Half, "
                  "at::native::binary_internal::MulFunctor<float> >"),
            "elementwise: MulFunctor<fp32>");
  EXPECT_EQ(plain("at::native::AUnaryFunctor<double, double, double, "
                  "at::native::binary_internal::MulFunctor<double> >"),
            "elementwise: MulFunctor<fp64>");
  EXPECT_EQ(
      plain("at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}"
            "::operator()() const::{lambda()#4}::operator()() const::{lambda(c10::BFloat16)#1}"),
      "elementwise: GeluCUDAKernelImpl<bf16>");
  EXPECT_EQ(plain("__nv_hdl_wrapper_t<false, true, false, __nv_dl_tag<void (*)(at::TensorIteratorBase&), "
                  "&at::native::asinh_kernel_cuda, 7u>, c10::BFloat16 (c10::BFloat16)>"),
            "elementwise: asinh_kernel_cuda<bf16>");
}

TEST(ShortKernelName, LooksThroughLambdasOfLambdas) {
  const std::string copy =
      "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() "
      "const::{lambda()#7}::operator()() const::{lambda(float)#1}";
  const std::string strided = "at::native::gpu_kernel_impl_nocast<" + copy + ">(at::TensorIteratorBase&, " +
                              copy + " const&)::{lambda(int)#1}";
  EXPECT_EQ(
      short_kernel_name("void at::native::elementwise_kernel<128, 2, " + strided + ">(int, " + strided + ")"),
      "elementwise: direct_copy_kernel_cuda<fp32>");
  EXPECT_EQ(
      short_kernel_name("void at::native::unrolled_elementwise_kernel<" + copy +
                        ", std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>, "
                        "TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<1>, "
                        "at::native::memory::StoreWithCast<1> >(int, " +
                        copy + ", std::array<char*, 2ul>)"),
      "elementwise: direct_copy_kernel_cuda<fp32>");
  EXPECT_EQ(short_kernel_name(
                "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::"
                "index_kernel_impl<at::native::OpaqueType<4> >(at::TensorIteratorBase&, c10::ArrayRef<long>, "
                "c10::ArrayRef<long>)::{lambda(char*, char const*, long)#1}>(at::TensorIteratorBase&)"
                "::{lambda(int)#1}>(long, int)"),
            "elementwise: index_kernel_impl<int64>");
}

TEST(ShortKernelName, KeepsTheFunctorsOfReductionsAndLists) {
  EXPECT_EQ(short_kernel_name(
                "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, "
                "at::native::func_wrapper_t<c10::BFloat16, at::native::sum_functor<c10::BFloat16, float, "
                "c10::BFloat16>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int, "
                "c10::BFloat16, 4, 4> >(at::native::ReduceOp<c10::BFloat16, int>)"),
            "reduce: sum_functor<bf16>");
  EXPECT_EQ(
      short_kernel_name(
          "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
          "namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::"
          "FusedAdamMathFunctor<float, 4, (at::native::(anonymous namespace)::ADAM_MODE)1, false>, float "
          "const*, double, double>(at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>)"),
      "multi_tensor_apply: FusedAdamMathFunctor<fp32>");
  EXPECT_EQ(short_kernel_name(
                "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
                "namespace)::TensorListMetadata<1>, at::native::(anonymous namespace)::BinaryOpScalarFunctor<"
                "float, 1, 1, 0>, std::multiplies<float>, float>(at::native::(anonymous namespace)::"
                "TensorListMetadata<1>, std::multiplies<float>, float)"),
            "multi_tensor_apply: BinaryOpScalarFunctor<fp32> multiplies");
}

TEST(ShortKernelName, KeepsTheNamesOfLibraries) {
  for (const std::string same : {"nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN",
                                 "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_"
                                 "warpgroupsize1x1x1_execute_segment_k_off_"
                                 "kernel__5x_cublas",
                                 "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_"
                                 "64x128x128_4x1x1_cga1x1x1_kernel0_0",
                                 "Memcpy HtoD (Pinned -> Device)", "Memset (Device)"})
    EXPECT_EQ(short_kernel_name(same), same);
  EXPECT_EQ(short_kernel_name("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
  EXPECT_EQ(
      short_kernel_name("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_64x3_"
                        "nn_align8>(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_64x3_nn_align8::"
                        "Params)"),
      "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_64x3_nn_align8");
  EXPECT_EQ(
      short_kernel_name("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<pytorch_flash::"
                        "Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4, 4, false, false, cutlass::"
                        "bfloat16_t, pytorch_flash::Flash_kernel_traits<64, 128, 128, 8, cutlass::"
                        "bfloat16_t> >, false, true>(pytorch_flash::Flash_bwd_params)"),
      "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<bf16>");
  EXPECT_EQ(
      short_kernel_name("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::"
                        "CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>, cute::C<1> >, 64, cutlass::"
                        "bfloat16_t, float> > > >(flash::FlashAttnFwdSm90<int>::Params)"),
      "FlashAttnFwdSm90<bf16>");
  EXPECT_EQ(
      short_kernel_name("void splitKreduce_kernel<32, 16, int, __nv_bfloat16, __nv_bfloat16, float, "
                        "__nv_bfloat16, true, false, false>(cublasSplitKParams<__nv_bfloat16>, float*)"),
      "splitKreduce_kernel<bf16>");
  EXPECT_EQ(short_kernel_name("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, "
                              "float, float, float, false, true, 7>(cublasGemvParamsEx<int>)"),
            "gemvx::kernel<fp32>");
}

TEST(ShortKernelName, OfOtherKernels) {
  EXPECT_EQ(short_kernel_name("void tightloop::(anonymous namespace)::rms_norm_forward<__nv_bfloat16, 4>("
                              "__nv_bfloat16 const*, float*, long)"),
            "rms_norm_forward<bf16>");
  EXPECT_EQ(short_kernel_name("tightloop::stamp(double*, int)"), "stamp");
  EXPECT_EQ(short_kernel_name("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, "
                              "float, false>(int, float, float const*)"),
            "vectorized_layer_norm_kernel<fp32>");
  const auto softmax = [](const std::string& epilogue) {
    return short_kernel_name(
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, "
        "float, c10::BFloat16, at::native::(anonymous namespace)::" +
        epilogue + ">(c10::BFloat16*, int)");
  };
  EXPECT_EQ(softmax("SoftMaxForwardEpilogue"), "cunn_SoftMaxForward: SoftMaxForwardEpilogue<bf16>");
  EXPECT_NE(softmax("SoftMaxForwardEpilogue"), softmax("LogSoftMaxForwardEpilogue"));
}

TEST(ShortKernelName, SurvivesWhatIsNoName) {
  for (const std::string odd : {"", "(", "<", ">>>", "void ", "a<", "::", "kernel", "kernel<float>", "<()>{"})
    EXPECT_NO_THROW(short_kernel_name(odd)) << odd;
  EXPECT_EQ(short_kernel_name("a<b<c"), "a: b");
}

TEST(KernelTable, AddsUpByNameLargestFirst) {
  // Two streams: the copy runs beside b, and nothing runs between 6 and 8 ms.
  const auto table = kernel_table({{"a", 0, 1'000'000, 1},
                                   {"b", 1'000'000, 5'000'000, 1},
                                   {"copy", 4'000'000, 6'000'000, 2},
                                   {"a", 8'000'000, 10'000'000, 1},
                                   {"nothing", 9'000'000, 9'000'000, 1}},
                                  /*nested=*/false);
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[0].name, "b");
  EXPECT_EQ(table.rows[1].name, "a");
  EXPECT_EQ(table.rows[1].count, 2);
  EXPECT_DOUBLE_EQ(table.rows[1].ms, 3);
  EXPECT_DOUBLE_EQ(table.rows[2].ms, 2);
  EXPECT_DOUBLE_EQ(table.busy_ms, 8);
  EXPECT_DOUBLE_EQ(table.span_ms, 10);
  EXPECT_DOUBLE_EQ(table.busy(), 0.8);
  EXPECT_EQ(kernel_table({}, false).busy(), 0);
}

TEST(KernelTable, AnOperatorIsToldWithoutWhatItCalls) {
  // linear calls t and addmm, addmm calls copy_; another thread's mm lies within linear's time.
  const auto table = kernel_table({{"mm", 100, 900, 2},
                                   {"copy_", 300, 400, 1},
                                   {"linear", 0, 1000, 1},
                                   {"t", 0, 50, 1},
                                   {"addmm", 100, 900, 1},
                                   {"copy_", 1000, 1100, 1}},
                                  /*nested=*/true);
  std::map<std::string, int64_t> own;
  for (const auto& row : table.rows) own[row.name] = std::llround(row.ms * 1e6);
  EXPECT_EQ(own, (std::map<std::string, int64_t>{
                     {"linear", 150}, {"t", 50}, {"addmm", 700}, {"copy_", 200}, {"mm", 800}}));
  EXPECT_EQ(table.rows.front().name, "mm");
  EXPECT_EQ(std::llround(table.span_ms * 1e6), 1100);
}

TEST(KernelTable, TextIsForAStepAndEndsWithTheRest) {
  std::vector<KernelSpan> spans;
  for (int64_t kind = 0; kind < 30; ++kind)
    for (int64_t i = 0; i < 4; ++i)
      spans.push_back({"k" + std::to_string(kind), 0, (30 - kind) * 1'000'000, 1});
  const auto text = table_text(kernel_table(spans, false), /*steps=*/2, "kernel");
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 1u + 25 + 1 + 1) << text;
  EXPECT_EQ(lines[0], "   a step         ms   share   us each  kernel");
  EXPECT_EQ(lines[1], "        2     60.000    6.5%   30000.0  k0");
  EXPECT_EQ(lines[26], "       10     30.000    3.2%    3000.0  (5 others)");
  EXPECT_EQ(lines[27], "60 kernels a step, busy 15.000 ms of 15.000 ms");
  EXPECT_EQ(table_text({}, 3, "operator").find("others"), std::string::npos);
}

}  // namespace
}  // namespace tightloop
