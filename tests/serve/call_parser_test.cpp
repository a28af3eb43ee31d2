#include "serve/http/call_parser.h"

#include "fuzz.h"
#include "support.h"

namespace tightloop {
namespace {

using serve::CallLimits;
using serve::CallParser;
using State = CallParser::State;

const std::string kPost =
    "POST /v1/completions?x=1 HTTP/1.1\r\nHost: localhost:8000\r\nContent-Length: 5\r\nX-A:  b c "
    "\r\n\r\nhello";

std::string chunked(const std::string& chunks, const std::string& more = "") {
  return "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n" + more + "\r\n" + chunks;
}

int status_of(const std::string& bytes, const CallLimits& limits = {}) {
  CallParser parser(limits);
  return parser.add(bytes) == State::kRefused ? parser.refusal().status
         : parser.state() == State::kWhole    ? 200
                                              : 0;
}

TEST(CallParser, ReadsARequest) {
  CallParser parser({});
  ASSERT_EQ(parser.add(kPost), State::kWhole);
  const auto call = parser.take();
  EXPECT_EQ(call.method, "POST");
  EXPECT_EQ(call.path, "/v1/completions");
  EXPECT_EQ(call.query, "x=1");
  EXPECT_EQ(call.header("x-a"), "b c");
  EXPECT_EQ(call.header("x-b"), "");
  EXPECT_EQ(call.body, "hello");
  EXPECT_TRUE(call.keeps_alive);
  EXPECT_FALSE(parser.begun());
}

TEST(CallParser, AFewEmptyLinesStandBeforeARequestAndNoMore) {
  EXPECT_EQ(status_of("\r\n\r\n" + kPost), 200);
  std::string empty;
  for (int i = 0; i < 8; ++i) empty += "\r\n";
  EXPECT_EQ(status_of(empty + kPost), 400);
  CallParser slow({});
  for (int i = 0; i < 7; ++i) EXPECT_EQ(slow.add("\r\n"), State::kHead);
  EXPECT_EQ(slow.add("\r\n"), State::kRefused) << "one after the other, too";
}

TEST(CallParser, PiecesMakeTheSameRequestHoweverTheyAreCut) {
  for (const std::string& whole : {kPost, chunked("3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nTrailer: 1\r\n\r\n")}) {
    CallParser once({});
    ASSERT_EQ(once.add(whole), State::kWhole) << once.refusal().why;
    const auto body = once.take().body;
    for (size_t size : {1, 2, 3, 7}) {
      CallParser parser({});
      for (size_t at = 0; at < whole.size(); at += size) {
        EXPECT_NE(parser.state(), State::kWhole);
        parser.add(std::string_view(whole).substr(at, size));
      }
      ASSERT_EQ(parser.state(), State::kWhole) << size;
      EXPECT_EQ(parser.take().body, body);
    }
  }
}

TEST(CallParser, RequestsFollowEachOther) {
  CallParser parser({});
  ASSERT_EQ(parser.add(kPost + "GET /b HTTP/1.1\r\nHost: h\r\n\r\n" + kPost.substr(0, 9)), State::kWhole);
  EXPECT_EQ(parser.take().path, "/v1/completions");
  EXPECT_TRUE(parser.begun());
  ASSERT_EQ(parser.next(), State::kWhole);
  EXPECT_EQ(parser.take().path, "/b");
  EXPECT_EQ(parser.next(), State::kHead);
  EXPECT_EQ(parser.add(kPost.substr(9)), State::kWhole);
}

TEST(CallParser, PathsLoseTheirEscapes) {
  CallParser parser({});
  ASSERT_EQ(parser.add("GET /v1/models/a%2Fb%20c?d%20 HTTP/1.1\r\nHost: h\r\n\r\n"), State::kWhole);
  const auto call = parser.take();
  EXPECT_EQ(call.path, "/v1/models/a/b c");
  EXPECT_EQ(call.query, "d%20");
}

TEST(CallParser, KeepsAliveAsTheVersionSays) {
  const auto keeps = [](const std::string& head) {
    CallParser parser({});
    EXPECT_EQ(parser.add(head + "\r\n\r\n"), State::kWhole);
    return parser.take().keeps_alive;
  };
  EXPECT_TRUE(keeps("GET / HTTP/1.1\r\nHost: h"));
  EXPECT_FALSE(keeps("GET / HTTP/1.1\r\nHost: h\r\nConnection: Close"));
  EXPECT_FALSE(keeps("GET / HTTP/1.0"));
  EXPECT_TRUE(keeps("GET / HTTP/1.0\r\nConnection: keep-alive"));
}

TEST(CallParser, TellsTheOldVersionWhichHasNoChunksAndWaitsForNothing) {
  CallParser parser({});
  parser.add("POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_FALSE(parser.take_expects_continue());
  ASSERT_EQ(parser.add("a"), State::kWhole);
  EXPECT_TRUE(parser.take().old);
  ASSERT_EQ(parser.add("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), State::kWhole);
  EXPECT_FALSE(parser.take().old);
}

TEST(CallParser, WhatCouldBeReadInTwoWaysIsRefused) {
  const std::string host = "Host: h\r\n";
  const auto post = [&](const std::string& headers) {
    return status_of("POST / HTTP/1.1\r\n" + host + headers + "\r\nabc");
  };
  EXPECT_EQ(post("Content-Length: 3\r\n"), 200);
  EXPECT_EQ(post("Content-Length: 3\r\nContent-Length: 3\r\n"), 400);
  EXPECT_EQ(post("Content-Length: +3\r\n"), 400);
  EXPECT_EQ(post("Content-Length: 3 3\r\n"), 400);
  EXPECT_EQ(post("Content-Length: 0x3\r\n"), 400);
  EXPECT_EQ(post("Content-Length: \r\n"), 400);
  EXPECT_EQ(post("Content-Length: 99999999999999999999\r\n"), 400);
  EXPECT_EQ(post("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), 400);
  EXPECT_EQ(post("Transfer-Encoding: gzip\r\n"), 501);
  EXPECT_EQ(post("Transfer-Encoding:\r\n"), 400);
  EXPECT_EQ(post("Content-Length : 3\r\n"), 400);
  EXPECT_EQ(post(" folded\r\n"), 400);
  EXPECT_EQ(post("X: a\nY: b\r\n"), 400);
  EXPECT_EQ(post(std::string("X: a\0b\r\n", 8)), 400);
  EXPECT_EQ(post("Host: i\r\n"), 400);
  EXPECT_EQ(post("Expect: tea\r\n"), 417);
  for (const char* first : {"GET", "GET /", "GET  / HTTP/1.1", "GET / HTTP/1.1 ", "GET a HTTP/1.1",
                            "G(T / HTTP/1.1", "GET http://h/ HTTP/1.1", "GET /\x7f HTTP/1.1",
                            "GET /%0 HTTP/1.1", "GET /%00 HTTP/1.1", "GET /%zz HTTP/1.1", "GET / FTP/1.1"})
    EXPECT_EQ(status_of(std::string(first) + "\r\n" + host + "\r\n"), 400) << first;
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\n" + host + "\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n\r\n"), 400) << "no Host";
}

TEST(CallParser, ChunksThatAreWrongAreRefused) {
  EXPECT_EQ(status_of(chunked("3\r\nabc\r\n0\r\n\r\n")), 200);
  EXPECT_EQ(status_of(chunked("3\r\nabcd\r\n0\r\n\r\n")), 400);
  EXPECT_EQ(status_of(chunked("-3\r\nabc\r\n0\r\n\r\n")), 400);
  EXPECT_EQ(status_of(chunked("\r\nabc\r\n")), 400);
  EXPECT_EQ(status_of(chunked("ffffffffffffffffff\r\n")), 400);
  EXPECT_EQ(status_of(chunked("ffffffffffffffff\r\n")), 413);
  EXPECT_EQ(status_of(chunked(std::string(300, '1'))), 400);
  EXPECT_EQ(status_of(chunked("0\r\n" + std::string(20000, 'x'))), 400);
  EXPECT_EQ(status_of(chunked("3;a=\"b c\"\r\nabc\r\n0\r\nT: 1\r\n\r\n")), 200);
  EXPECT_EQ(status_of(chunked("3;a\n2\r\nabc\r\n0\r\n\r\n")), 400) << "a bare line feed";
  EXPECT_EQ(status_of(chunked("3;a\r2\r\nabc\r\n0\r\n\r\n")), 400);
  EXPECT_EQ(status_of(chunked("3\r\nabc\r\n0\r\nT: 1\n\nGET / HTTP/1.1\r\n\r\n")), 400) << "in a trailer";
}

TEST(CallParser, SizesAreLimited) {
  const CallLimits small{.head_bytes = 100, .body_bytes = 10};
  EXPECT_EQ(status_of(std::string(90, 'x'), small), 0);
  EXPECT_EQ(status_of(std::string(104, 'x'), small), 431);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(100, 'x') + "\r\n\r\n", small), 431);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n", small), 413);
  EXPECT_EQ(status_of(chunked("a\r\n0123456789\r\n0\r\n\r\n"), small), 200);
  EXPECT_EQ(status_of(chunked("a\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n"), small), 413);
  std::string many = "GET / HTTP/1.1\r\nHost: h\r\n";
  for (int i = 0; i < 120; ++i) many += "A: b\r\n";
  EXPECT_EQ(status_of(many + "\r\n"), 431);
}

TEST(CallParser, SaysOnceThatTheClientWaits) {
  CallParser parser({});
  parser.add("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(parser.state(), State::kBody);
  EXPECT_TRUE(parser.take_expects_continue());
  EXPECT_FALSE(parser.take_expects_continue());
  EXPECT_EQ(parser.add("abc"), State::kWhole);
}

// However a request is cut, the parser finds the same: so no state is left behind between pieces.
TEST(CallParser, FuzzedRequestsAreReadAlikeWholeAndInPieces) {
  const std::vector<std::string> seeds{kPost, chunked("3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nTrailer: 1\r\n\r\n"),
                                       "GET / HTTP/1.1\r\nHost: h\r\n\r\n" + kPost};
  const std::vector<std::string> words{"\r\n", "\r\n\r\n", "Content-Length: 3\r\n",         "0\r\n\r\n", ":",
                                       " ",    "%41",      "Transfer-Encoding: chunked\r\n"};
  const CallLimits limits{.head_bytes = 300, .body_bytes = 64};
  const auto read = [&](const std::string& bytes, size_t size) {
    CallParser parser(limits);
    std::string seen;
    for (size_t at = 0; at < bytes.size() && parser.state() != State::kRefused; at += size) {
      parser.add(std::string_view(bytes).substr(at, size));
      while (parser.state() == State::kWhole) {
        const auto call = parser.take();
        seen += call.method + call.path + call.query + call.body + "|";
        parser.next();
      }
    }
    return seen + std::to_string(parser.refusal().status);
  };
  testing::fuzz(seeds, testing::fuzz_runs(20000), words, [&](std::string& bytes, Random& random) {
    const std::string whole = read(bytes, bytes.size() + 1), pieces = read(bytes, 1 + random.below(9));
    ASSERT_EQ(whole, pieces) << bytes;
  });
}

}  // namespace
}  // namespace tightloop
