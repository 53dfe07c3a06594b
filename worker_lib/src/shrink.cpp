// shrink(): a new group of those who are left. It needs the store and the survivors only, so it works when the old
// group does not any more.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "worker_lib/src/exchange.hpp"
#include "worker_lib/src/group.hpp"

namespace ddp::detail {

namespace {

using std::chrono::milliseconds;

/// Between two looks at who has died meanwhile, and at who wants something else.
constexpr milliseconds kSlice{100};
constexpr milliseconds kPatience{5000};  ///< for what is there

std::string in_words(const std::vector<int>& ranks) { return ranks.empty() ? "nobody" : name_ranks(ranks); }

/// "3 5": what a rank excludes, as it travels through the store.
std::string encode(const std::vector<int>& ranks) { return fmt::format("{}", fmt::join(ranks, " ")); }

/// Meets the survivors and sees that all exclude the same ranks.
class Agreement {
public:
    Agreement(const GroupSpec& spec, const BackendImpl& backend, std::uint64_t number, const std::vector<int>& excluded)
        : spec_(spec), backend_(backend), topic_(fmt::format("shrink/{}", number)), excluded_(excluded) {}

    /// Throws Mismatch, PeerLost or Timeout, naming the ranks.
    void reach(std::vector<int> others) {
        const auto deadline = ddprun::Clock::now() + spec_.init_timeout;
        publish(spec_, topic_, encode(excluded_));
        while (!others.empty()) {
            (void)spec_.store->try_get(key_of(others.front()), kSlice);
            hear(others);
            check_alive(others);
            if (!others.empty() && ddprun::Clock::now() >= deadline) report_absent(others);
        }
    }

private:
    std::string key_of(int rank) const { return group_key(spec_, fmt::format("{}/{}", topic_, rank)); }

    /// Compares with those that have said what they exclude; the others are left.
    void hear(std::vector<int>& ranks) const {
        std::vector<std::string> keys;
        for (const int rank : ranks) keys.push_back(key_of(rank));
        const auto absent = spec_.store->missing(keys);
        const auto is_there = [&](int rank) { return std::ranges::find(absent, key_of(rank)) == absent.end(); };
        const auto left = std::stable_partition(ranks.begin(), ranks.end(), is_there);
        std::erase_if(keys, [&](const std::string& key) { return std::ranges::find(absent, key) != absent.end(); });
        const auto said = spec_.store->get_all(keys, kPatience);
        for (std::size_t i = 0; i < said.size(); ++i) compare(ranks[i], said[i]);
        ranks.erase(ranks.begin(), left);
    }

    void compare(int rank, const std::string& said) const {
        if (said == encode(excluded_)) return;
        throw Error(
            ErrorCode::Mismatch,
            fmt::format("shrink of group '{}': the survivors disagree: rank {} excludes {}, rank {} excludes "
                        "{}. All must exclude the same ranks",
                        spec_.name, spec_.rank, in_words(excluded_), rank, said.empty() ? "nobody" : "ranks " + said),
            {rank});
    }

    void check_alive(const std::vector<int>& ranks) const {
        for (const int rank : ranks) {
            const auto state = backend_.state_of(rank);
            if (!state.gone) continue;
            throw Error(ErrorCode::PeerLost,
                        fmt::format("shrink of group '{}': rank {} waits for a survivor that is none: {}. Call it "
                                    "again, with that rank excluded too",
                                    spec_.name, spec_.rank, state.text),
                        {rank});
        }
    }

    [[noreturn]] void report_absent(const std::vector<int>& ranks) const {
        const auto seconds = std::chrono::duration<double>(spec_.init_timeout).count();
        throw Error(ErrorCode::Timeout,
                    fmt::format("shrink of group '{}': rank {} waited {:g} s for {} to call it, too. Exclude all that "
                                "are gone",
                                spec_.name, spec_.rank, seconds, name_ranks(ranks)),
                    ranks);
    }

    const GroupSpec& spec_;
    const BackendImpl& backend_;
    const std::string topic_;
    const std::vector<int>& excluded_;
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
    const std::vector<int> excluded = checked(exclude, spec_);
    const auto number = [this] {
        const std::lock_guard lock(mutex_);
        return ++shrinks_;
    }();
    GroupSpec spec = spec_;
    spec.name = fmt::format("{}/shrink{}", spec_.name, number);
    spec.members.clear();
    std::vector<int> others;
    for (int rank = 0; rank < static_cast<int>(spec_.members.size()); ++rank) {
        if (std::ranges::binary_search(excluded, rank)) continue;
        if (rank == spec_.rank) spec.rank = static_cast<int>(spec.members.size());
        if (rank != spec_.rank) others.push_back(rank);
        spec.members.push_back(spec_.members[static_cast<std::size_t>(rank)]);
    }
    Agreement(spec_, *backend_, number, excluded).reach(others);
    return make_group(std::move(spec), backend_->kind());
}

}  // namespace ddp::detail
