#pragma once
// Rules about the end of the job, and of the daemon. Private to the coordinator.

#include "rendezvous/coordinator/transition.hpp"

namespace ddprun::coordinator {

/// Ends the job: sends the verdict to every connected node. Ends the daemon as well, unless end_after_verdict() has to
/// wait. Precondition: no store is open any more.
void finish(Transition& t, Verdict verdict);
/// In kFinished: ends the daemon, unless a node that was not connected when the job ended may still come to get the
/// verdict.
void end_after_verdict(Transition& t);
/// Before kFinished: ends the daemon when no node has been connected for Config::linger.
void end_if_deserted(Transition& t);
/// Handles a signal to the daemon: ends the job, if it is not over, and the daemon.
void stop_requested(Transition& t, const StopRequested& event);

}  // namespace ddprun::coordinator
