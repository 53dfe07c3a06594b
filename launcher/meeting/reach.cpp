#include "launcher/meeting/reach.hpp"

namespace ddprun::launcher {

Reach reach_of(const Result<HttpAnswer>& answer) {
    if (answer && answer->body.starts_with("This is ddprund")) {  // rendezvous/transport/websocket.hpp: kAboutDaemon
        const auto reports = [&](const char* remark) { return answer->body.find(remark) != std::string::npos; };
        if (reports("job is ending")) return Reach::kEnding;
        return reports("has all its nodes") ? Reach::kComplete : Reach::kAnswers;
    }
    if (answer) return Reach::kEnded;
    const bool refused = answer.error().code == boost::system::errc::connection_refused;
    return refused || answer.error().code == Errc::kMalformed ? Reach::kEnded : Reach::kSilent;
}

Reach ask_daemon(const Endpoint& address, TimePoint deadline) {
    return reach_of(request_http(address, {}, {"/", "", ""}, deadline));
}

}  // namespace ddprun::launcher
