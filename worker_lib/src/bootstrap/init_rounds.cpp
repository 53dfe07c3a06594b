// Keys in the store, all below "ddp/GENERATION/of-SIZE/rounds/":
//   decided            a number of a round that is over; those before it are, too. It may lag behind
//   ROUND/came/RANK    who came first as that rank: a word of its own, one of its process, and its place
//   ROUND/count        how many have come
//   ROUND/full         exists when all have come, or it is closed
//   ROUND/ready/RANK   exists once that rank has seen that it is full
//   ROUND/ready        how many have
//   ROUND/outcome      "met" or "closed", and by whom: written once

#include "worker_lib/src/init_rounds.hpp"

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
#include "worker_lib/src/environment.hpp"
#include "worker_lib/src/exchange.hpp"

namespace ddp::detail {

namespace {

using std::chrono::milliseconds;

constexpr std::string_view kMet = "met";
constexpr std::string_view kClosed = "closed";

/// Containers may have the same host name, and the same pids: no two processes have this word and a pid in common.
const std::string& word_of_process() {
    static const std::string word = ddprun::random_id();
    return word;
}

std::vector<int> others(const GroupSpec& world) {
    std::vector<int> ranks = world.members;
    std::erase(ranks, world.rank);
    return ranks;
}

class Rounds {
public:
    explicit Rounds(const GroupSpec& world)
        : world_(world),
          self_(fmt::format("{} {} host {}, pid {}", ddprun::random_id(), word_of_process(), hostname(), ::getpid())),
          deadline_(ddprun::Clock::now() + world.init_timeout) {}

    [[nodiscard]] std::int64_t meet() {
        for (std::int64_t round = first_open();; ++round) {
            if (!come(round)) continue;
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

    /// About which nothing is decided, as far as is known.
    [[nodiscard]] std::int64_t first_open() const {
        const auto decided = world_.store->try_get(key("decided"), milliseconds(0));
        if (!decided) return 1;
        std::int64_t round = 0;
        const char* const end = decided->data() + decided->size();
        if (std::from_chars(decided->data(), end, round).ptr == end && round > 0) return round + 1;
        throw Error(
            ErrorCode::Environment,
            fmt::format("group '{}': {} finds '{}' in the store under '{}', where only ddp writes numbers. Keep "
                        "keys that begin with 'ddp/' for it",
                        world_.name, name_self(world_), *decided, key("decided")));
    }

    /// Counted once for a rank. False: not by us. A process that was ended, or an attempt that lost the store, may or
    /// may not have been counted, and will not say that it is ready: who comes in its place closes the round.
    [[nodiscard]] bool come(std::int64_t round) {
        const std::string first = world_.store->set_once(key(round, fmt::format("came/{}", world_.rank)), self_);
        if (first == self_) return true;
        const bool was_open = settle(round, kClosed).ends_with(self_);
        if (!was_open || ++doubles_ == 1) return false;
        const bool same_process = process_in(self_) == process_in(first);
        throw Error(ErrorCode::Environment,
                    fmt::format("group '{}': {} ({}) finds {} in its place, again and again: {}", world_.name,
                                name_self(world_), place_in(self_), place_in(first),
                                same_process ? "two threads of this process make a Context at once. Have them do so "
                                               "one after the other"
                                             : "two processes have the same RANK. Give each its own"));
    }

    /// Waits for it. Whoever is late closes the round, unless all have met by then.
    [[nodiscard]] std::string outcome_of(std::int64_t round) {
        if (world_.store->add(key(round, "count"), 1) == world_.world_size)
            world_.store->set(key(round, "full"), "yes");
        std::optional<std::string> outcome;
        saw_full_ = world_.store->came_by({key(round, "full")}, left());
        if (saw_full_) {
            world_.store->set(key(round, fmt::format("ready/{}", world_.rank)), "yes");
            if (world_.store->add(key(round, "ready"), 1) == world_.world_size) return settle(round, kMet);
            outcome = world_.store->try_get(key(round, "outcome"), left());
        }
        return outcome ? *outcome : settle(round, kClosed);
    }

    /// What stands there first counts. Whoever closed it may have ended before it told those who wait.
    [[nodiscard]] std::string settle(std::int64_t round, std::string_view what) {
        std::string outcome = world_.store->set_once(key(round, "outcome"), fmt::format("{} {}", what, self_));
        const bool ours = outcome.ends_with(self_);
        if (ours || outcome.starts_with(kClosed)) world_.store->set(key(round, "full"), "yes");
        if (ours) world_.store->set(key("decided"), std::to_string(round));
        return outcome;
    }

    /// Who gave up before we did has come to our first round or, if it began after us, is here still: ranks wait
    /// equally long. So two looks are enough, and only for whoever gives up: a thousand ranks look at a thousand keys
    /// each.
    [[noreturn]] void report(std::int64_t last) const {
        std::vector<int> absent = absent_from(last);
        if (first_ != last) {
            const std::vector<int> earlier = absent_from(first_);
            std::vector<int> always;
            std::ranges::set_intersection(absent, earlier, std::back_inserter(always));
            if (!always.empty()) absent = std::move(always);
        }
        if (!absent.empty()) report_absent(world_, absent, "join. Did they start, and do they reach the store?");
        throw Error(ErrorCode::Timeout,
                    fmt::format("group '{}': {} waited {:g} s for all {} ranks to join, and the last of them came too "
                                "late. Have all try again, or give InitOptions a longer init_timeout",
                                world_.name, name_self(world_),
                                std::chrono::duration<double>(world_.init_timeout).count(), world_.world_size));
    }

    /// Who has not come, or if all have, who has not seen that. By closing the last round we wake those who waited like
    /// us, and they need a moment to say so: then nobody can be blamed.
    [[nodiscard]] std::vector<int> absent_from(std::int64_t round) const {
        std::vector<int> ranks = without(round, "came");
        return ranks.empty() && saw_full_ ? without(round, "ready") : ranks;
    }

    /// The other ranks of which there is no such key.
    [[nodiscard]] std::vector<int> without(std::int64_t round, std::string_view what) const {
        const auto key_of = [&](int rank) { return key(round, fmt::format("{}/{}", what, rank)); };
        std::vector<int> ranks = others(world_);
        std::vector<std::string> keys;
        for (const int rank : ranks) keys.push_back(key_of(rank));
        const auto missing = world_.store->missing(keys);
        std::erase_if(ranks, [&](int rank) { return std::ranges::find(missing, key_of(rank)) == missing.end(); });
        return ranks;
    }

    [[nodiscard]] static std::string_view process_in(std::string_view self) { return self.substr(self.find(' ') + 1); }
    [[nodiscard]] static std::string_view place_in(std::string_view self) {
        const std::string_view process = process_in(self);
        return process.substr(process.find(' ') + 1);
    }

    const GroupSpec& world_;
    const std::string self_;
    const ddprun::TimePoint deadline_;
    std::int64_t first_ = 0;  ///< round to which we have come
    int doubles_ = 0;         ///< rounds in which somebody else stood in our place
    bool saw_full_ = false;   ///< of the last round, before we gave up
};

}  // namespace

std::int64_t meet_in_round(const GroupSpec& world) { return Rounds(world).meet(); }

}  // namespace ddp::detail
