#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tightloop::cli {

/// One position of a row: the token that was to be predicted, and how well it was.
struct TokenLoss {
  int64_t position = 0, id = 0;
  std::string text;
  bool learned = false;
  double loss = 0;
  int64_t rank = 0;
  std::string best;  // what the model held likeliest
};

/// A line for each token.
std::string loss_table(const std::vector<TokenLoss>& tokens, bool colour);
/// The tokens as running text, the hotter the higher their loss; those that are not learned are dim. Without
/// colour: a block character for each token, lowest loss to highest, a dot where nothing is learned.
std::string heat_strip(const std::vector<TokenLoss>& tokens, bool colour);

/// Text in one line: control characters, broken UTF-8 and the like spelled out.
std::string one_line(const std::string& text);

}  // namespace tightloop::cli
