#include "cli/verbs/inspect_gguf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "core/counted.h"
#include "core/io/gguf.h"

namespace tightloop::cli {

namespace {

struct InspectGgufOptions {
  std::string file;
  bool json = false;
};

constexpr uint64_t kShownElements = 8;  // of a list
constexpr size_t kShownBytes = 100;     // of a text

nlohmann::json element_json(const GgufValue& value, uint64_t i) {
  if (value.kind == GgufKind::kString) return value.texts[i];
  if (value.kind == GgufKind::kBool) return value.bytes[i] != 0;
  if (const auto whole = value.integer(i)) return *whole;
  return value.number(i).value_or(0);
}

/// On one line, and not much of it.
std::string shortened(const nlohmann::json& element) {
  std::string text = dump(element, -1);
  if (text.size() <= kShownBytes) return text;
  size_t end = kShownBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // whole characters
  return text.substr(0, end) + "...";
}

std::string shown_value(const GgufValue& value) {
  if (!value.list) return shortened(element_json(value, 0));
  std::string text = "[";
  for (uint64_t i = 0; i < std::min(value.count(), kShownElements); ++i)
    text += (i ? ", " : "") + shortened(element_json(value, i));
  return text + (value.count() > kShownElements ? fmt::format(", ... {} in all]", value.count()) : "]");
}

std::string kind_name(const GgufValue& value) {
  return fmt::format("{}{}", name_of(value.kind), value.list ? "[]" : "");
}

/// As torch and transformers write shapes: neighbours in memory last.
std::vector<int64_t> shape_of(const GgufTensor& tensor) {
  return {tensor.sizes.rbegin(), tensor.sizes.rend()};
}

void inspect_gguf(const InspectGgufOptions& options) {
  const GgufFile file(options.file);
  if (options.json) {
    nlohmann::json json{{"version", file.version()},
                        {"metadata", nlohmann::json::object()},
                        {"tensors", nlohmann::json::array()}};
    for (const auto& [key, value] : file.metadata().entries()) {
      auto& entry = json["metadata"][key];
      if (!value.list) {
        entry = element_json(value, 0);
        continue;
      }
      entry = nlohmann::json::array();
      for (uint64_t i = 0; i < value.count(); ++i) entry.push_back(element_json(value, i));
    }
    for (const GgufTensor& tensor : file.tensors())
      json["tensors"].push_back({{"name", tensor.name},
                                 {"type", tensor.type->name},
                                 {"shape", shape_of(tensor)},
                                 {"offset", tensor.begin},
                                 {"bytes", tensor.bytes()}});
    return put(dump(json) + "\n");
  }
  size_t widest = 0;
  int64_t values = 0;
  std::map<std::string_view, int> types;
  for (const auto& [key, value] : file.metadata().entries()) widest = std::max(widest, key.size());
  std::string out = fmt::format("GGUF version {}: {}, {}\n\n", file.version(),
                                counted(file.metadata().entries().size(), "setting"),
                                counted(file.tensors().size(), "tensor"));
  for (const auto& [key, value] : file.metadata().entries())
    out += fmt::format("{:<{}}  {:<8}  {}\n", key, widest, kind_name(value), shown_value(value));
  out += "\n";
  widest = 0;
  for (const GgufTensor& tensor : file.tensors()) widest = std::max(widest, tensor.name.size());
  for (const GgufTensor& tensor : file.tensors()) {
    out += fmt::format("{:<{}}  {:<5}  [{}]\n", tensor.name, widest, tensor.type->name,
                       fmt::join(shape_of(tensor), ", "));
    values += tensor.values(), ++types[tensor.type->name];
  }
  std::vector<std::string> kinds;
  for (const auto& [type, count] : types) kinds.push_back(fmt::format("{} of type {}", count, type));
  if (!kinds.empty()) out += fmt::format("\n{} values: {}\n", values, fmt::join(kinds, ", "));
  put(shown(out));
}

}  // namespace

void add_inspect_gguf(CLI::App& inspect) {
  auto options = std::make_shared<InspectGgufOptions>();
  auto* verb = inspect.add_subcommand("gguf", "A GGUF file: its metadata and tensors");
  verb->add_option("FILE", options->file, "A GGUF file, of any types of tensors")->required();
  verb->add_flag("--json", options->json, "For programs; with the whole lists");
  verb->footer("Example: tightloop inspect gguf mine.gguf     (or: tightloop inspect mine.gguf)");
  verb->callback([=] { inspect_gguf(*options); });
}

}  // namespace tightloop::cli
