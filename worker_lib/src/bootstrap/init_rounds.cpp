// Keys in the store, all below "ddp/GENERATION/of-SIZE/rounds/":
//   decided            the number of a decided round; all rounds before it are decided, too. It may lag behind
//   ROUND/came/RANK    the Attempt that joined first as that rank
//   ROUND/count        how many ranks have joined
//   ROUND/full         exists when all ranks have joined, or the round is closed
//   ROUND/ready/RANK   exists when that rank has seen that the round is full
//   ROUND/ready        how many ranks have seen that
//   ROUND/outcome      "met" or "closed", and the Attempt that decided: written once

#include "worker_lib/src/bootstrap/init_rounds.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/clock.hpp"
#include "common/ids.hpp"
#include "common/text/number.hpp"
#include "worker_lib/src/bootstrap/environment.hpp"
#include "worker_lib/src/bootstrap/exchange.hpp"

namespace ddp::detail {

namespace {

using std::chrono::milliseconds;

constexpr std::string_view kMet = "met";
constexpr std::string_view kClosedRound = "closed";

/// Returns a random id of this process. Containers may have the same host name and the same pids: no two processes have
/// this id and a pid in common.
const std::string& process_id() {
    static const std::string id = ddprun::random_id();
    return id;
}

std::vector<int> others(const GroupSpec& world) {
    std::vector<int> ranks = world.members;
    std::erase(ranks, world.rank);
    return ranks;
}

/// One attempt of a process to meet the other ranks, as it is written in the store.
struct Attempt {
    std::string id;       ///< random
    std::string process;  ///< process_id()
    std::string place;    ///< "host a, pid 7"

    [[nodiscard]] std::string text() const { return fmt::format("{} {} {}", id, process, place); }
    /// Splits text(). A text of another form is taken as an id.
    [[nodiscard]] static Attempt parse(std::string_view text) {
        const auto id_end = std::min(text.find(' '), text.size());
        const auto process_end = std::min(text.find(' ', id_end + 1), text.size());
        const auto between = [&](std::size_t begin, std::size_t end) {
            return std::string(begin < end ? text.substr(begin, end - begin) : std::string_view{});
        };
        return {between(0, id_end), between(id_end + 1, process_end), between(process_end + 1, text.size())};
    }
};

/// The attempt of this process. It lives on the stack of the thread that makes the Context.
class Rounds {
public:
    explicit Rounds(const GroupSpec& world)
        : world_(world),
          attempt_{ddprun::random_id(), process_id(), fmt::format("host {}, pid {}", hostname(), ::getpid())},
          self_(attempt_.text()),
          deadline_(ddprun::Clock::now() + world.init_timeout) {}

    [[nodiscard]] std::int64_t meet() {
        for (std::int64_t round = first_open();; ++round) {
            if (!join(round)) continue;
            if (first_ == 0) first_ = round;
            if (outcome_of(round).starts_with(kMet)) return round;
            if (ddprun::Clock::now() >= deadline_) report(round);
        }
    }

private:
    [[nodiscard]] std::string key(std::string_view name) const {
        return fmt::format("ddp/{}/of-{}/rounds/{}", world_.generation, world_.world_size, name);
    }
    [[nodiscard]] std::string key(std::int64_t round, std::string_view name) const {
        return key(fmt::format("{}/{}", round, name));
    }
    [[nodiscard]] milliseconds left() const {
        return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(deadline_ - ddprun::Clock::now()));
    }

    /// Returns the first undecided round, as far as is known.
    [[nodiscard]] std::int64_t first_open() const {
        const auto decided = world_.store->try_get(key("decided"), milliseconds(0));
        if (!decided) return 1;
        std::int64_t round = 0;
        const char* const end = decided->data() + decided->size();
        if (std::from_chars(decided->data(), end, round).ptr == end && round > 0) return round + 1;
        throw Error(ErrorCode::Environment,
                    fmt::format("group '{}': {} finds '{}' in the store under '{}', where only ddp writes numbers. Use "
                                "other names for your own keys: those that begin with 'ddp/' are reserved for ddp",
                                world_.name, name_self(world_), *decided, key("decided")));
    }

    /// Joins a round, in which each rank is counted once. Returns false if another process or attempt has joined as
    /// this rank. If that one has ended or lost the store, it may not have been counted and will not report that it is
    /// ready. Therefore its successor closes the round.
    [[nodiscard]] bool join(std::int64_t round) {
        const std::string first = world_.store->set_once(key(round, fmt::format("came/{}", world_.rank)), self_);
        if (first == self_) return true;
        const bool was_open = settle(round, kClosedRound).ends_with(self_);
        if (!was_open || ++doubles_ == 1) return false;
        const Attempt other = Attempt::parse(first);
        const bool same_process = other.process == attempt_.process && other.place == attempt_.place;
        throw Error(ErrorCode::Environment,
                    fmt::format("group '{}': {} ({}) cannot join, because {} has joined as the same rank: {}",
                                world_.name, name_self(world_), attempt_.place, other.place,
                                same_process ? "two threads of this process make a Context at the same time. Have them "
                                               "do so one after the other"
                                             : "two processes have the same RANK. Give each its own"));
    }

    /// Waits for the outcome. After the deadline it closes the round, unless all have met by then.
    [[nodiscard]] std::string outcome_of(std::int64_t round) {
        if (world_.store->add(key(round, "count"), 1) == world_.world_size)
            world_.store->set(key(round, "full"), "yes");
        std::optional<std::string> outcome;
        saw_full_ = world_.store->wait_for_keys({key(round, "full")}, left());
        if (saw_full_) {
            world_.store->set(key(round, fmt::format("ready/{}", world_.rank)), "yes");
            if (world_.store->add(key(round, "ready"), 1) == world_.world_size) return settle(round, kMet);
            outcome = world_.store->try_get(key(round, "outcome"), left());
        }
        return outcome ? *outcome : settle(round, kClosedRound);
    }

    /// Decides a round, if it is undecided, and returns the outcome. It wakes the waiting ranks of a closed round
    /// again: the rank that closed it may have ended before it did so.
    [[nodiscard]] std::string settle(std::int64_t round, std::string_view what) {
        std::string outcome = world_.store->set_once(key(round, "outcome"), fmt::format("{} {}", what, self_));
        const bool ours = outcome.ends_with(self_);
        if (ours || outcome.starts_with(kClosedRound)) world_.store->set(key(round, "full"), "yes");
        if (ours) world_.store->set(key("decided"), std::to_string(round));
        return outcome;
    }

    /// Throws the timeout. All ranks wait equally long, so a rank that gave up before us joined our first round, and a
    /// rank that began after us is still in the last. The ranks absent from both never joined. Only a rank that gives
    /// up reads these keys, because there is one per rank.
    [[noreturn]] void report(std::int64_t last) const {
        std::vector<int> absent = absent_from(last);
        if (first_ != last) {
            const std::vector<int> earlier = absent_from(first_);
            std::vector<int> always;
            std::ranges::set_intersection(absent, earlier, std::back_inserter(always));
            if (!always.empty()) absent = std::move(always);
        }
        if (!absent.empty()) report_absent(world_, absent, "join. Did they start, and do they reach the store?");
        throw Error(
            ErrorCode::Timeout,
            fmt::format("group '{}': {} waited {} for all {} ranks to join, and the last of them joined too "
                        "late. Have all try again, or give InitOptions a longer init_timeout",
                        world_.name, name_self(world_), ddprun::seconds_text(world_.init_timeout), world_.world_size));
    }

    /// Returns the ranks that have not joined. If all have joined, returns those that have not reported that they are
    /// ready, but none if we closed the round before it was full: the ranks that this woke need a moment to report.
    [[nodiscard]] std::vector<int> absent_from(std::int64_t round) const {
        std::vector<int> ranks = without(round, "came");
        return ranks.empty() && saw_full_ ? without(round, "ready") : ranks;
    }

    /// Returns the other ranks for which there is no such key.
    [[nodiscard]] std::vector<int> without(std::int64_t round, std::string_view what) const {
        const auto key_of = [&](int rank) { return key(round, fmt::format("{}/{}", what, rank)); };
        std::vector<int> ranks = others(world_);
        std::vector<std::string> keys;
        for (const int rank : ranks) keys.push_back(key_of(rank));
        const auto missing = world_.store->missing(keys);
        std::erase_if(ranks, [&](int rank) { return std::ranges::find(missing, key_of(rank)) == missing.end(); });
        return ranks;
    }

    const GroupSpec& world_;
    const Attempt attempt_;
    const std::string self_;  ///< attempt_ as text
    const ddprun::TimePoint deadline_;
    std::int64_t first_ = 0;  ///< the first round that we joined
    int doubles_ = 0;         ///< rounds in which another process or attempt had joined as this rank
    bool saw_full_ = false;   ///< the last round was full before we gave up
};

}  // namespace

std::int64_t meet_in_round(const GroupSpec& world) { return Rounds(world).meet(); }

}  // namespace ddp::detail
