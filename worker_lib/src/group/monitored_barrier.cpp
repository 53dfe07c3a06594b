#include "worker_lib/src/group/monitored_barrier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "common/text/words.hpp"
#include "worker_lib/src/bootstrap/exchange.hpp"

namespace ddp::detail {

namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kClosed = std::int64_t{1} << 40;
constexpr milliseconds kSlice{100};            ///< the interval at which a waiting rank looks for lost peers
constexpr milliseconds kAnswerTimeout{5000};   ///< for a value that another rank is about to set
constexpr milliseconds kReportsTimeout{1000};  ///< for the reports of all ranks that arrived

// It has two phases, so that no rank is reported absent while it waits in the barrier itself. First each rank sets its
// arrival key and adds 1 to a counter. The rank that makes the counter full sets the state "ok". A rank that
// gives up adds kClosed. The counter therefore decides once whether the barrier is full or closed, and the rank that
// closed it is the arbiter. In the second phase the arbiter lists the ranks without an arrival key, and each rank that
// arrived reports the states of those that are its neighbours. The arbiter composes the verdict, which all ranks throw.
// A late rank gets the verdict at once. So all ranks stay in step, and the group is not affected.

/// One call of monitored_barrier(). It lives on the stack of the calling thread.
class MonitoredBarrier {
public:
    MonitoredBarrier(const GroupSpec& spec, const BackendImpl& backend, std::uint64_t number, std::string_view where)
        : spec_(spec),
          backend_(backend),
          prefix_(group_key(spec, fmt::format("monitored/{}", number))),
          where_(where.empty() ? "" : fmt::format(" '{}'", shown_label(where))),
          began_(ddprun::Clock::now()) {}

    void pass(ddprun::Duration timeout) {
        refuse_if_aborted(spec_, backend_, call());
        set(arrival_of(spec_.rank), backend_.name_of(spec_.rank));
        const std::int64_t count = spec_.store->add(prefix_ + "/count", 1);
        if (count == size()) return set("state", "ok");
        if (count > kClosed) return obey("it arrived after the others had given up: ");
        if (wait_for_state(began_ + timeout)) return obey("");
        const std::int64_t closed = spec_.store->add(prefix_ + "/count", kClosed);
        if (closed == kClosed + size()) return set("state", "ok");  // the last rank died before it could set that
        if (closed < 2 * kClosed) return diagnose();
        obey("");
    }

    /// Erases the keys that this rank has set. Call it when all ranks have arrived at the next barrier.
    void forget() const {
        spec_.store->erase(key(arrival_of(spec_.rank)));
        spec_.store->erase(key(report_of(spec_.rank)));
        if (spec_.rank != 0) return;
        for (const char* const name : {"count", "state", "verdict", "second"}) spec_.store->erase(key(name));
    }

private:
    static std::string arrival_of(int rank) { return fmt::format("here/{}", rank); }
    static std::string report_of(int rank) { return fmt::format("report/{}", rank); }
    std::int64_t size() const { return static_cast<std::int64_t>(spec_.members.size()); }
    std::string key(const std::string& name) const { return fmt::format("{}/{}", prefix_, name); }
    void set(const std::string& name, const std::string& value) const { spec_.store->set(key(name), value); }
    /// Returns nothing if the value is not set in time.
    std::optional<std::string> get(const std::string& name, milliseconds timeout) const {
        return spec_.store->try_get(key(name), timeout);
    }
    /// Returns those of `ranks` that have set no arrival key.
    std::vector<int> without_arrival(std::vector<int> ranks) const {
        std::vector<std::string> keys;
        for (const int rank : ranks) keys.push_back(key(arrival_of(rank)));
        const auto absent = spec_.store->missing(keys);
        std::erase_if(ranks,
                      [&](int rank) { return std::ranges::find(absent, key(arrival_of(rank))) == absent.end(); });
        return ranks;
    }

    /// Returns false when it is time to give up: at the deadline, or because a rank will never arrive.
    bool wait_for_state(ddprun::TimePoint deadline) const {
        for (;;) {
            const auto left = std::chrono::ceil<milliseconds>(deadline - ddprun::Clock::now());
            if (get("state", std::clamp(left, milliseconds(1), kSlice))) return true;
            if (ddprun::Clock::now() >= deadline) return false;
            refuse_if_aborted(spec_, backend_, call());
            std::vector<int> gone;
            for (int rank = 0; rank < size(); ++rank) {
                if (rank != spec_.rank && backend_.state_of(rank).gone) gone.push_back(rank);
            }
            if (gone.empty()) continue;
            if (!without_arrival(gone).empty()) return false;
            if (spec_.store->add(key("count"), 0) != size()) continue;
            set("state", "ok");  // one of them was the last, and died before it could set that
            return true;
        }
    }

    /// Returns if the state is "ok". Otherwise reports the states of the missing ranks and throws the verdict.
    void obey(const std::string& introduction) const {
        for (const bool again : {true, false}) {
            const auto state = get("state", kAnswerTimeout);
            if (state == "ok") return;
            if (state) report(*state);
            if (const auto verdict = get("verdict", kAnswerTimeout)) raise(*verdict, introduction);
            // The arbiter is probably lost: the first rank to notice replaces it.
            if (again && spec_.store->add(key("second"), 1) == 1) return diagnose();
        }
        throw Error(ErrorCode::Timeout, fmt::format("{} failed, and no rank has reported the reason in time. "
                                                    "Perhaps one is lost: `ddpctl dump` shows which. If all are alive, "
                                                    "the group stays usable: call the barrier again",
                                                    title()));
    }

    /// Returns the known states of the missing ranks: "3 gone rank 3 (host a, pid 7) is gone: …", a line for each.
    std::string knowledge(const std::string& missing) const {
        std::string text;
        std::istringstream ranks(missing);
        for (int rank = 0; ranks >> rank;) {
            const RankState state = backend_.state_of(rank);
            if (state.text.empty()) continue;
            text += fmt::format("{} {} {}", rank, state.gone ? "gone" : "silent", state.text);
            if (const int pid = state.gone ? 0 : backend_.stopped_pid(rank); pid != 0)
                text += fmt::format(", and its process {} is stopped (a signal, a debugger): kill -CONT {}", pid, pid);
            text += '\n';
        }
        return text;
    }
    void report(const std::string& missing) const { set(report_of(spec_.rank), knowledge(missing)); }

    void diagnose() const {
        const auto waited = ddprun::Clock::now() - began_;
        std::vector<int> ranks(spec_.members.size());
        std::iota(ranks.begin(), ranks.end(), 0);
        const std::vector<int> missing = without_arrival(ranks);
        if (missing.empty()) return set("state", "ok");  // the last ranks have just arrived
        const std::string list = fmt::format("{}", fmt::join(missing, " "));
        set("state", list);
        std::string known = knowledge(list);
        const auto enough = ddprun::Clock::now() + kReportsTimeout;
        for (const int rank : ranks) {
            if (rank == spec_.rank || std::ranges::binary_search(missing, rank)) continue;
            const auto left = std::chrono::ceil<milliseconds>(enough - ddprun::Clock::now());
            known += get(report_of(rank), std::max(left, milliseconds(1))).value_or("");
        }
        const std::string verdict = compose(missing, known, waited);
        set("verdict", verdict);
        raise(verdict, "");
    }

    std::string call() const { return fmt::format("monitored_barrier{}", where_); }
    std::string title() const { return fmt::format("group '{}': {}", spec_.name, call()); }

    /// Returns the verdict: a line with the code and the culprits, then the text.
    std::string compose(const std::vector<int>& missing, const std::string& known,
                        std::chrono::nanoseconds waited) const {
        std::vector<int> gone;
        std::vector<std::string> texts(spec_.members.size());
        std::istringstream lines(known);
        for (std::string line; std::getline(lines, line);) {
            std::istringstream parts(line);
            int rank = -1;
            std::string state;
            parts >> rank >> state >> std::ws;
            if (rank < 0 || rank >= static_cast<int>(texts.size())) continue;
            auto& text_of_rank = texts[static_cast<std::size_t>(rank)];
            if (!text_of_rank.empty()) continue;
            std::getline(parts, text_of_rank);
            if (state == "gone") gone.push_back(rank);
        }
        std::ranges::sort(gone);
        std::string text = fmt::format("{}: {} of {} ranks did not arrive within {}", title(), missing.size(),
                                       spec_.members.size(), ddprun::rounded_seconds_text(waited));
        for (const int rank : missing) {
            const std::string& known_text = texts[static_cast<std::size_t>(rank)];
            const char* const between = rank == missing.front() ? ":" : ddprun::ends_sentence(text) ? "" : ";";
            text += fmt::format("{} {}", between,
                                known_text.empty() ? backend_.name_of(rank) +
                                                         " is silent, and no rank of its node "
                                                         "has arrived that could report more"
                                                   : known_text);
        }
        text = ddprun::sentence(text);
        text += gone.empty() ? " The group stays usable: a rank that arrives later gets this error at once"
                             : " Without " + ddprun::name_ranks(gone) + " the group cannot go on: call shrink()";
        const auto code = gone.empty() ? ErrorCode::Timeout : ErrorCode::PeerLost;
        return fmt::format("{} {}\n{}", static_cast<int>(code), fmt::join(gone.empty() ? missing : gone, " "), text);
    }

    [[noreturn]] void raise(const std::string& verdict, const std::string& introduction) const {
        const auto end = verdict.find('\n');
        std::istringstream head(verdict.substr(0, end));
        int code = 0;
        head >> code;
        std::vector<int> culprits;
        for (int rank = 0; head >> rank;) culprits.push_back(rank);
        const std::string reader = introduction.empty() ? "" : fmt::format("{}: {}", name_self(spec_), introduction);
        throw Error(static_cast<ErrorCode>(code), reader + verdict.substr(end + 1), culprits);
    }

    const GroupSpec& spec_;
    const BackendImpl& backend_;
    const std::string prefix_;
    const std::string where_;
    const ddprun::TimePoint began_;
};

}  // namespace

void pass_monitored_barrier(const GroupSpec& spec, const BackendImpl& backend, std::uint64_t number,
                            std::string_view where, ddprun::Duration timeout) {
    MonitoredBarrier(spec, backend, number, where).pass(timeout);
    if (number > 1) MonitoredBarrier(spec, backend, number - 1, {}).forget();
}

}  // namespace ddp::detail
