#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/random.h"
#include "data/generate/tasks.h"
#include "data/read/record.h"

namespace tightloop {

/// A record made up: the part that decides by its hash which side it belongs to, and the whole as JSON.
struct GeneratedRecord {
  std::string key, json;
};

/// tasks.questions records from a generator, or tasks.held_out of those that are held out
/// (tasks.held_out_share): the same on every machine, and none on both sides.
std::unique_ptr<RecordReader> make_generated_reader(const std::string& name, const TasksConfig& config,
                                                    bool held_out,
                                                    std::function<GeneratedRecord(Random&)> generate);

}  // namespace tightloop
