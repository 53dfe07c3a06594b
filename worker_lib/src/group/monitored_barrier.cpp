// monitored_barrier(): a barrier over the store, that ends in one verdict for all: everybody came, or these did not.
//
// Two phases, so that nobody blames somebody who waits as well. First every rank leaves its card and adds 1 to a
// counter; who makes it full says "ok". A rank that gives up adds kClosed: the counter decides, once, whether the
// barrier was full or is closed, and who closed it: the judge. It lists those without a card; then every rank that came
// says what it knows of them, for only their neighbours know anything; the judge puts that into the verdict, which is
// what everybody throws. Who comes late gets the verdict at once. So all stay in step, and the group is not touched.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "worker_lib/src/exchange.hpp"
#include "worker_lib/src/group.hpp"
#include "worker_lib/src/store_wait.hpp"
#include "worker_lib/src/timeouts.hpp"

namespace ddp::detail {

namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kClosed = std::int64_t{1} << 40;
constexpr milliseconds kSlice{100};      ///< so often a waiting rank looks after the dead
constexpr milliseconds kPatience{5000};  ///< for words that are under way
constexpr milliseconds kReports{1000};   ///< for those of all who came

class MonitoredBarrier {
public:
    MonitoredBarrier(const GroupSpec& spec, const BackendImpl& backend, std::uint64_t number, std::string_view where)
        : spec_(spec),
          backend_(backend),
          prefix_(group_key(spec, fmt::format("monitored/{}", number))),
          where_(where.empty() ? "" : fmt::format(" '{}'", shown_tag(where))),
          began_(ddprun::Clock::now()) {}

    void pass(ddprun::Duration timeout) {
        refuse_if_aborted(spec_, backend_, call());
        set(card(spec_.rank), backend_.name_of(spec_.rank));
        const std::int64_t count = spec_.store->add(prefix_ + "/count", 1);
        if (count == size()) return set("state", "ok");
        if (count > kClosed) return obey("it came after the others had given up: ");
        if (wait_for_state(began_ + timeout)) return obey("");
        const std::int64_t closed = spec_.store->add(prefix_ + "/count", kClosed);
        if (closed == kClosed + size()) return set("state", "ok");  // the last one died before it could say so
        if (closed < 2 * kClosed) return judge();
        obey("");
    }

    /// When all have come to the next one, nobody needs what this rank has said here.
    void forget() const {
        spec_.store->erase(key(card(spec_.rank)));
        spec_.store->erase(key(report_of(spec_.rank)));
        if (spec_.rank != 0) return;
        for (const char* const name : {"count", "state", "verdict", "second"}) spec_.store->erase(key(name));
    }

private:
    static std::string card(int rank) { return fmt::format("here/{}", rank); }
    static std::string report_of(int rank) { return fmt::format("report/{}", rank); }
    std::int64_t size() const { return static_cast<std::int64_t>(spec_.members.size()); }
    std::string key(const std::string& name) const { return fmt::format("{}/{}", prefix_, name); }
    void set(const std::string& name, const std::string& value) const { spec_.store->set(key(name), value); }
    /// Nothing: it is not there in time.
    std::optional<std::string> get(const std::string& name, milliseconds patience) const {
        return spec_.store->try_get(key(name), patience);
    }
    /// Those of `ranks` that have left no card.
    std::vector<int> without_card(std::vector<int> ranks) const {
        std::vector<std::string> keys;
        for (const int rank : ranks) keys.push_back(key(card(rank)));
        const auto absent = spec_.store->missing(keys);
        std::erase_if(ranks, [&](int rank) { return std::ranges::find(absent, key(card(rank))) == absent.end(); });
        return ranks;
    }

    /// False: it is time to give up, because of the deadline or because somebody will never come.
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
            if (!without_card(gone).empty()) return false;
            if (spec_.store->add(key("count"), 0) != size()) continue;
            set("state", "ok");  // one of them was the last, and died before it could say so
            return true;
        }
    }

    /// Does as the others: passes, or says what it knows and throws the verdict.
    void obey(const std::string& introduction) const {
        for (const bool again : {true, false}) {
            const auto state = get("state", kPatience);
            if (state == "ok") return;
            if (state) report(*state);
            if (const auto verdict = get("verdict", kPatience)) raise(*verdict, introduction);
            // The judge is gone, most likely: there is a second one.
            if (again && spec_.store->add(key("second"), 1) == 1) return judge();
        }
        throw Error(ErrorCode::Timeout,
                    fmt::format("{} has failed, but the ranks that found out have not said why. The group stays "
                                "usable if all ranks are alive",
                                title()));
    }

    /// What this rank knows of the missing ones: "3 gone rank 3 (host a, pid 7) is gone: …", a line for each.
    std::string knowledge(const std::string& missing) const {
        std::string text;
        std::istringstream words(missing);
        for (int rank = 0; words >> rank;) {
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

    void judge() const {
        const auto seconds = std::chrono::duration<double>(ddprun::Clock::now() - began_).count();
        std::vector<int> ranks(spec_.members.size());
        std::iota(ranks.begin(), ranks.end(), 0);
        const std::vector<int> missing = without_card(ranks);
        if (missing.empty()) return set("state", "ok");  // the last ones came just now
        const std::string list = fmt::format("{}", fmt::join(missing, " "));
        set("state", list);
        std::string known = knowledge(list);
        const auto enough = ddprun::Clock::now() + kReports;
        for (const int rank : ranks) {
            if (rank == spec_.rank || std::ranges::binary_search(missing, rank)) continue;
            const auto left = std::chrono::ceil<milliseconds>(enough - ddprun::Clock::now());
            known += get(report_of(rank), std::max(left, milliseconds(1))).value_or("");
        }
        const std::string verdict = compose(missing, known, seconds);
        set("verdict", verdict);
        raise(verdict, "");
    }

    std::string call() const { return fmt::format("monitored_barrier{}", where_); }
    std::string title() const { return fmt::format("group '{}': {}", spec_.name, call()); }

    /// First line: the code and the culprits; then the text.
    std::string compose(const std::vector<int>& missing, const std::string& known, double seconds) const {
        std::vector<int> gone;
        std::vector<std::string> words(spec_.members.size());
        std::istringstream lines(known);
        for (std::string line; std::getline(lines, line);) {
            std::istringstream parts(line);
            int rank = -1;
            std::string state;
            parts >> rank >> state >> std::ws;
            if (rank < 0 || rank >= static_cast<int>(words.size())) continue;
            auto& word = words[static_cast<std::size_t>(rank)];
            if (!word.empty()) continue;
            std::getline(parts, word);
            if (state == "gone") gone.push_back(rank);
        }
        std::ranges::sort(gone);
        std::string text = fmt::format("{}: {} of {} ranks did not come within {:.1f} s", title(), missing.size(),
                                       spec_.members.size(), seconds);
        for (const int rank : missing) {
            const std::string& word = words[static_cast<std::size_t>(rank)];
            const char* const between = rank == missing.front() ? ":" : text.ends_with('?') ? "" : ";";
            text += fmt::format("{} {}", between,
                                word.empty() ? backend_.name_of(rank) +
                                                   " is silent, and no rank of its node "
                                                   "came that could tell more"
                                             : word);
        }
        text = sentence(text);
        text += gone.empty() ? " The group stays usable: who still comes gets this error at once"
                             : " Without " + name_ranks(gone) + " the group is of no use: shrink() it";
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
        const std::string who = introduction.empty() ? "" : fmt::format("{}: {}", name_self(spec_), introduction);
        throw Error(static_cast<ErrorCode>(code), who + verdict.substr(end + 1), culprits);
    }

    const GroupSpec& spec_;
    const BackendImpl& backend_;
    const std::string prefix_;
    const std::string where_;
    const ddprun::TimePoint began_;
};

}  // namespace

void GroupImpl::monitored_barrier(std::chrono::milliseconds timeout, std::string_view where) {
    check_process();
    if (timeout.count() < 0) {
        throw refusal(spec_,
                      fmt::format("monitored_barrier: the timeout is {} ms. Pass 0 for the default of the group",
                                  timeout.count()));
    }
    const auto number = [this] {
        const std::lock_guard lock(mutex_);
        return ++monitored_;
    }();
    const ddprun::Duration bound = timeout.count() == 0 ? spec_.default_timeout : bounded(timeout);
    const WaitAtStore on_board = wait_at_store({"monitored_barrier", where, bound});
    MonitoredBarrier barrier(spec_, *backend_, number, where);
    barrier.pass(bound);
    if (number > 1) MonitoredBarrier(spec_, *backend_, number - 1, {}).forget();
}

}  // namespace ddp::detail
