#include "worker_lib/src/bootstrap/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "common/text/number.hpp"
#include "common/text/words.hpp"

namespace ddp::detail {

namespace {

using std::chrono::milliseconds;

/// Time to wait for each key after the deadline, so that the error names all absent ranks.
constexpr milliseconds kLastLook{20};
/// Intervals at which a rank of a connected group looks for failures: the first and the longest one.
constexpr milliseconds kFirstSlice{100};
constexpr milliseconds kMaxSlice{4'000};

milliseconds until(ddprun::TimePoint deadline) {
    return std::max(kLastLook, std::chrono::ceil<milliseconds>(deadline - ddprun::Clock::now()));
}

std::string rank_key(const GroupSpec& spec, std::string_view topic, int rank) {
    return group_key(spec, fmt::format("{}/{}", topic, rank));
}

/// Throws if the group knows that the exchange cannot complete. A rank that finds another one lost reports that in the
/// store, because it may be the only one that knows: it shares the lost rank's node, or it is the leader of its own.
void check_for_failure(const GroupSpec& spec, std::string_view topic, const std::vector<int>& others,
                       const PeerStates& backend, std::string_view call) {
    refuse_if_aborted(spec, backend, call);
    const std::string report_key = group_key(spec, fmt::format("{}/gone", topic));
    const auto report = [&](int rank, std::string_view state) {
        throw Error(
            ErrorCode::PeerLost,
            fmt::format("group '{}': {} calls {}, which waits for all ranks: {} Call shrink() to go on without it",
                        spec.name, name_rank(spec, spec.rank), call, ddprun::sentence(state)),
            {rank});
    };
    for (const int rank : others) {
        const auto state = backend.state_of(rank);
        // A rank that is gone may have published before it ended.
        if (!state.gone || spec.store->missing({rank_key(spec, topic, rank)}).empty()) continue;
        spec.store->set(report_key, fmt::format("{} {}", rank, state.text));
        report(rank, state.text);
    }
    if (const auto reported = spec.store->try_get(report_key, milliseconds(1))) {
        const auto end = reported->find(' ');
        report(std::stoi(reported->substr(0, end)), reported->substr(end + 1));
    }
}

std::string giving_up_key(const GroupSpec& spec, std::string_view topic) {
    return group_key(spec, fmt::format("{}/given-up", topic));
}

/// Reports to ranks that arrive later that this one has given up. Without the report they would find its value and wait
/// for the others until their own timeout.
void report_giving_up(const GroupSpec& spec, std::string_view topic, const std::vector<int>& absent) {
    try {
        spec.store->set(giving_up_key(spec, topic),
                        fmt::format("{} had given up by then, after {} of waiting for {}", name_rank(spec, spec.rank),
                                    ddprun::seconds_text(spec.init_timeout), name_ranks(spec, absent)));
    } catch (const Error&) {  // the error about the absent ranks is the one that counts
    }
}

void refuse_if_given_up(const GroupSpec& spec, std::string_view topic, std::string_view call) {
    const auto reported = spec.store->try_get(giving_up_key(spec, topic), milliseconds(0));
    if (!reported) return;
    throw Error(ErrorCode::Timeout,
                fmt::format("group '{}': {} calls {}, but {}. Have all ranks call it within InitOptions::init_timeout "
                            "of each other, or make that longer",
                            spec.name, name_rank(spec, spec.rank), call, *reported));
}

/// Waits until all others have published or the deadline has passed. Throws as soon as a failure is known. It looks for
/// failures with exponential backoff, because a thousand ranks may wait for one that loads data for an hour.
void wait_for_others(const GroupSpec& spec, std::string_view topic, const std::vector<int>& others,
                     const std::vector<std::string>& keys, const PeerStates& backend, std::string_view call,
                     ddprun::TimePoint deadline) {
    for (milliseconds slice = kFirstSlice; !spec.store->wait_for_keys(keys, std::min(until(deadline), slice));
         slice = std::min(2 * slice, kMaxSlice)) {
        check_for_failure(spec, topic, others, backend, call);
        if (ddprun::Clock::now() >= deadline) return;
    }
}

/// Stores the values of the ranks that have published by the deadline, and returns the absent ranks.
std::vector<int> take_published(const GroupSpec& spec, const std::vector<int>& others,
                                const std::vector<std::string>& keys, std::vector<std::string>& values) {
    std::vector<int> absent;
    const std::vector<std::string> missing = spec.store->missing(keys);
    for (std::size_t i = 0; i < others.size(); ++i) {
        const bool here = std::ranges::find(missing, keys[i]) == missing.end();
        auto published = here ? spec.store->try_get(keys[i], kLastLook) : std::nullopt;
        if (published) {
            values[static_cast<std::size_t>(others[i])] = std::move(*published);
        } else {
            absent.push_back(others[i]);
        }
    }
    return absent;
}

}  // namespace

std::string group_key(const GroupSpec& spec, std::string_view name) {
    const std::string again = spec.init > 1 ? fmt::format("init-{}/", spec.init) : "";
    return fmt::format("ddp/{}/of-{}/{}{}/{}", spec.generation, spec.world_size, again, path_of(spec), name);
}

void publish(const GroupSpec& spec, std::string_view topic, std::string_view value) {
    spec.store->set(rank_key(spec, topic, spec.rank), value);
}

std::vector<std::string> exchange(const GroupSpec& spec, std::string_view topic, std::string_view value,
                                  const PeerStates* backend, std::string_view call) {
    const auto deadline = ddprun::Clock::now() + spec.init_timeout;
    publish(spec, topic, value);

    const int size = static_cast<int>(spec.members.size());
    std::vector<int> others;
    std::vector<std::string> keys;
    for (int rank = 0; rank < size; ++rank) {
        if (rank == spec.rank) continue;
        others.push_back(rank);
        keys.push_back(rank_key(spec, topic, rank));
    }
    std::vector<std::string> values(static_cast<std::size_t>(size));
    values[static_cast<std::size_t>(spec.rank)] = value;
    bool complete = false;
    if (backend != nullptr) wait_for_others(spec, topic, others, keys, *backend, call, deadline);
    // One call for all keys costs two round trips, for any number of ranks.
    try {
        std::vector<std::string> got = spec.store->get_all(keys, until(deadline));
        for (std::size_t i = 0; i < others.size(); ++i) values[static_cast<std::size_t>(others[i])] = std::move(got[i]);
        complete = true;
    } catch (const Error& error) {
        if (error.code() != ErrorCode::Timeout) throw;
    }
    const std::vector<int> absent = complete ? std::vector<int>() : take_published(spec, others, keys, values);
    if (absent.empty()) {
        if (!call.empty()) refuse_if_given_up(spec, topic, call);
        return values;
    }
    if (!call.empty()) report_giving_up(spec, topic, absent);
    report_absent(spec, absent,
                  call.empty() ? "publish their addresses. All had joined: they have ended since, lost the store, or "
                                 "given up waiting. See their own errors"
                               : fmt::format("call {}, too. All ranks of the group call it", call));
}

void report_absent(const GroupSpec& spec, const std::vector<int>& absent, std::string_view wanted) {
    throw Error(
        ErrorCode::Timeout,
        fmt::format("group '{}': {} waited {} for {} of {} to {}", spec.name, name_rank(spec, spec.rank),
                    ddprun::seconds_text(spec.init_timeout), name_ranks(spec, absent), spec.members.size(), wanted),
        absent);
}

void refuse_if_aborted(const GroupSpec& spec, const PeerStates& backend, std::string_view call) {
    const auto failure = backend.failure();
    if (!failure || failure->code() != ErrorCode::Aborted) return;
    throw failure->reworded(
        fmt::format("{} of group '{}' cannot run: the group has failed: {}", call, spec.name, failure->what()));
}

}  // namespace ddp::detail
