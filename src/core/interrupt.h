#pragma once

namespace tightloop {

/// From here on Ctrl-C (SIGINT) and SIGTERM only set a flag, so that the work can save and stop in order; a
/// second one ends the program at once with exit code 130.
void catch_interrupts();
bool interrupted();
/// Forgets it, where only a part of the work was to be stopped.
void clear_interrupt();

}  // namespace tightloop
