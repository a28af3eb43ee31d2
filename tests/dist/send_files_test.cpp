#include "dist/send_files.h"

#include "core/random.h"
#include "dist/several.h"

namespace tightloop::testing {
namespace {

std::string noise(size_t bytes, uint64_t seed) {
  Random random(seed);
  std::string text(bytes, '\0');
  for (char& byte : text) byte = static_cast<char>(random.below(256));
  return text;
}

TEST(SendFiles, ComeToThoseThatWantThem) {
  if (!in_child()) return expect_success(3);
  const fs::path own = fs::path(std::getenv("TIGHTLOOP_TEST_FOLDER")) / std::getenv("RANK");
  fs::create_directories(own);
  const std::map<std::string, std::string> files{
      {"one", "a text\n"},
      {"folder/empty", ""},
      {"folder/below/large", noise((16 << 20) + 7, 1)},  // more than a piece
      {"folder/exact", noise(16 << 20, 2)}};
  Processes processes;
  if (processes.main()) {
    for (const auto& [name, bytes] : files) {
      fs::create_directories((own / name).parent_path());
      write_file(own / name, bytes);
    }
    write_file(own / "not asked for", "x");
  }
  send_files(processes, own, {"one", "folder", "nothing"}, /*wanted=*/processes.rank() == 1);
  if (processes.rank() == 1) {
    for (const auto& [name, bytes] : files) EXPECT_TRUE(read_file(own / name) == bytes) << name;
    EXPECT_FALSE(fs::exists(own / "not asked for"));
  }
  if (processes.rank() == 2) {
    EXPECT_TRUE(fs::is_empty(own));
  }
}

}  // namespace
}  // namespace tightloop::testing
