#pragma once
// Signals when the job is over and only what it printed is still on its way. Its end is known by then, so a signal
// changes how long that may take, and never the exit code. Main thread.

namespace ddprun::agent {

/// From here on signals wait. For what takes a bounded time and should not be cut short.
void hold_stop_signals();

/// From here on INT, TERM, QUIT and HUP, those that have waited included, end this process at once with `exit_code`;
/// USR1 and USR2, which were for the workers, do nothing. A hang-up that was ignored (nohup) stays ignored.
void end_on_stop_signal(int exit_code);

}  // namespace ddprun::agent
