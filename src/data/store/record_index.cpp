#include "data/store/record_index.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/hash.h"
#include "core/io/json_depth.h"
#include "core/terminal/progress_line.h"
#include "data/store/index_writer.h"
#include "data/store/kept_records.h"
#include "data/store/prepare.h"
#include "data/store/prepare_key.h"

namespace tightloop {

namespace {

using nlohmann::json;

template <class T>
std::span<const T> open_array(const MappedFile& file, uint64_t count, const std::string& hash) {
  const std::string_view bytes = file.text();
  ProgressLine progress("Checking the index", bytes.size());
  if (bytes.size() != count * sizeof(T) || hex64(hash64(bytes, progress)) != hash)
    throw data_error("'{}' is damaged: remove the folder to index the files again.", file.path().string());
  return {reinterpret_cast<const T*>(bytes.data()), count};
}

std::shared_ptr<const RecordIndex::Part> open_part(const fs::path& folder, const std::string& name,
                                                   const json& facts) {
  const uint64_t entries = facts.at("places"), documents = facts.at("documents");
  auto part =
      std::make_shared<RecordIndex::Part>(RecordIndex::Part{entries,
                                                            documents,
                                                            facts.at("masked"),
                                                            MappedFile(folder / (name + ".begins")),
                                                            MappedFile(folder / (name + ".places")),
                                                            MappedFile(folder / (name + ".documents")),
                                                            {},
                                                            {},
                                                            {}});
  const json& hashes = facts.at("hashes");
  part->begins = open_array<uint64_t>(part->begin_file, entries + 1, hashes.at(0));
  part->all = open_array<IndexEntry>(part->entry_file, entries, hashes.at(1));
  part->firsts =
      open_array<uint64_t>(part->document_file, facts.at("listed").get<bool>() ? documents : 0, hashes.at(2));
  return part;
}

RecordIndex open_folder(const fs::path& folder) {
  const fs::path path = folder / "index.json";
  try {
    const json facts = json::parse(shallow_json(read_file(path)));
    RecordIndex index;
    for (const std::string file : facts.at("files")) index.files.emplace_back(file);
    index.kept = std::make_shared<KeptReader>(folder / "kept");
    index.train = open_part(folder, "train", facts.at("train"));
    index.val = open_part(folder, "val", facts.at("val"));
    index.bad.merge(facts.at("bad").get<std::vector<uint64_t>>(),
                    facts.at("first_bad").get<std::vector<std::string>>(),
                    facts.value("bad_bytes", std::array<uint64_t, 2>{}));
    return index;
  } catch (const json::exception& error) {
    throw data_error("'{}' is damaged: {}. Remove the folder to index the files again.", path.string(),
                     error.what());
  }
}

// A folder beside its target that goes away again unless it was put there.
class ScratchFolder {
 public:
  explicit ScratchFolder(const fs::path& target) : path_(partial_path(target)) { make_folder(path_); }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  // Another process may have been quicker: its index is as good.
  void put(const fs::path& target) const {
    std::error_code failure;
    fs::rename(path_, target, failure);
    if (failure && !path_exists(target / "index.json"))
      throw data_error("cannot put '{}' in place: {}.", target.string(), failure.message());
  }

 private:
  fs::path path_;
};

}  // namespace

RecordIndex open_index(const SourceOptions& options, const fs::path& folder) {
  // Records are rendered again: an index of when other records were good (index-...) is of no use.
  const std::string name = "index2-" + hex64(prepare_key(options));
  if (folder.empty()) {
    const ScratchFolder scratch(temporary_folder() / ("tightloop-" + name));
    write_index(options, scratch.path());
    return open_folder(scratch.path());  // what is mapped stays until it is unmapped
  }
  const fs::path target = folder / name;
  if (!path_exists(target / "index.json")) {
    make_folder(folder);
    const ScratchFolder scratch(target);
    write_index(options, scratch.path());
    scratch.put(target);
  }
  return open_folder(target);
}

}  // namespace tightloop
