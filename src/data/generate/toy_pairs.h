#pragma once

#include <memory>

#include "data/generate/tasks.h"
#include "data/read/record.h"

namespace tightloop {

/// Sentences of simple English and their translations into a made-up language, as JSON records [source,
/// target], for trying a translator without any file. The other language puts the verb last and adjectives
/// behind their nouns, marks the object, and doubles the first syllable of a plural. tasks.questions of them,
/// or tasks.held_out that are not among those.
std::unique_ptr<RecordReader> make_toy_pair_reader(const TasksConfig& config, bool held_out);

}  // namespace tightloop
