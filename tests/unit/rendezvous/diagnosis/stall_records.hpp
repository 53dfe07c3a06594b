#pragma once
// Flight records for tests of verdicts, built call by call.

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "rendezvous/protocol/inspection.hpp"

namespace ddprun::diagnosis {

using namespace std::chrono_literals;

inline constexpr ExitStatus kExited0{ExitStatus::Kind::kExited, 0};
inline constexpr ExitStatus kExited1{ExitStatus::Kind::kExited, 1};
inline constexpr ExitStatus kKilled{ExitStatus::Kind::kSignaled, SIGKILL};

/// The waiting time from which on diagnose() counts a rank as stuck, in these tests.
inline constexpr auto kMinWait = 10s;

/// A rank of node n0 that is a member of groups and calls operations in them.
class On {
public:
    explicit On(int rank) {
        record.rank = Rank{rank};
        record.host = "n0";
        record.pid = 1000 + rank;
        record.process = ProcessState::kRunning;
        record.view.written = true;
    }
    On& group(const std::string& name, std::vector<RankRun> members) {
        RecordedGroup& group = record.view.groups.emplace_back();
        group.name = name;
        group.members = std::move(members);
        group.size = 0;
        for (const RankRun& run : group.members) group.size += run.count;
        return *this;
    }
    On& world(int size) { return group("world", {{0, size, 1}}); }
    /// In the newest group: the operation that follows.
    RecordedOperation& call(const std::string& op) {
        RecordedGroup& group = record.view.groups.back();
        RecordedOperation& operation = record.view.operations.emplace_back();
        operation.id = record.view.operations.size();
        operation.group = static_cast<int>(record.view.groups.size()) - 1;
        operation.seq = ++group.queued;
        operation.op = op;
        operation.queued_ago = 40s;
        if (op == "all_reduce") {
            operation.reduce = "sum";
            operation.dtype = "f32";
            operation.count = 4;
        }
        return operation;
    }
    On& done(const std::string& op = "all_reduce") {
        RecordedOperation& operation = call(op);
        operation.started_ago = 39s;
        operation.ended_ago = 38s;
        record.view.groups.back().started = record.view.groups.back().done = operation.seq;
        return *this;
    }
    On& in(const std::string& op = "all_reduce", std::chrono::nanoseconds since = 31s) {
        RecordedOperation& operation = call(op);
        operation.started_ago = operation.waited_ago = since;
        record.view.groups.back().started = operation.seq;
        return *this;
    }
    /// Marks the newest operation as one that the rank does not wait for.
    On& only_posted() {
        record.view.operations.back().waited_ago.reset();
        return *this;
    }
    /// Marks the newest operation as one that the rank polls now and then.
    On& polled() {
        record.view.operations.back().polled = true;
        return *this;
    }
    On& host(const std::string& name) {
        record.host = name;
        return *this;
    }
    On& phase(const std::string& text) {
        record.view.phase = text;
        record.view.phase_for = 60s;
        return *this;
    }
    On& process(ProcessState state) {
        record.process = state;
        record.ended = false;
        record.status.reset();
        return *this;
    }
    On& ended(const ExitStatus& status, std::chrono::nanoseconds ago = 4200ms) {
        record.process = ProcessState::kEnded;
        record.ended = true;
        record.status = status;
        record.ended_ago = ago;
        return *this;
    }
    /// A send or receive of the newest group.
    On& transfer(const std::string& op, int peer, std::int64_t tag = 0, std::chrono::nanoseconds since = 31s) {
        RecordedOperation& operation = record.view.operations.emplace_back();
        operation.id = record.view.operations.size();
        operation.group = static_cast<int>(record.view.groups.size()) - 1;
        operation.p2p_seq = ++transfers;
        operation.op = op;
        operation.peer = peer;
        operation.transfer_tag = tag;
        operation.queued_ago = since;
        operation.started_ago = operation.waited_ago = since;
        return *this;
    }
    operator RankRecord() const { return record; }  // NOLINT: a builder

    RankRecord record;
    std::uint64_t transfers = 0;
};

}  // namespace ddprun::diagnosis
