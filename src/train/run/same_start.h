#pragma once

#include <c10/core/ScalarType.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "core/device.h"
#include "dist/agreement.h"
#include "dist/processes.h"
#include "train/run/run_folder.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// What must be the same in every process of a run before it begins: the program's version, the settings but
/// for those that say where and with how many threads a process works, and what is in the data files,
/// wherever they are.
std::vector<Fact> start_facts(Recipe recipe);
/// An error that names the ranks that differ, in every process the same.
void require_same_start(Processes& processes, const Recipe& recipe);

/// The same for what computes: a machine whose GPU is not found takes its CPU (train.device auto), and
/// precision auto may mean another dtype there. Their tensors would wait for each other for ever.
std::vector<Fact> device_facts(const Device& device, at::ScalarType dtype);
void require_same_device(Processes& processes, const Device& device, at::ScalarType dtype);

/// The same for what has become of the data: the tokenizer, and how many documents and tokens there are, by
/// the `metadata` of the run's checkpoints.
void require_same_data(Processes& processes, const RunFolder& run, const nlohmann::json& metadata);

}  // namespace tightloop
