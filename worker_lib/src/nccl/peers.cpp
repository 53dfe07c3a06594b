#include "worker_lib/src/nccl/peers.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <sstream>

#include "common/text/list.hpp"
#include "worker_lib/src/bootstrap/environment.hpp"
#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/group/departure.hpp"
#include "worker_lib/src/util/process_watch.hpp"

namespace ddp::detail {

namespace {

/// Returns the pid namespace of this process: pids mean the same only within one. "?" if /proc does not show it.
std::string pid_namespace() {
    std::array<char, 64> name{};
    const ssize_t length = ::readlink("/proc/self/ns/pid", name.data(), name.size());
    return length > 0 ? std::string(name.data(), static_cast<std::size_t>(length)) : "?";
}

/// A rank's record: "host pid pid-namespace machine".
struct Record {
    std::string host;
    pid_t pid = 0;
    std::string pid_namespace;
    std::string machine;

    [[nodiscard]] std::string address() const { return fmt::format("host {}, pid {}", host, pid); }
    [[nodiscard]] bool shares_pids_with(const Record& other) const {
        return pid_namespace != "?" && pid_namespace == other.pid_namespace && machine == other.machine;
    }
};

Record decode(const GroupSpec& spec, int rank, const std::string& text) {
    std::istringstream words(text);
    Record record;
    words >> record.host >> record.pid >> record.pid_namespace >> record.machine;
    if (words.fail()) {
        throw Error(ErrorCode::System, fmt::format("{} published the record '{}', which this version of the library "
                                                   "cannot read. Rebuild the trainers of all nodes with one version",
                                                   name_rank(spec, rank), text));
    }
    return record;
}

}  // namespace

std::string own_address() { return Record{.host = hostname(), .pid = ::getpid()}.address(); }

std::string Peers::own_record(const GroupSpec& spec) {
    return fmt::format("{} {} {} {}", hostname(), ::getpid(), pid_namespace(), machine_of(spec));
}

Peers::Peers(const GroupSpec& spec, const std::vector<std::string>& records) {
    const Record own = decode(spec, spec.rank, own_record(spec));
    for (int rank = 0; rank < static_cast<int>(records.size()); ++rank) {
        const Record record = decode(spec, rank, records[static_cast<std::size_t>(rank)]);
        Peer peer{
            .address = record.address(), .global_rank = spec.members[static_cast<std::size_t>(rank)], .process = {}};
        if (record.shares_pids_with(own))
            peer.process = watch_process(record.pid, name_rank(rank, peer.global_rank, peer.address), rank);
        if (peer.process) watched_.push_back({.fd = peer.process.get(), .events = POLLIN, .revents = 0});
        peers_.push_back(std::move(peer));
    }
}

std::vector<int> Peers::ranks_here(const std::vector<int>& ranks, const Peers& other) const {
    std::vector<int> here;
    for (const int rank : ranks) {
        const auto same = [&](const Peer& peer) { return peer.global_rank == other.global_rank(rank); };
        if (const auto found = std::ranges::find_if(peers_, same); found != peers_.end())
            here.push_back(static_cast<int>(found - peers_.begin()));
    }
    return here;
}

bool Peers::await_loss(ddprun::Duration timeout) const {
    if (watched_.empty()) return false;
    auto asked = watched_;  // any thread may call this
    const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count();
    return ::poll(asked.data(), asked.size(), static_cast<int>(milliseconds)) > 0;
}

std::optional<Failure> Peers::loss_of(int rank) const {
    const Peer& peer = at(rank);
    if (!has_ended(peer.process)) return std::nullopt;
    return departure_failure(rank, name_rank(rank, peer.global_rank, peer.address), Departure::kEnded, std::nullopt);
}

std::optional<Error> Peers::losses() const {
    std::vector<std::string> texts;
    std::vector<int> lost;
    for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
        const auto loss = loss_of(rank);
        if (!loss) continue;
        texts.push_back(loss->cause);
        lost.push_back(rank);
    }
    if (lost.empty()) return std::nullopt;
    return Error(ErrorCode::PeerLost, ddprun::list_of(std::move(texts)), lost);
}

}  // namespace ddp::detail
