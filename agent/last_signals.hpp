#pragma once
// Handles signals at the end of a job, when only its output is still being written. The outcome is known by then, so a
// signal may shorten that, and never changes the exit code. Main thread.

namespace ddprun::agent {

/// Blocks stop and notify signals, for work that takes a bounded time and should not be cut short.
void hold_stop_signals();

/// Makes INT, TERM, QUIT and HUP, including those that were blocked, end this process at once with `exit_code`. USR1
/// and USR2, which were for the workers, do nothing. A hang-up that was ignored (nohup) stays ignored.
void end_on_stop_signal(int exit_code);

}  // namespace ddprun::agent
