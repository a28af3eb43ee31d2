#include "data/generate/sample_files.h"

#include <zlib.h>

#include <functional>

#include "core/error.h"
#include "core/hash.h"
#include "data/generate/sample_records.h"
#include "data/mixture.h"
#include "data/read/data_files.h"
#include "data/read/parquet.h"

namespace tightloop {

namespace {

constexpr int kTrain = 240, kHeldOut = 40;  // records of a file
constexpr int kEvery = 120;                 // MiniMind: one record in so many has thinking, and one has tools

void write_gzip(const fs::path& path, const std::string& bytes) {
  gzFile file = ::gzopen(path.c_str(), "wb");
  const bool whole = file && ::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) > 0;
  if ((file && ::gzclose(file) != Z_OK) || !whole) throw data_error("cannot write '{}'.", path.string());
}

DataSource source_of(const DataConfig& config, const SampleStyle& style, const fs::path& path) {
  if (config.source != DataSource::kAuto) return config.source;
  if (style.pairs) return DataSource::kPairs;
  const std::string ending = path.extension().string();
  return ending == ".parquet"                      ? DataSource::kParquet
         : ending == ".jsonl" || ending == ".json" ? DataSource::kJsonl
                                                   : DataSource::kText;
}

std::string record(Random& random, const DataConfig& config, const SampleStyle& style, int number) {
  const RecordFormat format = config.format != RecordFormat::kAuto ? config.format
                              : style.conversations                ? RecordFormat::kChat
                                                                   : RecordFormat::kText;
  switch (format) {
    case RecordFormat::kChat:
      if (!style.minimind) return SampleRecords::chat(random);
      if (number % kEvery == kEvery / 3) return SampleRecords::minimind_thinking(random);
      if (number % kEvery == kEvery / 2) return SampleRecords::minimind_tools(random);
      return SampleRecords::minimind_chat(random);
    case RecordFormat::kChoice:
      return SampleRecords::choice(random);
    case RecordFormat::kQuestion:
    case RecordFormat::kGsm8k:
      return SampleRecords::gsm8k(random);
    case RecordFormat::kText:
    case RecordFormat::kAuto:
      break;
  }
  return SampleRecords::text(random, config.text_field);
}

/// One of the parts of a source: what each record of a file comes to.
struct SamplePart {
  const std::vector<std::string>* patterns;
  int records;
  bool target = false;  // of pairs in two files: the translations
};

std::string contents(const DataConfig& config, const SampleStyle& style, const SamplePart& part,
                     uint64_t seed, DataSource source, bool two_files, bool json_list) {
  Random random(seed);
  std::string text;
  for (int i = 0; i < part.records; ++i) {
    if (source == DataSource::kPairs) {
      const SamplePair pair = sample_pair(random);
      if (json_list)
        text += fmt::format("{}[\"{}\", \"{}\"]", i == 0 ? "[" : ",\n", pair.source, pair.target);
      else
        text += two_files ? (part.target ? pair.target : pair.source) : pair.source + "\t" + pair.target;
    } else {
      text += source == DataSource::kText ? SampleRecords::paragraph(random) + "\n"
                                          : record(random, config, style, i);
    }
    if (!json_list) text += '\n';
  }
  return json_list ? text + "]\n" : text;
}

void write_source(const DataConfig& config, const SampleStyle& style, const fs::path& folder,
                  std::vector<SampleFile>& files) {
  if (!config.reads_files()) return;
  if (config.train.empty())
    throw usage_error(
        "the recipe leaves its files to you: name one to be made up, as in --data.train sample.txt.");
  const bool two_files = !config.train_target.empty();
  const SamplePart parts[] = {{&config.train, kTrain},
                              {&config.train_target, kTrain, true},
                              {&config.val, kHeldOut},
                              {&config.val_target, kHeldOut, true}};
  for (const SamplePart& part : parts) {
    for (size_t i = 0; i < part.patterns->size(); ++i) {
      const std::string& pattern = (*part.patterns)[i];
      const fs::path name = fs::path(pattern).lexically_normal();
      if (name.is_absolute() || name.begin()->string() == "..")
        throw usage_error("'{}' is not under the folder: samples are made for names inside of it.", pattern);
      if (const auto there = matches_of((folder / pattern).string()); !there.empty()) {
        files.push_back({there.front(), false});
        continue;
      }
      const fs::path path = folder / name_matching(pattern);
      const DataSource source = source_of(config, style, path);
      // Both files of a pair are of one seed.
      const uint64_t seed = hash64(fmt::format("{} {} {}", config.train.front(), part.records, i));
      const std::string text =
          contents(config, style, part, seed, source, two_files, path.extension() == ".json");
      make_folder(path.parent_path());
      if (source == DataSource::kParquet)
        write_parquet(path, text);
      else if (path.extension() == ".gz")
        write_gzip(path, text);
      else
        write_file_whole(path, text);
      files.push_back({path, true});
    }
  }
}

}  // namespace

std::string name_matching(const std::string& pattern) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const size_t close = pattern[i] == '[' ? pattern.find(']', i + 2) : std::string::npos;
    if (close != std::string::npos) {
      name += pattern[i + 1];
      i = close;
    } else if (pattern[i] == '*') {
      name += "00000";
    } else {
      name += pattern[i] == '?' ? '0' : pattern[i];
    }
  }
  return name;
}

std::vector<SampleFile> write_sample_files(const DataConfig& config, const SampleStyle& style,
                                           const fs::path& folder) {
  std::vector<SampleFile> files;
  if (config.mixture.empty()) {
    write_source(config, style, folder, files);
  } else {
    for (const MixtureEntry& entry : parse_mixture(config)) write_source(entry.data, style, folder, files);
  }
  return files;
}

}  // namespace tightloop
