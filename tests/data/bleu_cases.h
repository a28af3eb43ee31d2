#pragma once

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "score/bleu.h"
#include "score/chrf.h"

namespace tightloop::testing {

/// The largest difference between our scores and those that stand in a case of another library: {tokenize,
/// lowercase, references, hypotheses, bleu, chrf, sentences: [[bleu, chrf], ...]}.
inline double worst_difference(const nlohmann::json& corpus) {
  const BleuOptions options{choice_named<BleuTokens>(corpus["tokenize"].get<std::string>()).value(),
                            corpus["lowercase"]};
  const std::vector<std::string> hypotheses = corpus["hypotheses"], references = corpus["references"];
  BleuCounts bleu;
  ChrfCounts characters;
  double worst = 0;
  const auto compare = [&](double ours, double theirs) { worst = std::max(worst, std::abs(ours - theirs)); };
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const auto one = bleu_counts(hypotheses[i], references[i], options);
    const auto other = chrf_counts(hypotheses[i], references[i], options.lowercase);
    bleu.add(one), characters.add(other);
    compare(sentence_bleu(one).score, corpus["sentences"][i][0]);
    compare(chrf(other), corpus["sentences"][i][1]);
  }
  compare(corpus_bleu(bleu).score, corpus["bleu"]);
  compare(chrf(characters), corpus["chrf"]);
  return worst;
}

}  // namespace tightloop::testing
