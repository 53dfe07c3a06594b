#include "worker_lib/src/bootstrap/group_spec.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "common/text/list.hpp"
#include "worker_lib/src/util/error.hpp"

namespace ddp::detail {

namespace {

/// Returns a random number that the kernel draws at boot: it distinguishes machines even if host names repeat.
std::string boot_id() {
    constexpr const char* kPath = "/proc/sys/kernel/random/boot_id";
    std::ifstream file(kPath);
    std::string id;
    if (!(file >> id)) throw_errno(fmt::format("cannot read {}", kPath), errno);
    return id;
}

}  // namespace

std::string name_rank(int rank, int global_rank, std::string_view place) {
    std::string about = global_rank < 0 || global_rank == rank ? "" : fmt::format("global rank {}", global_rank);
    if (!about.empty() && !place.empty()) about += ", ";
    about += place;
    return about.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, about);
}

std::string name_rank(const GroupSpec& spec, int rank) {
    const auto index = static_cast<std::size_t>(rank);
    return name_rank(rank, spec.members[index], spec.locations.empty() ? "" : spec.locations[index]);
}

std::string name_self(const GroupSpec& spec) {
    return name_rank(spec.rank, spec.members[static_cast<std::size_t>(spec.rank)], "");
}

Error refusal(const GroupSpec& spec, std::string_view wrong) {
    return {ErrorCode::InvalidArgument,
            fmt::format("group '{}': {}: {}", spec.name, name_rank(spec, spec.rank), wrong)};
}

std::string name_ranks(const GroupSpec& spec, const std::vector<int>& ranks) {
    if (spec.locations.empty()) return ddprun::name_ranks(ranks);
    std::vector<std::string> names;
    for (const int rank : ranks) names.push_back(name_rank(spec, rank));
    return ddprun::list_of(std::move(names));
}

std::string machine_of(const GroupSpec& spec) { return fmt::format("{}/{}", boot_id(), spec.node_rank); }

}  // namespace ddp::detail
