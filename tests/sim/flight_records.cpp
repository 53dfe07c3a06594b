#include "tests/sim/flight_records.hpp"

namespace ddprun::sim {

protocol::RankRecord random_record(Dice& dice, Rank rank, const std::string& host) {
    protocol::RankRecord record;
    record.rank = rank;
    record.host = host;
    record.pid = 100;
    record.process = dice.percent(10) ? ProcessState::kStopped : ProcessState::kRunning;
    record.view.written = true;
    const bool called = dice.percent(60);
    record.view.groups.push_back({"world", number(rank), 64, {{0, 64, 1}}, true, called ? 1u : 0u, called ? 1u : 0u});
    if (!called) return record;
    protocol::RecordedOperation& operation = record.view.operations.emplace_back();
    operation.id = operation.seq = 1;
    operation.group = 0;
    operation.op = "barrier";
    operation.queued_ago = operation.started_ago.emplace(31s);
    operation.waited_ago = 31s;
    if (dice.percent(30)) {
        operation.ended_ago = dice.between(0ms, 900ms);
        operation.failed = operation.timed_out = true;
    }
    return record;
}

}  // namespace ddprun::sim
