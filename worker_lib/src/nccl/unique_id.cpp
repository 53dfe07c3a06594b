// Keys in the store, all below "<group>/nccl/". Every attempt to make a group has new ones:
//   address/<rank>   record of that rank: it has arrived
//   unique-id        'I' and the 128 bytes of the id, or 'E' and the reason why rank 0 could not make one

#include "worker_lib/src/nccl/unique_id.hpp"

#include "common/text/number.hpp"
#include "worker_lib/src/bootstrap/exchange.hpp"
#include "worker_lib/src/nccl/peers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace ddp::detail {
namespace {

using std::chrono::milliseconds;

std::string key(const GroupSpec& spec, std::string_view name) { return group_key(spec, fmt::format("nccl/{}", name)); }

/// Returns the time until `deadline`; never 0, which some stores take for no timeout.
milliseconds left_until(ddprun::TimePoint deadline) {
    return std::max(std::chrono::duration_cast<milliseconds>(deadline - ddprun::Clock::now()), milliseconds(1));
}

void publish_id(const NcclApi& nccl, const GroupSpec& spec) {
    ncclUniqueId id{};
    if (const ncclResult_t result = nccl.get_unique_id(&id); result != ncclSuccess) {
        // Published, so that the others fail at once and with the reason.
        const std::string why = fmt::format("ncclGetUniqueId on rank 0: {} ({})", nccl.get_error_string(result),
                                            nccl.get_last_error(nullptr));
        spec.store->set(key(spec, "unique-id"), "E" + why);
        return;
    }
    spec.store->set(key(spec, "unique-id"), "I" + std::string(id.internal, sizeof id.internal));
}

ncclUniqueId read_id(const GroupSpec& spec, ddprun::TimePoint deadline) {
    const std::string value = spec.store->get(key(spec, "unique-id"), left_until(deadline));
    if (value.starts_with('E')) throw Error(ErrorCode::System, own_rank_text(spec) + ": " + value.substr(1), {0});
    ncclUniqueId id{};
    if (value.size() != 1 + sizeof id.internal || value.front() != 'I') {
        throw Error(ErrorCode::System,
                    fmt::format("{}: the {} bytes under '{}' in the store are not a unique id of NCCL",
                                own_rank_text(spec), value.size(), key(spec, "unique-id")),
                    {0});
    }
    std::memcpy(id.internal, value.data() + 1, sizeof id.internal);
    return id;
}

std::vector<std::string> address_keys(const GroupSpec& spec) {
    std::vector<std::string> keys;
    for (std::size_t rank = 0; rank < spec.members.size(); ++rank)
        keys.push_back(key(spec, fmt::format("address/{}", rank)));
    return keys;
}

std::vector<int> absent_ranks(const GroupSpec& spec) {
    const std::vector<std::string> keys = address_keys(spec);
    const std::vector<std::string> missing = spec.store->missing(keys);
    std::vector<int> absent;
    for (int rank = 0; rank < static_cast<int>(keys.size()); ++rank) {
        if (std::ranges::find(missing, keys[static_cast<std::size_t>(rank)]) != missing.end()) absent.push_back(rank);
    }
    return absent;
}

/// Returns why an exchange failed although all ranks have arrived: rank 0 makes the id when the last one has.
std::string late_text(const GroupSpec& spec) {
    if (spec.rank == 0) return "the last rank arrived too late";
    return name_ranks(spec, {0}) + " had not published the NCCL id in time; it does so when the last rank has arrived";
}

}  // namespace

std::string own_rank_text(const GroupSpec& spec) {
    const std::string own = name_rank(spec.rank, spec.members[static_cast<std::size_t>(spec.rank)], own_address());
    return fmt::format("{} of {} in group '{}'", own, spec.members.size(), spec.name);
}

UniqueIdExchange exchange_unique_id(const NcclApi& nccl, const GroupSpec& spec, ddprun::TimePoint deadline) {
    const auto start = ddprun::Clock::now();
    publish(spec, "nccl/address", Peers::own_record(spec));
    const auto addresses = [&] { return spec.store->get_all(address_keys(spec), left_until(deadline)); };
    try {
        // Called only when all have arrived: with each id NCCL starts a thread and a socket that wait for the ranks,
        // and that stay if a rank does not arrive.
        if (spec.rank == 0) (void)addresses();
        if (spec.rank == 0) publish_id(nccl, spec);
        const ncclUniqueId id = read_id(spec, deadline);
        return {id, addresses()};
    } catch (const Error& error) {
        if (error.code() != ErrorCode::Timeout) throw;
    }
    const std::vector<int> absent = absent_ranks(spec);
    throw Error(ErrorCode::Timeout,
                fmt::format("{}: waited {} to start NCCL, but {}", own_rank_text(spec),
                            ddprun::rounded_seconds_text(ddprun::Clock::now() - start),
                            absent.empty()
                                ? late_text(spec)
                                : name_ranks(spec, absent) + " did not arrive: look at what is printed there, or raise "
                                                             "InitOptions::init_timeout if that is only slow"),
                absent);
}

}  // namespace ddp::detail
