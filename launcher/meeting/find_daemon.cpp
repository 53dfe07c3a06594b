#include "launcher/meeting/find_daemon.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <thread>

#include "common/clock.hpp"
#include "common/job_limits.hpp"
#include "common/text/escape.hpp"
#include "common/text/number.hpp"
#include "launcher/meeting/reach.hpp"

namespace ddprun::launcher {
namespace {

constexpr std::chrono::milliseconds kSearchPause{100};
constexpr std::chrono::milliseconds kMaxSearchPause{1000};  // a thousand nodes may look for one daemon
constexpr std::chrono::seconds kAnswerTimeout{3};           // of a port that neither answers nor refuses
constexpr std::chrono::seconds kFirstSearchReport{3};
constexpr std::chrono::seconds kSearchReportInterval{30};

/// Search: one search for the daemon of a step. A value on the stack of find_daemon().
class Search {
public:
    Search(const StepDaemon& wanted, TimePoint end) : wanted_(wanted), end_(end) {}

    /// Asks each port once. Returns the first one with the daemon; nullopt: none has it. A step may run one ddprun
    /// after the other: the daemon of the one before may still be ending while the next one has another port.
    std::optional<Endpoint> ask_all() {
        for (const std::uint16_t port : wanted_.ports) {
            const Endpoint endpoint{wanted_.host, port};
            const StepAnswer answer = ask_step(endpoint, std::min(end_, Clock::now() + kAnswerTimeout));
            if (answer.step == wanted_.name && !answer.is_ending) return endpoint;
            if (last_.step.empty() || !answer.step.empty()) last_ = answer;  // of a daemon says more than a failure
            if (Clock::now() >= end_) break;
        }
        return std::nullopt;
    }

    /// Returns why no port was the one.
    [[nodiscard]] std::string why() const {
        if (!last_.failure.empty()) return last_.failure;
        if (last_.step.empty()) return "other programs answer at its ports";
        if (last_.step == wanted_.name)
            return "only the daemon of an earlier ddprun of this step answers, and its job is ending";
        return fmt::format("only the daemon of another job ({}) answers", log_line(last_.step, kMaxRunIdBytes));
    }

private:
    const StepDaemon& wanted_;
    TimePoint end_;
    StepAnswer last_;  ///< the newest one, or of another daemon
};

}  // namespace

Result<Endpoint> find_daemon(const StepDaemon& wanted, std::chrono::milliseconds timeout,
                             const std::function<void(const std::string&)>& report) {
    const TimePoint begin = Clock::now();
    Search search(wanted, begin + timeout);
    TimePoint report_due = begin + kFirstSearchReport;
    for (std::chrono::milliseconds pause = kSearchPause;; pause = std::min(2 * pause, kMaxSearchPause)) {
        if (auto found = search.ask_all()) return std::move(*found);
        const TimePoint now = Clock::now();
        if (now >= begin + timeout) break;
        if (now >= report_due) {
            report(fmt::format("waiting for the rendezvous daemon of {} on {}: {}; trying for {} more", wanted.title,
                               wanted.host, search.why(), duration_text(begin + timeout - now)));
            report_due = now + kSearchReportInterval;
        }
        std::this_thread::sleep_for(std::min<Duration>(pause, begin + timeout - now));
    }
    return Error{
        Errc::kTimeout,
        fmt::format("the rendezvous daemon of {} was not found on {} within {} (ports {}): {}. Check that the "
                    "ddprun of that host runs, that its name leads to it from here, and that no firewall is "
                    "between them; or pass --rdzv-endpoint HOST:PORT.",
                    wanted.title, wanted.host, seconds_text(timeout), fmt::join(wanted.ports, ", "), search.why())};
}

}  // namespace ddprun::launcher
