#include "score/bleu.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "cli/add_choice.h"
#include "cli/at_least.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/terminal/terminal.h"
#include "data/read/line_reader.h"
#include "score/bootstrap.h"
#include "score/chrf.h"

namespace tightloop::cli {

namespace {

struct BleuArguments {
  std::string reference, hypothesis, second;
  BleuTokens tokenize = BleuTokens::k13a;
  bool lowercase = false, sentences = false, json = false;
  int64_t samples = 1000, seed = 12345;
};

/// What both scores need to know of one system's sentences.
struct ScoredSystem {
  std::vector<BleuCounts> bleu;
  std::vector<ChrfCounts> chrf;
};

template <class Counts>
Counts sum(const std::vector<Counts>& counts, std::span<const uint32_t> sentences) {
  Counts total;
  for (const uint32_t sentence : sentences) total.add(counts[sentence]);
  return total;
}

std::vector<uint32_t> all_of(const ScoredSystem& system) {
  std::vector<uint32_t> numbers(system.bleu.size());
  std::iota(numbers.begin(), numbers.end(), 0u);
  return numbers;
}

void check_lengths(const std::string& reference, size_t references, const std::string& hypothesis,
                   size_t hypotheses) {
  if (references == 0 && hypotheses == 0)
    throw data_error("'{}' and '{}' are empty: there is no line 1 to score.", reference, hypothesis);
  if (references == hypotheses) return;
  const bool more = references > hypotheses;
  throw data_error("'{}' has {} lines and '{}' has {}: line {} of '{}' has no counterpart.", reference,
                   references, hypothesis, hypotheses, std::min(references, hypotheses) + 1,
                   more ? reference : hypothesis);
}

ScoredSystem count(const BleuArguments& options, const std::vector<std::string>& references,
                   const std::string& file) {
  const auto hypotheses = read_lines(input_named(file));
  check_lengths(options.reference, references.size(), file, hypotheses.size());
  const BleuOptions how{options.tokenize, options.lowercase};
  ScoredSystem system;
  for (size_t i = 0; i < references.size(); ++i) {
    throw_if_interrupted();
    system.bleu.push_back(bleu_counts(hypotheses[i], references[i], how));
    system.chrf.push_back(chrf_counts(hypotheses[i], references[i], options.lowercase));
  }
  return system;
}

nlohmann::json corpus_json(const ScoredSystem& system) {
  const auto all = all_of(system);
  const auto counts = sum(system.bleu, all);
  const auto bleu = corpus_bleu(counts);
  return {{"bleu", bleu.score},
          {"chrf", chrf(sum(system.chrf, all))},
          {"precisions", bleu.precisions},
          {"brevity_penalty", bleu.brevity_penalty},
          {"hypothesis_words", counts.hypothesis_words},
          {"reference_words", counts.reference_words}};
}

void print_corpus(const std::string& file, const nlohmann::json& scores) {
  put(fmt::format("{}\n", printable(file)));
  put(fmt::format("  BLEU {:.2f}   precisions", scores["bleu"].get<double>()));
  for (const double precision : scores["precisions"]) put(fmt::format(" {:.1f}", precision));
  put(fmt::format(", brevity penalty {:.3f}, {} words against {}\n", scores["brevity_penalty"].get<double>(),
                  scores["hypothesis_words"].get<int64_t>(), scores["reference_words"].get<int64_t>()));
  put(fmt::format("  chrF {:.2f}\n", scores["chrf"].get<double>()));
}

template <class Counts, class Score>
BootstrapResult compare(const BleuArguments& options, const std::vector<Counts>& first,
                        const std::vector<Counts>& second, Score&& score) {
  const auto of = [&score](const std::vector<Counts>& counts) {
    return [&counts, &score](std::span<const uint32_t> sentences) { return score(sum(counts, sentences)); };
  };
  return paired_bootstrap(static_cast<uint32_t>(first.size()), static_cast<int>(options.samples),
                          static_cast<uint64_t>(options.seed), of(first), of(second));
}

nlohmann::json bootstrap_json(const BootstrapResult& result) {
  const auto system = [](const BootstrapResult::System& one) {
    return nlohmann::json{{"score", one.score}, {"mean", one.mean}, {"interval", one.interval}};
  };
  return {{"first", system(result.first)}, {"second", system(result.second)}, {"p_value", result.p_value}};
}

void print_comparison(const char* name, const BootstrapResult& result) {
  put(fmt::format("  {}  {:.2f} +- {:.2f} against {:.2f} +- {:.2f}: difference {:+.2f}, p = {:.4f}\n", name,
                  result.first.score, result.first.interval, result.second.score, result.second.interval,
                  result.second.score - result.first.score, result.p_value));
}

void print_sentences(const BleuArguments& options, const ScoredSystem& system, nlohmann::json& json) {
  json["sentences"] = nlohmann::json::array();
  for (size_t i = 0; i < system.bleu.size(); ++i) {
    const double bleu = sentence_bleu(system.bleu[i]).score, characters = chrf(system.chrf[i]);
    if (options.json)
      json["sentences"].push_back({{"bleu", bleu}, {"chrf", characters}});
    else
      put(fmt::format("{:.4f}\t{:.4f}\n", bleu, characters));
  }
}

void measure(const BleuArguments& options) {
  if (options.sentences && !options.second.empty())
    throw usage_error("--sentence and --hyp2 ask for different things: give one of them.");
  const auto references = read_lines(input_named(options.reference));
  const ScoredSystem system = count(options, references, options.hypothesis);
  const std::string signature = bleu_signature({options.tokenize, options.lowercase}, options.sentences);
  nlohmann::json json = corpus_json(system);
  json["signature"] = signature;
  json["chrf_signature"] = chrf_signature(options.lowercase);
  json["lines"] = references.size();
  if (options.sentences) {
    print_sentences(options, system, json);
  } else if (!options.json) {
    print_corpus(options.hypothesis, json);
  }
  if (!options.second.empty()) {
    const ScoredSystem other = count(options, references, options.second);
    json["second"] = corpus_json(other);
    const auto bleu = compare(options, system.bleu, other.bleu,
                              [](const BleuCounts& counts) { return corpus_bleu(counts).score; });
    const auto characters =
        compare(options, system.chrf, other.chrf, [](const ChrfCounts& counts) { return chrf(counts); });
    json["bootstrap"] = {
        {"samples", options.samples}, {"bleu", bootstrap_json(bleu)}, {"chrf", bootstrap_json(characters)}};
    if (!options.json) {
      print_corpus(options.second, json["second"]);
      put(fmt::format("Paired bootstrap, {} samples of {} sentences\n", options.samples, references.size()));
      print_comparison("BLEU", bleu);
      print_comparison("chrF", characters);
    }
  }
  if (options.json) {
    put(fmt::format("{}\n", dump(json)));
  } else if (!options.sentences) {
    put(fmt::format("Signatures\n  BLEU {}\n  chrF {}\n", signature,
                    json["chrf_signature"].get<std::string>()));
  }
}

}  // namespace

void add_bleu(CLI::App& app) {
  auto options = std::make_shared<BleuArguments>();
  auto* verb = app.add_subcommand("bleu", "Score translations against references: BLEU and chrF");
  verb->add_option("--ref", options->reference, "The references, one a line; -: standard input")->required();
  verb->add_option("--hyp", options->hypothesis, "The translations, one a line; -: standard input")
      ->required();
  verb->add_option("--hyp2", options->second, "Those of another system: is the difference chance?");
  add_choice(*verb, "--tokenize", options->tokenize, "As sacreBLEU defines them");
  verb->add_flag("--lowercase", options->lowercase, "Upper and lower case count as equal");
  verb->add_flag("--sentence", options->sentences, "Scores of every line: BLEU, tab, chrF");
  verb->add_option("--samples", options->samples, "With --hyp2: samples of the paired bootstrap")
      ->check(CLI::Range(1, 1'000'000));
  verb->add_option("--seed", options->seed, "With --hyp2: which samples")->check(at_least(0));
  verb->add_flag("--json", options->json, "For programs");
  verb->footer("Example: tightloop bleu --ref test.de --hyp translated.de");
  verb->callback([=] { measure(*options); });
}

}  // namespace tightloop::cli
