#pragma once

#include <string>
#include <vector>

#include "train/watch/run_view.h"

namespace tightloop {

/// A view as lines of at most `width` columns: progress, losses, speed and memory, what was saved and warned
/// of. What does not fit into a line goes into the next; what is not known is left out. `now` is unix_time();
/// `colours`: with ANSI styles; `whole_reason`: why it crashed is as long as it is.
std::vector<std::string> view_lines(const RunView& view, int width, double now, bool colours,
                                    bool whole_reason = false);

/// The best evaluation: "2.3145 at 300", by another measure "accuracy 0.4120 at 300"; empty where there is
/// none.
std::string best_text(const RunView& view);

/// "2.3145", or "NaN".
std::string shown_loss(double loss);

}  // namespace tightloop
