#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "data/render/render.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

/// Places to cut `text`, about every `size` bytes, so that the parts' tokens, end to end, are `ids`, the
/// tokens of the whole. Proposed between words and verified by encoding, so they hold for any tokenizer; none
/// where none hold.
std::vector<TextCut> find_cuts(std::string_view text, std::span<const int32_t> ids,
                               const Tokenizer& tokenizer, size_t size);

/// Renders as `inner` does, and leaves in Rendered::cuts where long texts may be cut. Both references must
/// outlive it.
std::unique_ptr<Renderer> make_cutting_renderer(const Renderer& inner, const Tokenizer& tokenizer);

}  // namespace tightloop
