#pragma once

#include <cstdint>
#include <memory>

#include "data/generate/tasks.h"
#include "data/read/record.h"

namespace tightloop {

/// Generated conversations (as JSON) about spelling words and counting their letters, worked out step by
/// step: what small chat models find hard because they do not see letters. Words are made of syllables; which
/// side a question belongs to is decided by its hash (tasks.held_out_share), so that nothing held out is ever
/// learned. tasks.questions and tasks.held_out say how many.
std::unique_ptr<RecordReader> make_spelling_reader(const TasksConfig& config, bool held_out);

}  // namespace tightloop
