#include "train/run/shared_files.h"

#include <ATen/core/Tensor.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/io/verify_file.h"

namespace tightloop {

namespace {

bool is_mine(const StateSlice& slice, bool main) {
  return main || !(slice.whole() && slice.values.dim() == 0);  // everybody has a scalar
}

}  // namespace

SharedFile::SharedFile(std::string name, const std::vector<StateSlice>& slices, const NamedTensors& common,
                       Processes& processes)
    : name_(std::move(name)), main_(processes.main()) {
  nlohmann::json list = nlohmann::json::array();
  const auto add = [&](const std::string& tensor, const std::vector<int64_t>& sizes, at::ScalarType dtype) {
    list.push_back({tensor, sizes, static_cast<int>(dtype)});
  };
  for (const auto& slice : slices) add(slice.name, slice.sizes, slice.values.scalar_type());
  for (const auto& [tensor, values] : common) add(tensor, values.sizes().vec(), values.scalar_type());
  std::map<std::string, SafetensorsLayout::Tensor> all;
  for (const auto& text : processes.gather(list.dump()))
    for (const auto& entry : nlohmann::json::parse(text)) {
      const auto tensor = entry[0].get<std::string>();
      all.insert(
          {tensor,
           {tensor, static_cast<at::ScalarType>(entry[2].get<int>()), entry[1].get<std::vector<int64_t>>()}});
    }
  std::vector<SafetensorsLayout::Tensor> tensors;
  for (const auto& [tensor, shape] : all) tensors.push_back(shape);
  layout_ = std::make_shared<const SafetensorsLayout>(tensors, std::map<std::string, std::string>());
  for (const auto& slice : slices)
    if (is_mine(slice, main_))
      begins_.push_back(layout_->begin.at(slice.name) +
                        static_cast<uint64_t>(slice.begin) * slice.values.element_size());
  if (main_)
    for (const auto& [tensor, values] : common) begins_.push_back(layout_->begin.at(tensor));
}

NamedTensors SharedFile::own(const std::vector<StateSlice>& slices, const NamedTensors& common) const {
  NamedTensors tensors;
  for (const auto& slice : slices)
    if (is_mine(slice, main_)) tensors.emplace_back(slice.name, slice.values);
  if (main_) tensors.insert(tensors.end(), common.begin(), common.end());
  return tensors;
}

void SharedFile::create(const std::filesystem::path& folder) const {
  FileWriter(folder / name_).close();
  PieceWriter file(folder / name_);
  file.resize(layout_->bytes);
  file.close();
}

nlohmann::json SharedFile::write(const std::filesystem::path& folder, const NamedTensors& tensors,
                                 const std::function<void(uint64_t)>& wrote) const {
  PieceWriter file(folder / name_);
  nlohmann::json pieces = nlohmann::json::array();
  const auto put = [&](uint64_t begin, const void* data, uint64_t bytes) {
    if (bytes == 0) return;
    file.write(begin, data, bytes);
    pieces.push_back({{"begin", begin}, {"bytes", bytes}, {"xxh3", hex64(hash64(data, bytes))}});
    if (wrote) wrote(bytes);
  };
  if (main_) put(0, layout_->head.data(), layout_->head.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto dense = tensors[i].second.detach().to(at::kCPU).contiguous();
    put(begins_[i], dense.const_data_ptr(), dense.nbytes());
  }
  file.close();
  return pieces;
}

namespace {

/// What others have written on other machines may be theirs alone: some file systems let one process
/// overwrite what is beside its own piece, with what was there before.
void read_back(const std::filesystem::path& path, const nlohmann::json& said) {
  try {
    verify_file(MappedFile(path), said, [](std::string_view text) { return hash64(text); });
  } catch (const Error& error) {
    throw checkpoint_error(
        "{} Several processes have written it, and their disk does not have what each wrote: is it made for "
        "that?",
        error.what());
  }
}

}  // namespace

SharedCheckpoint::SharedCheckpoint(SharedFile weights, SharedFile optimizer, Processes& processes)
    : weights_(std::move(weights)), optimizer_(std::move(optimizer)), processes_(processes), number_([] {
        static std::atomic<int64_t> made = 0;
        return made++;
      }()) {}

std::string SharedCheckpoint::post_name(const std::string& what) const {
  return fmt::format("save/{}/{}/{}", number_, saves_, what);
}

nlohmann::json SharedCheckpoint::write_own(const std::filesystem::path& folder, const Part& part) const {
  return {weights_.write(folder, part.weights, part.wrote),
          optimizer_.write(folder, part.optimizer, part.wrote)};
}

nlohmann::json SharedCheckpoint::write(const std::filesystem::path& folder, const Part& part) {
  weights_.create(folder);
  optimizer_.create(folder);
  sync_folder(folder);
  state_ = kBegun;
  processes_.post(post_name("folder"), folder.filename().string());
  std::vector<nlohmann::json> weights, optimizer;
  const auto add = [&](const nlohmann::json& own) {
    weights.push_back(own[0]);
    optimizer.push_back(own[1]);
  };
  add(write_own(folder, part));
  for (int rank = 1; rank < processes_.world(); ++rank) {
    const std::string name = post_name(std::to_string(rank));
    const auto said = nlohmann::json::parse(processes_.posted(name));
    processes_.remove_post(name);
    if (said.is_string()) throw checkpoint_error("rank {}: {}", rank, said.get<std::string>());
    add(said);
  }
  processes_.remove_post(post_name("folder"));
  state_ = kDone, ++saves_;
  const nlohmann::json files{{weights_.name(), joined_pieces(weights, weights_.bytes())},
                             {optimizer_.name(), joined_pieces(optimizer, optimizer_.bytes())}};
  for (const auto& [name, said] : files.items()) read_back(folder / name, said);
  return files;
}

void SharedCheckpoint::end() noexcept {
  try {
    if (state_ == kIdle) processes_.post(post_name("folder"), "");
  } catch (const std::exception&) {  // nobody is there to wait for it
  }
  if (state_ != kDone) ++saves_;
  state_ = kIdle;
}

void SharedCheckpoint::help(const std::filesystem::path& checkpoints, const Part& part) {
  const std::string folder = processes_.posted(post_name("folder"));
  if (!folder.empty()) {
    nlohmann::json said;
    try {
      said = write_own(checkpoints / folder, part);
    } catch (const std::exception& error) {
      said = error.what();
    }
    using Handler = nlohmann::json::error_handler_t;  // paths need not be UTF-8
    processes_.post(post_name(std::to_string(processes_.rank())),
                    said.dump(-1, ' ', /*ensure_ascii=*/false, Handler::replace));
  }
  ++saves_;
}

nlohmann::json joined_pieces(const std::vector<nlohmann::json>& lists, uint64_t bytes) {
  std::vector<nlohmann::json> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  std::ranges::sort(all, {}, [](const nlohmann::json& piece) { return piece.at("begin").get<uint64_t>(); });
  uint64_t end = 0;
  for (const auto& piece : all) {
    if (piece.at("begin").get<uint64_t>() != end) break;
    end += piece.at("bytes").get<uint64_t>();
  }
  if (end != bytes)
    throw checkpoint_error("the processes have written {} of {} bytes of a file without a gap.", end, bytes);
  return {{"bytes", bytes}, {"pieces", all}, {"xxh3", hex64(hash64(nlohmann::json(all).dump()))}};
}

}  // namespace tightloop
