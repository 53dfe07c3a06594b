// shrink(): a new group of those who are left. It needs the store and the survivors only, so it works when the old
// group does not any more.
//
// Those who exclude the same ranks meet in rounds, with a counter for each: who comes adds 1, who gives up adds
// kClosed. So the counter decides, once, whether all survivors have met or nobody has, also where some fail that others
// have not heard of. Whoever comes to a closed round, or is left in one, goes on to the next: so calls need not be
// equal in number, and who calls again meets those who still wait.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "worker_lib/src/exchange.hpp"
#include "worker_lib/src/fnv.hpp"
#include "worker_lib/src/group.hpp"

namespace ddp::detail {

namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kClosed = std::int64_t{1} << 40;
/// Between two looks at who has died meanwhile, and at who wants something else.
constexpr milliseconds kSlice{100};
constexpr milliseconds kPatience{5000};  ///< for what is there, or is about to be

std::string in_words(const std::vector<int>& ranks) { return ranks.empty() ? "nobody" : name_ranks(ranks); }

/// "3,5", or a hash of it: for the names of keys and groups.
std::string label_of(const std::vector<int>& ranks) {
    constexpr std::size_t kReadable = 24;
    std::string text = fmt::format("{}", fmt::join(ranks, ","));
    if (text.size() <= kReadable) return text;
    Fnv64 hash;
    hash.add(text);
    return fmt::format("{:016x}", hash.value());
}

/// What a rank wants, as it travels through the store: "SERIAL excludes 3 5", or "SERIAL withdrawn".
struct Wish {
    std::uint64_t serial = 0;  ///< of the rank's calls
    bool stands = false;
    std::vector<int> excluded;

    [[nodiscard]] std::string text() const {
        if (!stands) return fmt::format("{} withdrawn", serial);
        return fmt::format("{} excludes {}", serial, fmt::join(excluded, " "));
    }
    [[nodiscard]] static Wish parse(const std::string& text) {
        std::istringstream words(text);
        Wish wish;
        std::string state;
        words >> wish.serial >> state;
        wish.stands = state == "excludes";
        for (int rank = 0; words >> rank;) wish.excluded.push_back(rank);
        return wish;
    }
};

/// Meets the survivors and sees that all exclude the same ranks.
class Agreement {
public:
    Agreement(const GroupSpec& spec, const BackendImpl& backend, ShrinkHistory& history,
              const std::vector<int>& excluded, std::vector<int> others)
        : spec_(spec),
          backend_(backend),
          history_(history),
          wish_{.serial = ++history.calls, .stands = true, .excluded = excluded},
          others_(std::move(others)),
          size_(static_cast<std::int64_t>(others_.size()) + 1),
          label_(label_of(excluded)),
          deadline_(ddprun::Clock::now() + spec.init_timeout) {}

    /// The number of the round in which all have met. Throws Mismatch, PeerLost or Timeout, naming the ranks.
    std::uint64_t reach() {
        publish(spec_, kWishes, wish_.text());
        try {
            for (;;) {
                const std::uint64_t round = ++history_.rounds[label_];
                if (!meet(round)) continue;
                withdraw();
                return round;
            }
        } catch (const Error& error) {
            // Those who still compare shall see a difference, too.
            if (error.code() != ErrorCode::Mismatch) withdraw();
            throw;
        }
    }

private:
    static constexpr const char* kWishes = "shrink/wish";

    [[nodiscard]] std::string key(std::uint64_t round, const char* name) const {
        return group_key(spec_, fmt::format("shrink/{}/{}/{}", label_, round, name));
    }
    [[nodiscard]] std::string wish_key(int rank) const { return group_key(spec_, fmt::format("{}/{}", kWishes, rank)); }

    void withdraw() {
        wish_.stands = false;
        publish(spec_, kWishes, wish_.text());
    }

    /// False: somebody has given up in this round.
    bool meet(std::uint64_t round) {
        const std::int64_t count = spec_.store->add(key(round, "count"), 1);
        if (count > kClosed) return false;
        if (count == size_) return end(round, true);
        std::vector<int> unheard = others_;
        try {
            for (;;) {
                if (const auto met = spec_.store->try_get(key(round, "met"), kSlice)) return *met == "yes";
                hear(unheard);
                for (const int rank : others_) check_alive(rank);
                if (ddprun::Clock::now() >= deadline_) report_absent(unheard.empty() ? others_ : unheard);
            }
        } catch (const Error&) {
            if (give_up(round)) return true;
            throw;
        }
    }

    bool end(std::uint64_t round, bool met) const {
        spec_.store->set(key(round, "met"), met ? "yes" : "no");
        return met;
    }

    /// True: too late, all have met.
    [[nodiscard]] bool give_up(std::uint64_t round) const {
        const std::int64_t count = spec_.store->add(key(round, "count"), kClosed);
        if (count < 2 * kClosed) return end(round, count == kClosed + size_);
        return spec_.store->try_get(key(round, "met"), kPatience) == "yes";
    }

    /// Compares with those that have said what they exclude; the others are left.
    void hear(std::vector<int>& ranks) {
        std::vector<std::string> keys;
        for (const int rank : ranks) keys.push_back(wish_key(rank));
        const auto absent = spec_.store->missing(keys);
        std::vector<int> left;
        std::vector<int> speaking;
        std::erase_if(keys, [&](const std::string& key) { return std::ranges::find(absent, key) != absent.end(); });
        for (const int rank : ranks) {
            const bool silent = std::ranges::find(absent, wish_key(rank)) != absent.end();
            (silent ? left : speaking).push_back(rank);
        }
        const auto said = spec_.store->get_all(keys, kPatience);
        for (std::size_t i = 0; i < said.size(); ++i) {
            if (!agrees(speaking[i], Wish::parse(said[i]))) left.push_back(speaking[i]);
        }
        std::ranges::sort(left);
        ranks = std::move(left);
    }

    /// False: it is between two calls.
    [[nodiscard]] bool agrees(int rank, const Wish& theirs) {
        if (!theirs.stands || theirs.serial <= history_.refused[rank]) return false;
        if (theirs.excluded == wish_.excluded) return true;
        history_.refused[rank] = theirs.serial;
        throw Error(
            ErrorCode::Mismatch,
            fmt::format("shrink of group '{}': the survivors disagree: {} excludes {}, {} excludes {}. All must "
                        "exclude the same ranks",
                        spec_.name, backend_.name_of(spec_.rank), in_words(wish_.excluded), backend_.name_of(rank),
                        in_words(theirs.excluded)));
    }

    void check_alive(int rank) const {
        const auto state = backend_.state_of(rank);
        if (!state.gone) return;
        throw Error(ErrorCode::PeerLost,
                    fmt::format("shrink of group '{}': rank {} waits for a survivor that is none: {}. Call it again, "
                                "with that rank excluded too",
                                spec_.name, spec_.rank, state.text),
                    {rank});
    }

    [[noreturn]] void report_absent(const std::vector<int>& ranks) const {
        const auto seconds = std::chrono::duration<double>(spec_.init_timeout).count();
        std::vector<std::string> names;
        for (const int rank : ranks) names.push_back(backend_.name_of(rank));
        throw Error(ErrorCode::Timeout,
                    fmt::format("shrink of group '{}': rank {} waited {:g} s for {} to call it, too. Exclude all that "
                                "are gone",
                                spec_.name, spec_.rank, seconds, list_of(std::move(names))),
                    ranks);
    }

    const GroupSpec& spec_;
    const BackendImpl& backend_;
    ShrinkHistory& history_;
    Wish wish_;
    const std::vector<int> others_;
    const std::int64_t size_;
    const std::string label_;
    const ddprun::TimePoint deadline_;
};

std::vector<int> checked(std::span<const int> exclude, const GroupSpec& spec) {
    const auto refuse = [&](const std::string& why) {
        throw Error(ErrorCode::InvalidArgument, fmt::format("shrink of group '{}': {}", spec.name, why));
    };
    const std::set<int> excluded(exclude.begin(), exclude.end());
    const int size = static_cast<int>(spec.members.size());
    for (const int rank : excluded) {
        if (rank < 0 || rank >= size) refuse(fmt::format("there is no rank {} in a group of {}", rank, size));
    }
    if (static_cast<int>(excluded.size()) == size) refuse("all ranks are excluded, so nobody is left");
    if (excluded.contains(spec.rank)) {
        refuse(fmt::format("rank {} excludes itself. Only those who stay call it", spec.rank));
    }
    return {excluded.begin(), excluded.end()};
}

}  // namespace

std::unique_ptr<ProcessGroup> GroupImpl::shrink(std::span<const int> exclude) {
    check_process();
    const std::vector<int> excluded = checked(exclude, spec_);
    GroupSpec spec = spec_;
    spec.members.clear();
    spec.places.clear();
    std::vector<int> others;
    for (int rank = 0; rank < static_cast<int>(spec_.members.size()); ++rank) {
        if (std::ranges::binary_search(excluded, rank)) continue;
        if (rank == spec_.rank) spec.rank = static_cast<int>(spec.members.size());
        if (rank != spec_.rank) others.push_back(rank);
        spec.members.push_back(spec_.members[static_cast<std::size_t>(rank)]);
        spec.places.push_back(spec_.places[static_cast<std::size_t>(rank)]);
    }
    const std::lock_guard lock(shrink_mutex_);
    const auto round = Agreement(spec_, *backend_, shrinks_, excluded, std::move(others)).reach();
    spec.name = fmt::format("{}/shrink{}{}{}", spec_.name, round, excluded.empty() ? "" : ":", label_of(excluded));
    // All are there: their records and their connections each get half of the time.
    GroupSpec forming = spec;
    forming.init_timeout /= 2;
    return make_group(std::move(spec), backend_->kind(), forming);
}

}  // namespace ddp::detail
