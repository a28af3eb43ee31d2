// What is no regular file: refused where it is read more than once, read as a stream elsewhere, never waited
// for.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "core/files.h"
#include "data/byte_tokenizer.h"
#include "data/dataset.h"
#include "data/read/line_reader.h"
#include "data/store/prepare.h"
#include "support.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;

std::string fifo(const TempFolder& folder, const std::string& name = "pipe") {
  EXPECT_EQ(::mkfifo((folder / name).c_str(), 0600), 0);
  return (folder / name).string();
}

// A test that would wait for ever ends here.
class Pipes : public ::testing::Test {
 protected:
  void SetUp() override { ::alarm(60); }
  void TearDown() override { ::alarm(0); }
};

TEST_F(Pipes, AsDataAreRefusedAtOnce) {
  const TempFolder folder;
  const std::string pipe = fifo(folder);
  std::ofstream(folder / "good.txt") << "some text\n\nmore text\n";
  const testing::ByteTokenizer tokenizer;
  const auto start = std::chrono::steady_clock::now();
  for (const auto source : {DataSource::kText, DataSource::kJsonl, DataSource::kPairs, DataSource::kShards})
    for (const auto when : {TokenizeWhen::kStart, TokenizeWhen::kLive})
      for (const bool val : {false, true}) {
        DataConfig data;
        data.source = source, data.tokenize = when;
        data.train = {val && data.source == DataSource::kText ? (folder / "good.txt").string() : pipe};
        if (val) data.val = {pipe};
        const auto message =
            error_of(ExitCode::kData, [&] { load_dataset(data, {}, tokenizer, {}, nullptr, folder.path()); });
        EXPECT_NE(message.find("is a pipe"), std::string::npos) << message;
      }
  DataConfig data;
  for (const char* device : {"/dev/zero", "/dev/null", "/dev/urandom"}) {
    data.train = {device};
    const auto message = error_of(ExitCode::kData, [&] { load_dataset(data, {}, tokenizer); });
    EXPECT_NE(message.find("is a device"), std::string::npos) << message;
  }
  data.train = {folder.path().string()};
  EXPECT_NE(error_of(ExitCode::kData, [&] { load_dataset(data, {}, tokenizer); }).find("is a folder"),
            std::string::npos);
  data.train = {"-"};
  EXPECT_NE(error_of(ExitCode::kData, [&] { load_dataset(data, {}, tokenizer); }).find("no file '-'"),
            std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_F(Pipes, WithoutAWriterAreASentence) {
  const TempFolder folder;
  const std::string pipe = fifo(folder, "tokenizer.json");
  const auto starts = [](const std::string& message) {
    EXPECT_NE(message.find("no program writes to it"), std::string::npos) << message;
  };
  starts(error_of(ExitCode::kData, [&] { LineReader(pipe, 100); }));
  starts(error_of(ExitCode::kData, [&] { read_file(pipe); }));
  starts(error_of(ExitCode::kData, [&] { load_tokenizer(pipe); }));
  EXPECT_NE(error_of(ExitCode::kData, [&] { MappedFile file(pipe); }).find("is a pipe"), std::string::npos);
}

TEST_F(Pipes, AreReadFromTheirFirstByteToTheirLast) {
  const TempFolder folder;
  const std::string pipe = fifo(folder);
  std::string text;
  for (int i = 0; i < 50000; ++i) text += "line " + std::to_string(i) + "\n";
  // The writer comes late, and in two parts.
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::ofstream out(pipe);
    out << text.substr(0, 2) << std::flush;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    out << text.substr(2);
  });
  const auto lines = read_lines(pipe);
  writer.join();
  ASSERT_EQ(lines.size(), 50000u);
  EXPECT_EQ(lines.front(), "line 0");
  EXPECT_EQ(lines.back(), "line 49999");
  std::thread again([&] { std::ofstream(pipe) << text; });
  const std::string all = read_file(pipe);
  again.join();
  EXPECT_EQ(all, text);
}

TEST(CutFiles, AMapOfAFileThatWasCutEndsInASentence) {
  const TempFolder folder;
  std::ofstream(folder / "a.shard") << std::string(1 << 16, 'x');
  EXPECT_EXIT(
      {
        MappedFile moved(folder / "a.shard");
        const MappedFile file(std::move(moved));
        fs::resize_file(folder / "a.shard", 10);
        std::exit(file.text()[60000] == 'x');
      },
      ::testing::ExitedWithCode(3), "a.shard' became shorter while it was read");
}

TEST_F(Pipes, DevicesAndSocketsAreASentence) {
  const TempFolder folder;
  for (const char* device : {"/dev/zero", "/dev/urandom"})
    EXPECT_NE(error_of(ExitCode::kData, [&] { LineReader(device, 100); }).find("is a device"),
              std::string::npos);
  EXPECT_NE(error_of(ExitCode::kData, [&] { LineReader(folder.path(), 100); }).find("is a folder"),
            std::string::npos);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (folder / "socket").string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_NE(error_of(ExitCode::kData, [&] { LineReader(folder / "socket", 100); }).find("is a socket"),
            std::string::npos);
  ::close(listener);
}

}  // namespace
}  // namespace tightloop
