// shrink(): a new group of those who are left. It needs the store and the survivors only, so it works when the old
// group does not any more.
//
// Those who exclude the same ranks meet in rounds, with a counter for each: who comes adds 1, who gives up adds
// kClosed. So the counter decides, once, whether all survivors have met or nobody has, also where some fail that others
// have not heard of. Whoever comes to a closed round, or is left in one, goes on to the next: so calls need not be
// equal in number, and who calls again meets those who still wait.
//
// Two sides that exclude each other must not both go on. Whoever decides for a side says first that it has formed, and
// looks at the other side's wishes then: so at least one of two sees the other. The larger one goes on.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <thread>
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
constexpr milliseconds kGrace{1000};     ///< for a larger side that may be about to exclude us

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

/// What a rank wants, as it travels through the store: "SERIAL excludes 3 5", "SERIAL formed 3 5" when that has come
/// true, or "SERIAL withdrawn".
struct Wish {
    enum class State { kWithdrawn, kStands, kFormed };
    std::uint64_t serial = 0;  ///< of the rank's calls
    State state = State::kWithdrawn;
    std::vector<int> excluded;

    [[nodiscard]] std::string text() const {
        if (state == State::kWithdrawn) return fmt::format("{} withdrawn", serial);
        const char* const word = state == State::kFormed ? "formed" : "excludes";
        return fmt::format("{} {} {}", serial, word, fmt::join(excluded, " "));
    }
    [[nodiscard]] static Wish parse(const std::string& text) {
        std::istringstream words(text);
        Wish wish;
        std::string word;
        words >> wish.serial >> word;
        if (word == "excludes") wish.state = State::kStands;
        if (word == "formed") wish.state = State::kFormed;
        for (int rank = 0; words >> rank;) wish.excluded.push_back(rank);
        return wish;
    }
};

/// Those who stay, of a group of `size`.
std::vector<int> side_without(const std::vector<int>& excluded, int size) {
    std::vector<int> side(static_cast<std::size_t>(size));
    std::iota(side.begin(), side.end(), 0);
    std::erase_if(side, [&](int rank) { return std::ranges::find(excluded, rank) != excluded.end(); });
    return side;
}

bool have_nobody_in_common(const std::vector<int>& a, const std::vector<int>& b) {
    return std::ranges::none_of(a, [&](int rank) { return std::ranges::find(b, rank) != b.end(); });
}

/// Which of two sides goes on: the larger one, of equal ones that with the lowest rank.
bool beats(const std::vector<int>& a, const std::vector<int>& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
}

/// Meets the survivors and sees that all exclude the same ranks.
class Agreement {
public:
    Agreement(const GroupSpec& spec, const BackendImpl& backend, ShrinkHistory& history,
              const std::vector<int>& excluded, std::vector<int> others)
        : spec_(spec),
          backend_(backend),
          history_(history),
          wish_{.serial = ++history.calls, .state = Wish::State::kStands, .excluded = excluded},
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
                say(Wish::State::kFormed);
                return round;
            }
        } catch (const Error& error) {
            // Those who still compare shall see a difference, too.
            if (error.code() != ErrorCode::Mismatch) say(Wish::State::kWithdrawn);
            throw;
        }
    }

private:
    static constexpr const char* kWishes = "shrink/wish";

    [[nodiscard]] std::string key(std::uint64_t round, const char* name) const {
        return group_key(spec_, fmt::format("shrink/{}/{}/{}", label_, round, name));
    }
    [[nodiscard]] std::string wish_key(int rank) const { return group_key(spec_, fmt::format("{}/{}", kWishes, rank)); }

    void say(Wish::State state) {
        wish_.state = state;
        publish(spec_, kWishes, wish_.text());
    }

    /// False: somebody has given up in this round.
    bool meet(std::uint64_t round) {
        const std::int64_t count = spec_.store->add(key(round, "count"), 1);
        if (count > kClosed) return false;
        std::vector<int> unheard = others_;
        try {
            if (count == size_) return decide(round);
            for (;;) {
                if (const auto met = spec_.store->try_get(key(round, "met"), kSlice)) return obey(*met);
                hear(unheard);
                (void)rivals_that_formed();
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

    /// All have met: for them, whether they may go on. Throws Mismatch if not.
    bool decide(std::uint64_t round) {
        say(Wish::State::kFormed);
        try {
            outlast_rivals();
        } catch (const Error& error) {
            say(Wish::State::kStands);
            spec_.store->set(key(round, "met"), error.what());
            throw;
        }
        return end(round, true);
    }

    /// What was decided: "yes", "no", or why not.
    static bool obey(const std::string& met) {
        if (met == "yes" || met == "no") return met == "yes";
        throw Error(ErrorCode::Mismatch, met);
    }

    /// True: too late, all have met.
    [[nodiscard]] bool give_up(std::uint64_t round) {
        const std::int64_t count = spec_.store->add(key(round, "count"), kClosed);
        if (count >= 2 * kClosed) return spec_.store->try_get(key(round, "met"), kPatience) == "yes";
        if (count != kClosed + size_) return end(round, false);
        // Unless who was to decide died before it could.
        if (const auto met = spec_.store->try_get(key(round, "met"), 2 * kGrace)) return obey(*met);
        return decide(round);
    }

    /// Returns when no other side can go on, too.
    void outlast_rivals() const {
        if (wish_.excluded.empty()) return;
        const int ranks = static_cast<int>(spec_.members.size());
        const bool wins = beats(side_without(wish_.excluded, ranks), wish_.excluded);
        const auto enough = ddprun::Clock::now() + kGrace;
        for (;;) {
            const std::vector<int> formed = rivals_that_formed();
            const bool late = ddprun::Clock::now() >= enough;
            const auto is_gone = [&](int rank) { return backend_.state_of(rank).gone; };
            if (formed.empty() && (wins || late || std::ranges::all_of(wish_.excluded, is_gone))) return;
            if (late) {
                throw Error(ErrorCode::Mismatch,
                            fmt::format("shrink of group '{}': {} has gone on already in a group without {}. Two parts "
                                        "of a job must not go on side by side: end that one, or this",
                                        spec_.name, backend_.name_of(formed.front()), backend_.name_of(spec_.rank)));
            }
            std::this_thread::sleep_for(kSlice);
        }
    }

    /// Those of the excluded who live, exclude our whole side and have formed theirs. Throws Mismatch if there is a
    /// side that goes on before ours, formed or not.
    [[nodiscard]] std::vector<int> rivals_that_formed() const {
        const int ranks = static_cast<int>(spec_.members.size());
        const std::vector<int> ours = side_without(wish_.excluded, ranks);
        std::vector<int> formed;
        for (const auto& [rank, wish] : wishes_of(wish_.excluded)) {
            if (wish.state == Wish::State::kWithdrawn || backend_.state_of(rank).gone) continue;
            const std::vector<int> theirs = side_without(wish.excluded, ranks);
            if (!have_nobody_in_common(ours, theirs)) continue;
            if (beats(theirs, ours)) {
                throw Error(ErrorCode::Mismatch,
                            fmt::format("shrink of group '{}': {} exclude{} {}, which excludes {}. Of two sides the "
                                        "larger one goes on, of equal ones that with the lowest rank: not this one",
                                        spec_.name, name_ranks(theirs), theirs.size() == 1 ? "s" : "",
                                        backend_.name_of(spec_.rank), in_words(wish_.excluded)));
            }
            if (wish.state == Wish::State::kFormed) formed.push_back(rank);
        }
        return formed;
    }

    /// Of those who have said anything.
    [[nodiscard]] std::map<int, Wish> wishes_of(std::vector<int> ranks) const {
        std::vector<std::string> keys;
        for (const int rank : ranks) keys.push_back(wish_key(rank));
        const auto absent = spec_.store->missing(keys);
        const auto is_absent = [&](const std::string& key) { return std::ranges::find(absent, key) != absent.end(); };
        std::erase_if(ranks, [&](int rank) { return is_absent(wish_key(rank)); });
        std::erase_if(keys, is_absent);
        const auto said = spec_.store->get_all(keys, kPatience);
        std::map<int, Wish> wishes;
        for (std::size_t i = 0; i < said.size(); ++i) wishes.emplace(ranks[i], Wish::parse(said[i]));
        return wishes;
    }

    /// Compares with those that have said what they exclude; the others are left.
    void hear(std::vector<int>& ranks) {
        for (const auto& [rank, wish] : wishes_of(ranks)) {
            if (agrees(rank, wish)) std::erase(ranks, rank);
        }
    }

    /// False: it is between two calls.
    [[nodiscard]] bool agrees(int rank, const Wish& theirs) {
        if (theirs.state != Wish::State::kStands || theirs.serial <= history_.refused[rank]) return false;
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
