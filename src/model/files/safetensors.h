#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tightloop {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Writes tensors (any device, made dense) and text metadata as a .safetensors file, synced to disk.
/// Gives the checksum of what was written. Calls wrote(bytes) after every piece; what it throws ends the
/// writing.
uint64_t write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                           const std::map<std::string, std::string>& metadata = {},
                           const std::function<void(uint64_t)>& wrote = {});
uint64_t bytes_of(const NamedTensors& tensors);

/// Where everything is in a .safetensors file, for those who write it in pieces.
struct SafetensorsLayout {
  struct Tensor {
    std::string name;
    at::ScalarType dtype;
    std::vector<int64_t> sizes;
  };
  SafetensorsLayout(const std::vector<Tensor>& tensors, const std::map<std::string, std::string>& metadata);

  std::string head;                       // what the file begins with
  std::map<std::string, uint64_t> begin;  // of each tensor's bytes in the file
  uint64_t bytes = 0;                     // of the file
};

/// A .safetensors file, memory-mapped. The tensors share the map, which lives as long as any of them.
struct Safetensors {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Reads strictly: a header that does not describe exactly the bytes there (truncated, overlaps, holes, wrong
/// sizes, a name twice, one of more than 100 MB) is a checkpoint error that names the file.
Safetensors read_safetensors(const std::filesystem::path& path);

/// The tensors of a folder, and the file that each is in.
struct TensorFiles {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::filesystem::path> file_of;
};

/// model.safetensors, or the shards that model.safetensors.index.json lists. Each shard must hold exactly
/// what the index says.
TensorFiles read_tensor_files(const std::filesystem::path& folder);

}  // namespace tightloop
