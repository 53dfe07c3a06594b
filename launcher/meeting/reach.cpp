#include "launcher/meeting/reach.hpp"

#include <cstddef>
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

StepAnswer step_of(const Result<HttpAnswer>& answer) {
    if (!answer) return {.step = "", .failure = answer.error().message};
    const std::string_view body = answer->body;
    const std::size_t begin = body.starts_with(kAboutDaemon) ? body.rfind(kServesStep) : std::string_view::npos;
    if (begin == std::string_view::npos || !body.ends_with(".\n")) return {};
    const std::size_t name = begin + kServesStep.size();
    return {.step = std::string(body.substr(name, body.size() - 2 - name)),
            .is_ending = reach_of(answer) == Reach::kEnding,
            .failure = ""};
}

StepAnswer ask_step(const Endpoint& address, TimePoint deadline) {
    return step_of(request_http(address, {}, {"/", "", ""}, deadline));
}

}  // namespace ddprun::launcher
