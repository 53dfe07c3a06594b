#include "launcher/meeting/reach.hpp"

#include <string_view>

#include "common/daemon_answer.hpp"

namespace ddprun::launcher {

Reach reach_of(const Result<HttpAnswer>& answer) {
    if (answer && answer->body.starts_with(kAboutDaemon)) {
        const std::string_view job = std::string_view(answer->body).substr(kAboutDaemon.size());
        if (job.starts_with(kJobIsEnding)) return Reach::kEnding;
        return job.starts_with(kJobIsComplete) ? Reach::kComplete : Reach::kAnswers;
    }
    if (answer) return Reach::kEnded;
    const bool refused = answer.error().code == boost::system::errc::connection_refused;
    return refused || answer.error().code == Errc::kMalformed ? Reach::kEnded : Reach::kSilent;
}

Reach ask_daemon(const Endpoint& address, TimePoint deadline) {
    return reach_of(request_http(address, {}, {"/", "", ""}, deadline));
}

}  // namespace ddprun::launcher
