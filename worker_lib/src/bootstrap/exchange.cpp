#include "worker_lib/src/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace ddp::detail {

namespace {

using std::chrono::milliseconds;

/// After the deadline every other rank's key is still looked for, so that the error names all of the absent.
constexpr milliseconds kLastLook{20};
/// So long a rank of a group that is connected waits before it looks after the dead, and later on.
constexpr milliseconds kFirstSlice{100};
constexpr milliseconds kLongestSlice{4'000};

milliseconds until(ddprun::TimePoint deadline) {
    return std::max(kLastLook, std::chrono::ceil<milliseconds>(deadline - ddprun::Clock::now()));
}

std::string rank_key(const GroupSpec& spec, std::string_view topic, int rank) {
    return group_key(spec, fmt::format("{}/{}", topic, rank));
}

/// Throws what the group knows that the store does not. Who finds out that a rank is gone leaves word for the others:
/// on its node, or as the leader of one, it alone may know.
void look_for_trouble(const GroupSpec& spec, std::string_view topic, const std::vector<int>& others,
                      const BackendImpl& backend, std::string_view call) {
    refuse_if_aborted(spec, backend, call);
    const std::string word = group_key(spec, fmt::format("{}/gone", topic));
    const auto report = [&](int rank, std::string_view state) {
        throw Error(
            ErrorCode::PeerLost,
            fmt::format("group '{}': {} calls {}, which waits for all ranks: {} Call shrink() to go on without it",
                        spec.name, name_rank(spec, spec.rank), call, sentence(state)),
            {rank});
    };
    for (const int rank : others) {
        const auto state = backend.state_of(rank);
        // Looked for after its end: it may have come before.
        if (!state.gone || spec.store->missing({rank_key(spec, topic, rank)}).empty()) continue;
        spec.store->set(word, fmt::format("{} {}", rank, state.text));
        report(rank, state.text);
    }
    if (const auto said = spec.store->try_get(word, milliseconds(1))) {
        const auto end = said->find(' ');
        report(std::stoi(said->substr(0, end)), said->substr(end + 1));
    }
}

std::string seconds_waited(const GroupSpec& spec) {
    return fmt::format("{:g} s", std::chrono::duration<double>(spec.init_timeout).count());
}

std::string key_of_given_up(const GroupSpec& spec, std::string_view topic) {
    return group_key(spec, fmt::format("{}/given-up", topic));
}

/// For who comes later: it finds what all have said, and would wait as long again for those that have gone.
void tell_that_given_up(const GroupSpec& spec, std::string_view topic, const std::vector<int>& absent) {
    try {
        spec.store->set(key_of_given_up(spec, topic),
                        fmt::format("{} had given up by then, after {} of waiting for {}", name_rank(spec, spec.rank),
                                    seconds_waited(spec), name_ranks(spec, absent)));
    } catch (const Error&) {  // the error about the absent is the one that counts
    }
}

void refuse_if_given_up(const GroupSpec& spec, std::string_view topic, std::string_view call) {
    const auto said = spec.store->try_get(key_of_given_up(spec, topic), milliseconds(0));
    if (!said) return;
    throw Error(ErrorCode::Timeout,
                fmt::format("group '{}': {} calls {}, but {}. Have all ranks call it within InitOptions::init_timeout "
                            "of each other, or make that longer",
                            spec.name, name_rank(spec, spec.rank), call, *said));
}

/// Until all have said something, or the deadline; throws if that is known to be in vain. Looks after that less and
/// less often: somebody may load data for an hour, and a thousand ranks wait.
void wait_for_others(const GroupSpec& spec, std::string_view topic, const std::vector<int>& others,
                     const std::vector<std::string>& keys, const BackendImpl& backend, std::string_view call,
                     ddprun::TimePoint deadline) {
    for (milliseconds slice = kFirstSlice; !spec.store->came_by(keys, std::min(until(deadline), slice));
         slice = std::min(2 * slice, kLongestSlice)) {
        look_for_trouble(spec, topic, others, backend, call);
        if (ddprun::Clock::now() >= deadline) return;
    }
}

/// After the deadline: what those have said who came, into `values`; returns the others.
std::vector<int> take_who_came(const GroupSpec& spec, const std::vector<int>& others,
                               const std::vector<std::string>& keys, std::vector<std::string>& values) {
    std::vector<int> absent;
    const std::vector<std::string> missing = spec.store->missing(keys);
    for (std::size_t i = 0; i < others.size(); ++i) {
        const bool here = std::ranges::find(missing, keys[i]) == missing.end();
        auto said = here ? spec.store->try_get(keys[i], kLastLook) : std::nullopt;
        if (said) {
            values[static_cast<std::size_t>(others[i])] = std::move(*said);
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
                                  const BackendImpl* backend, std::string_view call) {
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
    // All at once: two round trips, however many ranks there are.
    try {
        std::vector<std::string> got = spec.store->get_all(keys, until(deadline));
        for (std::size_t i = 0; i < others.size(); ++i) values[static_cast<std::size_t>(others[i])] = std::move(got[i]);
        complete = true;
    } catch (const Error& error) {
        if (error.code() != ErrorCode::Timeout) throw;
    }
    const std::vector<int> absent = complete ? std::vector<int>() : take_who_came(spec, others, keys, values);
    if (absent.empty()) {
        if (!call.empty()) refuse_if_given_up(spec, topic, call);
        return values;
    }
    if (!call.empty()) tell_that_given_up(spec, topic, absent);
    report_absent(spec, absent,
                  call.empty() ? "say where they are. All had come: they have ended since, lost the store, or given up "
                                 "waiting. Their own errors say which"
                               : fmt::format("call {}, too. All ranks of the group call it", call));
}

void report_absent(const GroupSpec& spec, const std::vector<int>& absent, std::string_view wanted) {
    throw Error(ErrorCode::Timeout,
                fmt::format("group '{}': {} waited {} for {} of {} to {}", spec.name, name_rank(spec, spec.rank),
                            seconds_waited(spec), name_ranks(spec, absent), spec.members.size(), wanted),
                absent);
}

void refuse_if_aborted(const GroupSpec& spec, const BackendImpl& backend, std::string_view call) {
    const auto failure = backend.failure();
    if (!failure || failure->code() != ErrorCode::Aborted) return;
    throw Error(
        ErrorCode::Aborted,
        fmt::format("{} of group '{}' cannot run, for the group has failed: {}", call, spec.name, failure->what()),
        failure->culprits());
}

std::string name_ranks(const GroupSpec& spec, const std::vector<int>& ranks) {
    if (spec.places.empty()) return name_ranks(ranks);
    std::vector<std::string> names;
    for (const int rank : ranks) names.push_back(name_rank(spec, rank));
    return list_of(std::move(names));
}

std::string name_ranks(const std::vector<int>& ranks) {
    std::vector<std::string> numbers;
    for (const int rank : ranks) numbers.push_back(std::to_string(rank));
    return (ranks.size() == 1 ? "rank " : "ranks ") + list_of(std::move(numbers), ranks.size());
}

std::string sentence(std::string_view text) {
    const bool ended = text.ends_with('.') || text.ends_with('?') || text.ends_with('!');
    return fmt::format("{}{}", text, ended ? "" : ".");
}

std::string list_of(std::vector<std::string> names, std::size_t most) {
    if (names.size() > most + 1) {  // "and 1 more" is no shorter than its name
        const std::size_t left = names.size() - most;
        names.resize(most);
        names.push_back(fmt::format("{} more", left));
    }
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
        text += names[i];
    }
    return text;
}

}  // namespace ddp::detail
