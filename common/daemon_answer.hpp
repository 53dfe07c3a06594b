#pragma once
// The answer of ddprund to a plain HTTP request, for people and for the nodes at a meeting point. Written by
// rendezvous/transport/websocket.cpp and rendezvous/daemon/sessions.cpp, read by launcher/meeting/reach.cpp, perhaps of
// another version of ddprun: these texts stay as they are.

#include <string_view>

namespace ddprun {

inline constexpr std::string_view kAboutDaemon =
    "This is ddprund, the rendezvous daemon of ddprun. Only its agents are served here.\n";
/// The second line, if the job does not take a node that joins now.
inline constexpr std::string_view kJobIsComplete = "Its job has all its nodes.\n";
inline constexpr std::string_view kJobIsEnding = "Its job is ending.\n";
/// The last line, of the daemon of a scheduler's job step: this, the name of the step, and ".\n".
inline constexpr std::string_view kServesStep = "It serves ";

}  // namespace ddprun
