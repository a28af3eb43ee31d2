#include "model/files/gguf_layout.h"

#include <algorithm>
#include <deque>

namespace tightloop {

namespace {

std::deque<GgufLayout>& known_layouts() {
  static std::deque<GgufLayout> all;  // made by the first that is added, before main()
  return all;
}

const GgufLayout* layout_where(std::string GgufLayout::*name, const std::string& value) {
  const auto found = std::ranges::find(known_layouts(), value, name);
  return found == known_layouts().end() ? nullptr : &*found;
}

}  // namespace

const GgufLayout* gguf_layout_of(const ModelConfig& config) {
  return layout_where(&GgufLayout::family, config.family);
}

const GgufLayout* gguf_layout_with(const std::string& architecture) {
  return layout_where(&GgufLayout::architecture, architecture);
}

std::string gguf_architectures() {
  std::string names;
  for (const GgufLayout& layout : known_layouts()) names += (names.empty() ? "" : ", ") + layout.architecture;
  return names;
}

AddGguf::AddGguf(GgufLayout layout) {
  auto& all = known_layouts();
  all.insert(std::ranges::lower_bound(all, layout.architecture, {}, &GgufLayout::architecture),
             std::move(layout));
}

}  // namespace tightloop
