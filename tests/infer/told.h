#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "infer/decoder.h"

namespace tightloop::testing {

inline DecodeRequest greedy(std::vector<int32_t> prompt, int64_t tokens) {
  DecodeRequest request{.prompt = std::move(prompt)};
  request.sampling.temperature = 0, request.sampling.max_tokens = tokens;
  return request;
}

/// An answer as its callbacks tell it.
struct Told {
  std::vector<int32_t> ids;
  std::vector<DecodeEnd> ends;
};

inline Decoder::Ticket submit(Decoder& decoder, DecodeRequest request, Told& told) {
  request.on_token = [&told, inner = request.on_token](const DecodedToken& token) {
    EXPECT_TRUE(told.ends.empty()) << "a token behind the end";
    told.ids.push_back(token.id);
    return !inner || inner(token);
  };
  request.on_end = [&told](const DecodeEnd& end) { told.ends.push_back(end); };
  return decoder.submit(std::move(request));
}

}  // namespace tightloop::testing
