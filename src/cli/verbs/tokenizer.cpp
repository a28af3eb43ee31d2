#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/add_choice.h"
#include "cli/at_least.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "data/store/infer_source.h"
#include "data/training_text.h"
#include "model/files/huggingface.h"
#include "tokenizer/tokenizer_config.h"
#include "train/run/run_folder.h"
#include "train/run/run_tokenizer.h"

namespace tightloop::cli {

namespace {

struct TrainOptions {
  TrainOptions() { data.source = DataSource::kAuto; }

  DataConfig data;
  BpeTrainOptions bpe;
  SentencePieceTrainOptions pieces;
  std::vector<std::string> special = TokenizerConfig().special_tokens;
  TokenizerType type = TokenizerType::kByteBpe;
  PairSide side = PairSide::kBoth;
  std::string output;
  bool overwrite = false;
};

struct ExportTokenizerOptions {
  std::string tokenizer, output;
};

struct CodeOptions {
  std::string tokenizer;
  SpecialText special = SpecialText::kDefault;
  bool lines = false;
};

/// A tokenizer that a user names: a run stands for its own.
fs::path tokenizer_path(const std::string& named) {
  const RunFolder run(named);
  return path_exists(run.config()) && has_tokenizer(run.tokenizer()) ? run.tokenizer() : fs::path(named);
}

void train(TrainOptions options) {
  if (!options.overwrite && is_folder(options.output) && has_tokenizer(options.output))
    throw usage_error(
        "'{}' holds a tokenizer already. Choose another --output, or replace it with --overwrite.",
        options.output);
  options.data.holdout = 0;
  size_t bytes = 0, tokens = 0;
  std::string text;
  make_folder(options.output);  // first: a folder that cannot be is known before the work
  if (!options.data.train_target.empty()) options.data.source = DataSource::kPairs;
  if (options.data.source == DataSource::kAuto) {
    const InferredSource found = infer_source(options.data, /*pairs=*/false);
    options.data.source = found.source;
    if (found.source != DataSource::kText)
      log::info("{} holds {}: --source {}.", found.file.string(), found.holds, name_of(found.source));
  }
  const PairSide side = options.side;
  if (side != PairSide::kBoth && options.data.source != DataSource::kPairs)
    throw usage_error("--side is for pairs: add --source pairs.");
  TokenizerConfig config;
  config.special_tokens = options.special;
  std::unique_ptr<Tokenizer> tokenizer;
  BadRecords bad;
  if (options.type == TokenizerType::kByteBpe) {
    if (options.bpe.vocab_size < 257)
      throw usage_error("a byte-level BPE has at least 257 tokens; --vocab-size is {}.",
                        options.bpe.vocab_size);
    options.bpe.special_tokens = config.special_tokens_for(options.bpe.vocab_size);
    tokenizer = train_tokenizer(options.bpe, options.data, {}, side, &bad);
  } else {
    options.pieces.model_type = options.type, options.pieces.exact = false;
    options.pieces.vocab_size = options.bpe.vocab_size, options.pieces.threads = options.bpe.threads;
    if (options.data.source != DataSource::kPairs) options.pieces.control_symbols = config.chat_tokens();
    tokenizer = train_tokenizer(options.pieces, options.data, {}, side, &bad);
  }
  if (bad.total() > 0) log::warn("{}", bad.report());
  tokenizer->save(options.output);
  // How well it does on a look at the same files.
  constexpr size_t kEnough = 16 << 20;
  std::vector<int32_t> ids;
  for (TrainingText again(options.data, {}, side); bytes < kEnough && again.next(text); ids.clear()) {
    tokenizer->encode(text, ids);
    bytes += text.size(), tokens += ids.size();
  }
  put(fmt::format(
      "{} tokens in the vocabulary, {:.2f} bytes a token; saved in {}.\n", tokenizer->vocab_size(),
      static_cast<double>(bytes) / static_cast<double>(std::max<size_t>(1, tokens)), options.output));
}

void export_files(const ExportTokenizerOptions& options) {
  const auto tokenizer = load_tokenizer(tokenizer_path(options.tokenizer));
  make_folder(options.output);
  tokenizer->save(options.output);
  put(fmt::format("{} tokens in the vocabulary; saved in {}.\n", tokenizer->vocab_size(), options.output));
}

void encode(const CodeOptions& options) {
  const auto tokenizer = load_tokenizer(tokenizer_path(options.tokenizer));
  const auto print_ids = [&](const std::string& text) {
    throw_if_interrupted();
    put(fmt::format("[{}]\n", fmt::join(tokenizer->encode(text, options.special), ",")));
  };
  if (!options.lines) return print_ids(read_standard_input());
  for (std::string line; std::getline(std::cin, line);) print_ids(line);
}

void decode(const CodeOptions& options) {
  const auto tokenizer = load_tokenizer(tokenizer_path(options.tokenizer));
  const auto print_text = [&](const std::string& json, int64_t line) {
    std::vector<int32_t> ids;
    try {
      ids = nlohmann::json::parse(json).get<std::vector<int32_t>>();
    } catch (const nlohmann::json::exception&) {
      throw data_error("line {} of the input is not a JSON array of ids, such as [72,105].", line);
    }
    const std::string text = tokenizer->decode(ids);
    throw_if_interrupted();
    put(shown(text));
  };
  if (!options.lines) return print_text(read_standard_input(), 1);
  int64_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    print_text(line, ++number);
    put("\n");
  }
}

void add_code_options(CLI::App& verb, CodeOptions& options) {
  verb.add_option("--tokenizer", options.tokenizer,
                  "A folder or a run, or tokenizer.json, vocab.json, *.tiktoken, *.model")
      ->required();
  verb.add_flag("--lines", options.lines, "One text (or array of ids) a line");
}

}  // namespace

void add_tokenizer(CLI::App& app) {
  auto* tokenizer = app.add_subcommand("tokenizer", "Train a tokenizer, or use one");
  tokenizer->require_subcommand(1);
  tokenizer->footer("Example: tightloop tokenizer train my.txt --vocab-size 4096 --output tok");

  auto training = std::make_shared<TrainOptions>();
  auto* train_verb = tokenizer->add_subcommand(
      "train", "Train a byte-level BPE or a SentencePiece model on text, JSONL, Parquet or pairs");
  train_verb->add_option("FILES", training->data.train, "Files to learn from; patterns with * are understood")
      ->required();
  train_verb->add_option("--vocab-size", training->bpe.vocab_size, "Tokens, special ones included")
      ->check(CLI::Range(16, 1'000'000));
  add_choice(*train_verb, "--type", training->type, "byte_bpe, or SentencePiece's unigram or bpe");
  train_verb
      ->add_option("--coverage", training->pieces.character_coverage,
                   "SentencePiece: fraction of the text's characters that get a token")
      ->check(between(0.9, 1));
  train_verb->add_option("--target", training->data.train_target,
                         "Of pairs in two files: the translations, line by line with FILES");
  add_choice(*train_verb, "--side", training->side, "Of pairs: whose sentences");
  add_choice(*train_verb, "--pattern", training->bpe.pattern, "How text is split before merging");
  train_verb->add_option(
      "--special", training->special,
      "Special tokens, which text never becomes (default: <|endoftext|> and the marks of a chat)");
  add_choice(*train_verb, "--on-bad-record", training->data.on_bad_record,
             "Records that cannot be used: skip, fail, or auto (skip, unless they are more than 5 %)");
  train_verb->add_option("--threads", training->bpe.threads, "0: all cores");
  add_choice(*train_verb, "--documents", training->data.documents, "Where one document of a text file ends",
             {DocumentEnd::kFile, DocumentEnd::kBlankLine, DocumentEnd::kLine});
  add_choice(
      *train_verb, "--source", training->data.source, "What the files hold (default: what they look like)",
      {DataSource::kAuto, DataSource::kText, DataSource::kJsonl, DataSource::kParquet, DataSource::kPairs});
  train_verb->add_option("--text-field", training->data.text_field, "Of JSONL: the field with the text");
  train_verb->add_option("--output", training->output, "Folder to write")->required();
  train_verb->add_flag("--overwrite", training->overwrite, "Replace a tokenizer that is in that folder");
  train_verb->footer(
      "Examples: tightloop tokenizer train 'books/*.txt' --vocab-size 8192 --output tok\n"
      "  tightloop tokenizer train train.en --target train.de --type unigram --output joint");
  train_verb->callback([=] { train(*training); });

  auto exporting = std::make_shared<ExportTokenizerOptions>();
  auto* export_verb =
      tokenizer->add_subcommand("export", "Write any tokenizer as tokenizer.json, which Hugging Face reads");
  export_verb
      ->add_option(
          "--tokenizer", exporting->tokenizer,
          "A folder or a run, or tokenizer.json, vocab.json, *.tiktoken, *.model (which stays a *.model)")
      ->required();
  export_verb->add_option("--output", exporting->output, "Folder to write")->required();
  export_verb->footer("Example: tightloop tokenizer export --tokenizer cl100k_base.tiktoken --output tok");
  export_verb->callback([=] { export_files(*exporting); });

  auto encoding = std::make_shared<CodeOptions>(), decoding = std::make_shared<CodeOptions>();
  auto* encode_verb = tokenizer->add_subcommand("encode", "Text on standard input -> ids");
  add_code_options(*encode_verb, *encoding);
  add_choice(*encode_verb, "--special", encoding->special, "Special tokens in the text");
  encode_verb->footer(
      "Example: echo Hello | tightloop tokenizer encode --tokenizer runs/a/tokenizer --lines");
  encode_verb->callback([=] { encode(*encoding); });
  auto* decode_verb = tokenizer->add_subcommand("decode", "Ids on standard input -> text");
  add_code_options(*decode_verb, *decoding);
  decode_verb->footer(
      "Example: echo '[72,105]' | tightloop tokenizer decode --tokenizer runs/a/tokenizer --lines");
  decode_verb->callback([=] { decode(*decoding); });
}

}  // namespace tightloop::cli
