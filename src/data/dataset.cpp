#include "data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/log.h"
#include "data/mixture.h"
#include "data/read/data_files.h"
#include "data/read/named_files.h"
#include "data/store/held_out_tail.h"
#include "data/store/live_documents.h"
#include "data/store/mixed_documents.h"
#include "data/store/nanochat_order.h"
#include "data/store/prepare.h"
#include "data/store/prepare_key.h"
#include "data/store/record_index.h"
#include "data/store/shards.h"
#include "data/store/source.h"
#include "data/store/token_range.h"
#include "data/store/tokenize.h"

namespace tightloop {

namespace {

constexpr uint64_t kLarge = uint64_t{1} << 30;
constexpr double kMostEpochs = 1e6;  // as of the setting

void read_all(const SourceOptions& options, bool val_records, BadRecords& bad, TokenStore& train,
              TokenStore& val) {
  const double val_share = val_records ? 1 : has_val_records(options.data) ? 0 : options.data.holdout;
  SplitSink sink(train, val, val_share, 0);
  const TokenizeOptions tokenizing{static_cast<int>(options.data.tokenizer_threads),
                                   options.data.tokenizer_batch_size};
  const auto reader = open_records(options.data, options.tasks, val_records);
  tokenize(*reader, *make_renderer(options), tokenizing, bad,
           [&](const Record& record, const Rendered& rendered) {
             sink.add(record, rendered);
             return true;
           });
  sink.finish();
  for (TokenStore* store : {&train, &val})
    if (store->size() > 0) store->name_files(reader->files());
}

using Parts = std::pair<std::shared_ptr<const Documents>, std::shared_ptr<const Documents>>;  // train, val

Parts open_shards(const DataConfig& config, uint64_t tokenizer) {
  const std::vector<fs::path> train = train_shards(config), val = held_out_shards(config);
  std::set<fs::path> folders;
  for (const auto* paths : {&train, &val})
    for (const fs::path& path : *paths) folders.insert(path.parent_path());
  for (const fs::path& folder : folders) require_finished(folder);
  return {std::make_shared<ShardSet>(train, tokenizer), std::make_shared<ShardSet>(val, tokenizer)};
}

bool tokenize_live(const DataConfig& config) {
  if (config.generated() || config.tokenize == TokenizeWhen::kStart) return false;
  if (config.tokenize == TokenizeWhen::kLive) return true;
  uint64_t bytes = 0;
  for (const auto* patterns : {&config.train, &config.val, &config.train_target, &config.val_target})
    for (const fs::path& path : expand_all(*patterns))
      if (is_file(path)) bytes += file_bytes(path);
  return config.cache.empty() && bytes > kLarge;
}

Parts index_source(const SourceOptions& options, const fs::path& folder, BadRecords& bad) {
  const RecordIndex index = open_index(options, folder);
  bad.merge(index.bad);
  const auto files = std::make_shared<IndexedFiles>(index.files, index.kept);
  const std::shared_ptr<const Renderer> renderer = make_renderer(options);
  return {std::make_shared<LiveDocuments>(index.train, files, renderer, options.tokenizer),
          std::make_shared<LiveDocuments>(index.val, files, renderer, options.tokenizer)};
}

Parts load_source(const SourceOptions& options, const fs::path& index_folder, BadRecords& all_bad) {
  const DataConfig& config = options.data;
  BadRecords bad(config.on_bad_record == OnBadRecord::kFail);
  if (config.source == DataSource::kRandom)
    throw usage_error(
        "data.source random has no records to read: its ids are made for `train` and `bench`, to measure "
        "speed.");
  if (!config.generated() && config.train.empty())
    throw usage_error("data.train names no file to learn from.");
  Parts parts;
  if (config.source == DataSource::kShards) {
    parts = open_shards(config, tokens_fingerprint(options));
  } else if (tokenize_live(config)) {
    parts = index_source(options, config.cache.empty() ? index_folder : fs::path(config.cache), bad);
  } else if (!config.cache.empty()) {
    const fs::path folder = fs::path(config.cache) / hex64(prepare_key(options));
    bad.merge(prepare(options, {folder, 100'000'000, {}}).bad);
    DataConfig prepared = config;
    prepared.train = {folder.string()};
    prepared.val.clear();
    parts = open_shards(prepared, tokens_fingerprint(options));
  } else {
    auto train = std::make_shared<TokenStore>(vocab_size_of(options));
    auto val = std::make_shared<TokenStore>(vocab_size_of(options));
    read_all(options, false, bad, *train, *val);
    if (has_val_records(config)) read_all(options, true, bad, *train, *val);
    parts = {train, val};
  }
  const uint64_t documents = parts.first->size() + parts.second->size();
  refuse_too_many_bad(config, bad, documents / (config.holds_pairs() ? 2 : 1));
  all_bad.merge(bad);
  if (parts.first->size() == 0) {
    throw data_error(
        "there is no document to learn from in '{}'{}.{}{}", fmt::join(config.train, "', '"),
        parts.second->size() > 0 ? ": all were held out; see data.documents and data.holdout" : "",
        bad.total() > 0 ? " " + bad.report() : "", bad.total() > 0 ? advice_about_files(config) : "");
  }
  return parts;
}

Parts load_parts(const SourceOptions& options, const fs::path& index_folder, BadRecords& bad) {
  if (!holds_out_tail(options.data)) return load_source(options, index_folder, bad);
  DataConfig whole = options.data;
  whole.holdout = 0;
  const Parts parts = load_source({whole, options.tasks, options.chat, options.tokenizer}, index_folder, bad);
  if (parts.second->size() > 0) return parts;  // shards of which something was held out before
  const auto& all = parts.first;
  const uint64_t cut = tail_begin(options.data, all->tokens());
  return {std::make_shared<TokenRange>(all, 0, cut), std::make_shared<TokenRange>(all, cut, all->tokens())};
}

/// As data.order says; `parts`: how many documents of each source, one after the other.
std::shared_ptr<const Documents> ordered(std::shared_ptr<const Documents> documents, const DataConfig& config,
                                         const std::vector<uint64_t>& parts) {
  if (config.order != DocumentOrder::kNanochat || documents->size() == 0) return documents;
  return std::make_shared<ReorderedDocuments>(std::move(documents), nanochat_order(parts));
}

}  // namespace

Dataset load_dataset(const DataConfig& config, const TasksConfig& tasks, const Tokenizer& tokenizer,
                     const ChatConfig& chat, const Tokenizer* target_tokenizer,
                     const fs::path& index_folder) {
  for (const std::string& doubt : doubts_about_files(config)) log::warn("{}", doubt);
  Dataset dataset{{}, {}, {}, BadRecords(config.on_bad_record == OnBadRecord::kFail)};
  if (config.mixture.empty()) {
    std::tie(dataset.train, dataset.val) =
        load_parts({config, tasks, chat, tokenizer, target_tokenizer}, index_folder, dataset.bad);
    if (config.holds_pairs() && config.order == DocumentOrder::kNanochat)
      throw usage_error("data.order nanochat is for texts and conversations, not for pairs.");
    for (auto* part : {&dataset.train, &dataset.val}) *part = ordered(*part, config, {(*part)->size()});
    dataset.sources = {std::string(name_of(config.source))};
    return dataset;
  }
  const std::vector<MixtureEntry> entries = parse_mixture(config);
  const uint64_t unit = entries[0].data.holds_pairs() ? 2 : 1;
  std::vector<MixedDocuments::Source> train, val;
  std::vector<uint64_t> sizes;
  std::vector<double> weights;
  for (const MixtureEntry& entry : entries) {
    const Parts parts =
        load_parts({entry.data, tasks, chat, tokenizer, target_tokenizer}, index_folder, dataset.bad);
    train.push_back({parts.first, entry.epochs, static_cast<uint64_t>(entry.cap)});
    val.push_back({parts.second, 1, 0});
    const uint64_t size = parts.first->size() / unit;
    sizes.push_back(entry.cap > 0 ? std::min<uint64_t>(entry.cap, size) : size);
    weights.push_back(entry.weight);
    dataset.sources.push_back(entry.name);
  }
  if (weights[0] > 0) {
    const std::vector<double> epochs = epochs_by_weight(sizes, weights);
    for (size_t i = 0; i < train.size(); ++i) {
      if (epochs[i] > kMostEpochs)
        throw usage_error(
            "data.mixture: by these weights, '{}' comes {:.0f} times before every document of the others "
            "came "
            "once. Bring the weights closer, or give a cap to the others.",
            entries[i].name, epochs[i]);
      train[i].epochs = epochs[i];
    }
  }
  if (unit > 1 && config.order == DocumentOrder::kNanochat)
    throw usage_error("data.order nanochat is for texts and conversations, not for pairs.");
  std::vector<double> passes;
  for (const auto& source : train) passes.push_back(source.epochs);
  const MixtureText text = mixture_text(entries, sizes, passes);
  for (const std::string& line : text.lines) log::info("{}", line);
  for (const std::string& warning : text.warnings) log::warn("{}", warning);
  const auto mixed = [&](const std::vector<MixedDocuments::Source>& sources) {
    const auto documents = std::make_shared<MixedDocuments>(sources, unit);
    return ordered(documents, config, documents->part_sizes());
  };
  dataset.train = mixed(train);
  dataset.val = mixed(val);
  return dataset;
}

}  // namespace tightloop
