// Keys in the store, all below "<group>/nccl/". Every attempt to make a group has new ones:
//   address/<rank>    record of that rank: it has arrived
//   unique-id/<index> 'I' and the 128 bytes of the id, or 'E' and the reason why its maker could not make one

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

constexpr int kRanksPerId = 128;

std::string key(const GroupSpec& spec, std::string_view name) { return group_key(spec, fmt::format("nccl/{}", name)); }

/// Returns the time until `deadline`; never 0, which some stores take for no timeout.
milliseconds left_until(ddprun::TimePoint deadline) {
    return std::max(std::chrono::duration_cast<milliseconds>(deadline - ddprun::Clock::now()), milliseconds(1));
}

int size_of(const GroupSpec& spec) { return static_cast<int>(spec.members.size()); }

std::string id_key(const GroupSpec& spec, int index) { return key(spec, fmt::format("unique-id/{}", index)); }

void publish_id(const NcclApi& nccl, const GroupSpec& spec, int index) {
    ncclUniqueId id{};
    if (const ncclResult_t result = nccl.get_unique_id(&id); result != ncclSuccess) {
        // Published, so that the others fail at once and with the reason.
        const std::string why = fmt::format("ncclGetUniqueId on rank {}: {} ({})", spec.rank,
                                            nccl.get_error_string(result), nccl.get_last_error(nullptr));
        spec.store->set(id_key(spec, index), "E" + why);
        return;
    }
    spec.store->set(id_key(spec, index), "I" + std::string(id.internal, sizeof id.internal));
}

/// `value`: of id_key(), published by rank `maker`.
ncclUniqueId parse_id(const GroupSpec& spec, int index, int maker, const std::string& value) {
    if (value.starts_with('E')) throw Error(ErrorCode::System, own_rank_text(spec) + ": " + value.substr(1), {maker});
    ncclUniqueId id{};
    if (value.size() != 1 + sizeof id.internal || value.front() != 'I') {
        throw Error(ErrorCode::System,
                    fmt::format("{}: the {} bytes under '{}' in the store are not a unique id of NCCL",
                                own_rank_text(spec), value.size(), id_key(spec, index)),
                    {maker});
    }
    std::memcpy(id.internal, value.data() + 1, sizeof id.internal);
    return id;
}

std::vector<ncclUniqueId> read_ids(const GroupSpec& spec, int count, ddprun::TimePoint deadline) {
    std::vector<std::string> keys;
    for (int index = 0; index < count; ++index) keys.push_back(id_key(spec, index));
    const std::vector<std::string> values = spec.store->get_all(keys, left_until(deadline));
    std::vector<ncclUniqueId> ids;
    for (int index = 0; index < count; ++index) {
        const int maker = maker_of_id(index, count, size_of(spec));
        ids.push_back(parse_id(spec, index, maker, values[static_cast<std::size_t>(index)]));
    }
    return ids;
}

std::vector<std::string> address_keys(const GroupSpec& spec) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < size_of(spec); ++rank) keys.push_back(key(spec, fmt::format("address/{}", rank)));
    return keys;
}

std::vector<int> absent_ranks(const GroupSpec& spec) {
    const std::vector<std::string> keys = address_keys(spec);
    const std::vector<std::string> missing = spec.store->missing(keys);
    std::vector<int> absent;
    for (int rank = 0; rank < size_of(spec); ++rank) {
        if (std::ranges::find(missing, keys[static_cast<std::size_t>(rank)]) != missing.end()) absent.push_back(rank);
    }
    return absent;
}

/// Returns why an exchange failed although all ranks have arrived: the ids are made when the last one has.
std::string late_text(const GroupSpec& spec, int ids) {
    std::vector<int> makers;
    for (int index = 0; index < ids; ++index) {
        const int maker = maker_of_id(index, ids, size_of(spec));
        if (maker == spec.rank) return "the last rank arrived too late";
        if (!spec.store->missing({id_key(spec, index)}).empty()) makers.push_back(maker);
    }
    if (makers.empty()) return "the last rank arrived too late";
    return fmt::format("{} had not published the NCCL id in time; a rank does so when the last rank has arrived",
                       name_ranks(spec, makers));
}

}  // namespace

std::string own_rank_text(const GroupSpec& spec) {
    const std::string own = name_rank(spec.rank, spec.members[static_cast<std::size_t>(spec.rank)], own_address());
    return fmt::format("{} of {} in group '{}'", own, spec.members.size(), spec.name);
}

int unique_id_count(const NcclApi& nccl, int ranks) {
    return nccl.comm_init_rank_scalable == nullptr ? 1 : (ranks + kRanksPerId - 1) / kRanksPerId;
}

/// NCCL gives each id `ranks / ids` consecutive ranks, and the first ids one more.
int maker_of_id(int index, int ids, int ranks) { return index * (ranks / ids) + std::min(index, ranks % ids); }

UniqueIdExchange exchange_unique_ids(const NcclApi& nccl, const GroupSpec& spec, ddprun::TimePoint deadline) {
    const auto start = ddprun::Clock::now();
    const int count = unique_id_count(nccl, size_of(spec));
    publish(spec, "nccl/address", Peers::own_record(spec));
    const auto addresses = [&] { return spec.store->get_all(address_keys(spec), left_until(deadline)); };
    try {
        for (int index = 0; index < count; ++index) {
            if (maker_of_id(index, count, size_of(spec)) != spec.rank) continue;
            // Called only when all have arrived: with each id NCCL starts a thread and a socket that wait for the
            // ranks, and that stay if a rank does not arrive.
            (void)addresses();
            publish_id(nccl, spec, index);
        }
        std::vector<ncclUniqueId> ids = read_ids(spec, count, deadline);
        return {std::move(ids), addresses()};
    } catch (const Error& error) {
        if (error.code() != ErrorCode::Timeout) throw;
    }
    const std::vector<int> absent = absent_ranks(spec);
    throw Error(ErrorCode::Timeout,
                fmt::format("{}: waited {} to start NCCL, but {}", own_rank_text(spec),
                            ddprun::rounded_seconds_text(ddprun::Clock::now() - start),
                            absent.empty()
                                ? late_text(spec, count)
                                : name_ranks(spec, absent) + " did not arrive: look at what is printed there, or raise "
                                                             "InitOptions::init_timeout if that is only slow"),
                absent);
}

}  // namespace ddp::detail
