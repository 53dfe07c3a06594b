#pragma once
// Prepares the process of ddprund before it opens anything. Called once, from main's thread.

namespace ddprun::daemon {

/// Makes writes to a closed connection fail instead of killing the process, allows as many descriptors as the system
/// does, and forbids core files, which would hold the job's secrets, and new privileges.
void prepare_process();

}  // namespace ddprun::daemon
