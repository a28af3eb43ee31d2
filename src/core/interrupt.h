#pragma once

namespace tightloop {

/// From here on a signal that asks the program to end (Ctrl-C, SIGTERM, SIGQUIT, and SIGHUP unless
/// nohup has it ignored) only sets a flag, so that the work can save and stop in order. A second one ends the
/// program at once with exit code 130; one within half a second of the first counts as the same (a shell,
/// `timeout` and launchers send a signal to the process and to its group). A write to a closed pipe or over
/// the limit on file sizes fails with an error instead of ending the program. SIGUSR1 asks for a save and
/// ends nothing: where nothing is saved, it does nothing. Called once, at the start of the program.
void catch_interrupts();
bool interrupted();
/// Whether a save was asked for since this was called last.
bool take_save_request();
/// Error(kInterrupted) that names the signal, where one came. For loops that may be left at any point.
void throw_if_interrupted();

/// While one lives, throw_if_interrupted() on this thread does nothing: for work that is not to be left half
/// done, after which somebody asks interrupted().
class InterruptsHeld {
 public:
  InterruptsHeld();
  ~InterruptsHeld();
  InterruptsHeld(const InterruptsHeld&) = delete;
  InterruptsHeld& operator=(const InterruptsHeld&) = delete;
};

/// Forgets a Ctrl-C, where only a part of the work was to be stopped (an answer). Other signals stay.
void clear_interrupt();

/// While one lives, the first signal already ends the program: for calls of libraries that cannot be left,
/// where nothing is to be saved.
class InterruptEndsProgram {
 public:
  InterruptEndsProgram();
  ~InterruptEndsProgram();
  InterruptEndsProgram(const InterruptEndsProgram&) = delete;
  InterruptEndsProgram& operator=(const InterruptEndsProgram&) = delete;
};

}  // namespace tightloop
