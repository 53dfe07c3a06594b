#pragma once
// What ddprund sets for its own process before it opens anything. Called once, from main's thread.

namespace ddprun::daemon {

/// Writes to a closed connection fail instead of killing; as many descriptors as the system allows; no core files,
/// which would hold the job's secrets; and no privileges that were not there at the start.
void prepare_process();

}  // namespace ddprun::daemon
