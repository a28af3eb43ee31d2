#pragma once

#include <set>
#include <string>

namespace tightloop {

/// Whether a run may go on with another value. What decides the model's function and shapes, ids, or the
/// order of the data may not, and what nobody has thought about may not either. Other files may (see
/// names_files): they are compared by what is in them.
bool may_change(const std::string& key);
const std::set<std::string>& settings_that_may_change();
/// Settings that name data files.
bool names_files(const std::string& key);

}  // namespace tightloop
