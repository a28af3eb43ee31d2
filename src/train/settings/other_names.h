#pragma once

#include "core/config.h"

namespace tightloop {

/// What other trainers call the settings of a recipe.
const OtherNames& other_names();

}  // namespace tightloop
