#include "launcher/meeting/reach.hpp"

namespace ddprun::launcher {

Reach reach_of(const Result<HttpAnswer>& answer) {
    // A ddprund answers a plain request with a sentence that begins so (rendezvous/transport/websocket.cpp).
    if (answer) return answer->body.starts_with("This is ddprund") ? Reach::kAnswers : Reach::kEnded;
    const bool refused = answer.error().code == boost::system::errc::connection_refused;
    return refused || answer.error().code == Errc::kMalformed ? Reach::kEnded : Reach::kSilent;
}

Reach ask_daemon(const Endpoint& address, TimePoint deadline) {
    return reach_of(request_http(address, {}, {"/", "", ""}, deadline));
}

}  // namespace ddprun::launcher
