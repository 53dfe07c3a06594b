#pragma once
// Boards for tests of verdicts, built call by call.

#include <chrono>
#include <string>
#include <vector>

#include "rendezvous/coordinator/messages_inspect.hpp"

namespace ddprun::coordinator {

using namespace std::chrono_literals;

/// A rank of node n0 that is a member of groups and calls operations in them.
class On {
public:
    explicit On(int rank) {
        board.rank = Rank{rank};
        board.host = "n0";
        board.pid = 1000 + rank;
        board.process = "running";
        board.view.written = true;
    }
    On& group(const std::string& name, std::vector<RankRun> members) {
        BoardGroup& group = board.view.groups.emplace_back();
        group.name = name;
        group.members = std::move(members);
        group.size = 0;
        for (const RankRun& run : group.members) group.size += run.count;
        return *this;
    }
    On& world(int size) { return group("world", {{0, size, 1}}); }
    /// In the newest group: the operation that follows.
    BoardOperation& call(const std::string& op) {
        BoardGroup& group = board.view.groups.back();
        BoardOperation& operation = board.view.operations.emplace_back();
        operation.id = board.view.operations.size();
        operation.group = static_cast<int>(board.view.groups.size()) - 1;
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
        BoardOperation& operation = call(op);
        operation.started_ago = 39s;
        operation.ended_ago = 38s;
        board.view.groups.back().started = board.view.groups.back().done = operation.seq;
        return *this;
    }
    On& in(const std::string& op = "all_reduce", std::chrono::nanoseconds since = 31s) {
        BoardOperation& operation = call(op);
        operation.started_ago = operation.waited_ago = since;
        board.view.groups.back().started = operation.seq;
        return *this;
    }
    /// Nobody waits for what was called last.
    On& only_posted() {
        board.view.operations.back().waited_ago.reset();
        return *this;
    }
    /// Somebody looks at it now and then.
    On& polled() {
        board.view.operations.back().polled = true;
        return *this;
    }
    On& host(const std::string& name) {
        board.host = name;
        return *this;
    }
    On& phase(const std::string& text) {
        board.view.phase = text;
        board.view.phase_for = 60s;
        return *this;
    }
    On& process(const std::string& text, bool ended = false) {
        board.process = text;
        board.ended = ended;
        return *this;
    }
    /// A send or receive of the newest group.
    On& transfer(const std::string& op, int peer, std::int64_t tag = 0, std::chrono::nanoseconds since = 31s) {
        BoardOperation& operation = board.view.operations.emplace_back();
        operation.id = board.view.operations.size();
        operation.group = static_cast<int>(board.view.groups.size()) - 1;
        operation.p2p_seq = ++transfers;
        operation.op = op;
        operation.peer = peer;
        operation.transfer_tag = tag;
        operation.queued_ago = since;
        operation.started_ago = operation.waited_ago = since;
        return *this;
    }
    operator RankBoard() const { return board; }  // NOLINT: a builder

    RankBoard board;
    std::uint64_t transfers = 0;
};

}  // namespace ddprun::coordinator
