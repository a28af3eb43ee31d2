#pragma once

#include <string>

#include "core/config.h"
#include "model/files/safetensors.h"
#include "model/model_config.h"
#include "support.h"

namespace tightloop::testing {

/// A file of tests/golden: other libraries' answers.
class Golden {
 public:
  explicit Golden(const std::string& name)
      : file_(read_safetensors(source_folder() / "tests/golden" / name)) {}

  const at::Tensor& operator[](const std::string& name) const { return file_.tensors.at(name); }
  /// The tensors whose names begin so, without that beginning.
  Safetensors part(const std::string& prefix) const {
    Safetensors part;
    for (const auto& [name, tensor] : file_.tensors)
      if (name.starts_with(prefix)) part.tensors[name.substr(prefix.size())] = tensor;
    return part;
  }
  /// The model of a case: the metadata holds settings as a recipe would have them.
  ModelConfig config(const std::string& name) const {
    ModelConfig config;
    Config settings;
    settings.add_section("model", config, "");
    settings.load_text("model: " + file_.metadata.at(name), name);  // JSON is YAML
    config.resolve(0, 0);
    return config;
  }

 private:
  Safetensors file_;
};

}  // namespace tightloop::testing
