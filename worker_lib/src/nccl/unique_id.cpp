// Keys in the store, all below "<group>/nccl/", and new whenever a group is made, also when that is tried again:
//   place/<rank>   where that rank is: it has come
//   unique-id      'I' and the 128 bytes of the id, or 'E' and why rank 0 could not make one

#include "worker_lib/src/nccl/meeting.hpp"

#include "worker_lib/src/exchange.hpp"
#include "worker_lib/src/nccl/peers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace ddp::detail {
namespace {

using std::chrono::milliseconds;

std::string key(const GroupSpec& spec, std::string_view name) { return group_key(spec, fmt::format("nccl/{}", name)); }

/// What is left until `deadline`; never 0, which some stores take for "for ever".
milliseconds left_until(ddprun::TimePoint deadline) {
    return std::max(std::chrono::duration_cast<milliseconds>(deadline - ddprun::Clock::now()), milliseconds(1));
}

void publish_id(const NcclApi& nccl, const GroupSpec& spec) {
    ncclUniqueId id{};
    if (const ncclResult_t result = nccl.get_unique_id(&id); result != ncclSuccess) {
        // Published, so that the others fail now and with the reason, not later and without.
        const std::string why = fmt::format("ncclGetUniqueId on rank 0: {} ({})", nccl.get_error_string(result),
                                            nccl.get_last_error(nullptr));
        spec.store->set(key(spec, "unique-id"), "E" + why);
        return;
    }
    spec.store->set(key(spec, "unique-id"), "I" + std::string(id.internal, sizeof id.internal));
}

ncclUniqueId read_id(const GroupSpec& spec, ddprun::TimePoint deadline) {
    const std::string value = spec.store->get(key(spec, "unique-id"), left_until(deadline));
    if (value.starts_with('E')) throw Error(ErrorCode::System, place_of(spec) + ": " + value.substr(1), {0});
    ncclUniqueId id{};
    if (value.size() != 1 + sizeof id.internal || value.front() != 'I') {
        throw Error(ErrorCode::System,
                    fmt::format("{}: {} bytes under '{}' are no unique id of NCCL", place_of(spec), value.size(),
                                key(spec, "unique-id")),
                    {0});
    }
    std::memcpy(id.internal, value.data() + 1, sizeof id.internal);
    return id;
}

std::vector<std::string> place_keys(const GroupSpec& spec) {
    std::vector<std::string> keys;
    for (std::size_t rank = 0; rank < spec.members.size(); ++rank)
        keys.push_back(key(spec, fmt::format("place/{}", rank)));
    return keys;
}

std::vector<int> absent_ranks(const GroupSpec& spec) {
    const std::vector<std::string> keys = place_keys(spec);
    const std::vector<std::string> missing = spec.store->missing(keys);
    std::vector<int> absent;
    for (int rank = 0; rank < static_cast<int>(keys.size()); ++rank) {
        if (std::ranges::find(missing, keys[static_cast<std::size_t>(rank)]) != missing.end()) absent.push_back(rank);
    }
    return absent;
}

}  // namespace

std::string place_of(const GroupSpec& spec) {
    const std::string own = name_rank(spec.rank, spec.members[static_cast<std::size_t>(spec.rank)], place_here());
    return fmt::format("{} of {} in group '{}'", own, spec.members.size(), spec.name);
}

Met meet(const NcclApi& nccl, const GroupSpec& spec, ddprun::TimePoint deadline) {
    const auto start = ddprun::Clock::now();
    publish(spec, "nccl/place", Peers::own_record(spec));
    const auto places = [&] { return spec.store->get_all(place_keys(spec), left_until(deadline)); };
    try {
        // When all are there: behind an id NCCL waits for them on a thread and a socket that stay if they do not come.
        if (spec.rank == 0) (void)places();
        if (spec.rank == 0) publish_id(nccl, spec);
        const ncclUniqueId id = read_id(spec, deadline);
        return {id, places()};
    } catch (const Error& error) {
        if (error.code() != ErrorCode::Timeout) throw;
    }
    const std::vector<int> absent = absent_ranks(spec);
    const double waited = std::chrono::duration<double>(ddprun::Clock::now() - start).count();
    throw Error(ErrorCode::Timeout,
                absent.empty() ? fmt::format("{}: waited {:.1f} s to start NCCL; the last rank came too late",
                                             place_of(spec), waited)
                               : fmt::format("{}: waited {:.1f} s to start NCCL, but {} never came", place_of(spec),
                                             waited, name_ranks(spec, absent)),
                absent);
}

}  // namespace ddp::detail
