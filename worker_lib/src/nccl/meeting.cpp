// Keys in the store, all below "<group>/nccl/":
//   place/<rank>            where that rank is, for errors
//   signed-in/<rank>        counter, above 0 once that rank is here; a counter because it can be read without waiting
//   unique-id               'I' and the 128 bytes of the id, or 'E' and why rank 0 could not make one
// and, so that a start that is tried again does not count those who came to one before, for each id by its hash:
//   <id>/signed-in/<rank>   the same, of those who have got that id
//   <id>/count              counter, how many they are
//   <id>/all-here           exists once count has reached the size of the group

#include "worker_lib/src/nccl/meeting.hpp"

#include "worker_lib/src/exchange.hpp"
#include "worker_lib/src/fnv.hpp"
#include "worker_lib/src/nccl/peers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace ddp::detail {
namespace {

using std::chrono::milliseconds;

std::string key(const GroupSpec& spec, std::string_view name) { return group_key(spec, fmt::format("nccl/{}", name)); }

/// `of`: an id's prefix, or nothing.
std::string sign_in_key(const GroupSpec& spec, std::string_view of, int rank) {
    return key(spec, fmt::format("{}signed-in/{}", of, rank));
}

std::string prefix_of(const ncclUniqueId& id) {
    Fnv64 hash;
    hash.add(std::string_view(id.internal, sizeof id.internal));
    return fmt::format("{:016x}/", hash.value());
}

/// What is left until `deadline`; never 0, which some stores take for "for ever".
milliseconds left_until(ddprun::TimePoint deadline) {
    return std::max(std::chrono::duration_cast<milliseconds>(deadline - ddprun::Clock::now()), milliseconds(1));
}

/// Returns when all have come to the same id.
void wait_for_all(const GroupSpec& spec, const std::string& of, ddprun::TimePoint deadline) {
    const auto size = static_cast<std::int64_t>(spec.members.size());
    const std::string all_here = key(spec, of + "all-here");
    const bool counts = spec.store->add(sign_in_key(spec, of, spec.rank), 1) == 1;
    if (counts && spec.store->add(key(spec, of + "count"), 1) == size) spec.store->set(all_here, "1");
    (void)spec.store->get(all_here, left_until(deadline));
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

/// Who has signed in has published it before.
std::vector<std::string> read_records(const GroupSpec& spec, ddprun::TimePoint deadline) {
    std::vector<std::string> keys;
    for (std::size_t rank = 0; rank < spec.members.size(); ++rank)
        keys.push_back(key(spec, fmt::format("place/{}", rank)));
    return spec.store->get_all(keys, left_until(deadline));
}

std::vector<int> absent_ranks(const GroupSpec& spec, std::string_view of) {
    std::vector<int> absent;
    for (int rank = 0; rank < static_cast<int>(spec.members.size()); ++rank) {
        if (spec.store->add(sign_in_key(spec, of, rank), 0) == 0) absent.push_back(rank);
    }
    if (of.empty() && absent.empty()) absent.push_back(0);  // all have come some time, but there is no id now
    return absent;
}

}  // namespace

std::string place_of(const GroupSpec& spec) {
    const std::string own = name_rank(spec.rank, spec.members[static_cast<std::size_t>(spec.rank)], place_here());
    return fmt::format("{} of {} in group '{}'", own, spec.members.size(), spec.name);
}

Met meet(const NcclApi& nccl, const GroupSpec& spec, ddprun::TimePoint deadline) {
    const auto start = ddprun::Clock::now();
    std::string of;
    publish(spec, "nccl/place", Peers::own_record(spec));
    (void)spec.store->add(sign_in_key(spec, of, spec.rank), 1);
    if (spec.rank == 0) publish_id(nccl, spec);
    try {
        const ncclUniqueId id = read_id(spec, deadline);
        of = prefix_of(id);
        wait_for_all(spec, of, deadline);
        return {id, read_records(spec, deadline)};
    } catch (const Error& error) {
        if (error.code() != ErrorCode::Timeout) throw;
    }
    const std::vector<int> absent = absent_ranks(spec, of);
    const double waited = std::chrono::duration<double>(ddprun::Clock::now() - start).count();
    throw Error(ErrorCode::Timeout,
                absent.empty() ? fmt::format("{}: waited {:.1f} s to start NCCL; the last rank came too late",
                                             place_of(spec), waited)
                               : fmt::format("{}: waited {:.1f} s to start NCCL, but {} never came", place_of(spec),
                                             waited, name_ranks(spec, absent)),
                absent);
}

void withdraw_id(const GroupSpec& spec) {
    if (spec.rank == 0) spec.store->erase(key(spec, "unique-id"));
}

}  // namespace ddp::detail
