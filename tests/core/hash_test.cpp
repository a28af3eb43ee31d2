#include "core/hash.h"

#include <csignal>

#include "core/interrupt.h"
#include "core/terminal/progress_line.h"
#include "support.h"

namespace tightloop {
namespace {

TEST(Hash, IsXxh3) {
  // Published values of XXH3_64bits for the empty input and of the reference program for "a".
  EXPECT_EQ(hex64(hash64("", 0)), "2d06800538d394c2");
  EXPECT_EQ(hex64(hash64("a")), "e6c632b61e964e1f");
}

TEST(Hash, PiecesGiveWhatTheWholeGives) {
  std::string bytes(100'000, 'x');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 % 251);
  for (const size_t piece : {1u, 7u, 1024u, 99'999u}) {
    Hasher hasher;
    for (size_t at = 0; at < bytes.size(); at += piece)
      hasher.update(bytes.data() + at, std::min(piece, bytes.size() - at));
    EXPECT_EQ(hasher.digest(), hash64(bytes)) << piece;
  }
  EXPECT_NE(hash64(bytes, 1), hash64(bytes, 2));
}

TEST(Hash, AnInterruptThatIsHeldDoesNotEndIt) {
  catch_interrupts();
  ::raise(SIGINT);
  const std::string bytes(100, 'x');
  ProgressLine progress("", bytes.size());
  {
    const InterruptsHeld held;
    EXPECT_EQ(hash64(bytes, progress), hash64(bytes));
    EXPECT_TRUE(interrupted());
  }
  testing::error_of(ExitCode::kInterrupted, [&] { hash64(bytes, progress); });
  clear_interrupt();
}

TEST(Hash, Crc32cIsThatOfTheStandard) {
  // RFC 3720, B.4, and the check value of the catalogue of CRCs.
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  std::string ascending;
  for (char byte = 0; byte < 32; ++byte) ascending += byte;
  EXPECT_EQ(crc32c(ascending), 0x46DD794Eu);
}

}  // namespace
}  // namespace tightloop
