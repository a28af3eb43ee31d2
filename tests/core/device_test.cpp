#include "core/device.h"

#include <cstdint>
#include <cstring>

#include "core/plugin.h"
#include "support.h"

namespace tightloop::testing {
namespace {

TEST(Device, CpuIsAlwaysThere) {
  Device& cpu = device("cpu");
  EXPECT_EQ(cpu.name(), "cpu");
  EXPECT_FALSE(cpu.is_cuda());
  EXPECT_GT(cpu.total_memory(), int64_t{1} << 28);
  EXPECT_GT(cpu.free_memory(), 0);
  EXPECT_LE(cpu.free_memory(), cpu.total_memory());
  EXPECT_EQ(&cpu, &device("cpu"));
  EXPECT_EQ(&cpu, &cpu_device());
}

TEST(Device, CachedFilesDoNotFillAControlGroup) {
  const TempFolder folder;
  const auto use = [&] { return control_group_use(folder / "current", folder / "stat"); };
  EXPECT_FALSE(use());
  write_file(folder / "current", "1000\n");
  EXPECT_EQ(use(), 1000);
  write_file(folder / "stat", "anon 300\nfile 700\nactive_file 100\ninactive_file 600\n");
  EXPECT_EQ(use(), 400);
  write_file(folder / "stat", "inactive_file 0\ntotal_inactive_file 900\n");
  EXPECT_EQ(use(), 100);
}

TEST(Device, HostBuffersAreAlignedAndMove) {
  HostBuffer buffer(device("auto"), 1001);
  ASSERT_NE(buffer.data(), nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  std::memset(buffer.data(), 7, buffer.size());
  void* const before = buffer.data();
  HostBuffer other(std::move(buffer));
  EXPECT_EQ(other.data(), before);
  EXPECT_EQ(other.size(), 1001u);
  EXPECT_EQ(buffer.data(), nullptr);
  other = HostBuffer(cpu_device(), 3);
  EXPECT_EQ(other.size(), 3u);
  EXPECT_EQ(HostBuffer(cpu_device(), 0).data(), nullptr);
}

TEST(Device, TooMuchMemoryIsASentence) {
  const auto message = error_of(ExitCode::kDevice, [] { cpu_device().allocate_host(SIZE_MAX / 2); });
  EXPECT_NE(message.find("out of memory"), std::string::npos) << message;
}

TEST(Device, UnknownNamesAreRefused) {
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "CPU"}) {
    const auto message = error_of(ExitCode::kUsage, [&] { device(name); });
    EXPECT_NE(message.find("auto, cpu, cuda or cuda:N"), std::string::npos) << name;
  }
}

TEST(Device, AutoIsTheGpuWhereThereIsOne) {
  EXPECT_EQ(device("auto").is_cuda(), cuda_device_count() > 0);
  EXPECT_EQ(why_no_cuda().empty(), cuda_device_count() > 0);
}

TEST(Device, AskingForAGpuThatIsNotThereSaysWhy) {
  const auto message = error_of(ExitCode::kDevice, [] { device("cuda:999"); });
  EXPECT_NE(message.find("cuda:999"), std::string::npos) << message;
  if (cuda_device_count() == 0) {
    EXPECT_NE(message.find(why_no_cuda()), std::string::npos) << message;
    EXPECT_NE(error_of(ExitCode::kDevice, [] { device("cuda"); }).find("cpu or auto"), std::string::npos);
  }
}

TEST(Plugin, SaysOnceAndForAllWhatCameOfLoading) {
  const PluginState& state = load_cuda_plugin();
  EXPECT_EQ(&state, &load_cuda_plugin());
  EXPECT_EQ(state.loaded, state.reason.empty()) << state.reason;
  if (!state.loaded) {
    EXPECT_EQ(state.reason.back(), '.');
  }
}

TEST(Plugin, KnowsTheProgramsFolder) { EXPECT_TRUE(fs::is_directory(program_folder())); }

}  // namespace
}  // namespace tightloop::testing
