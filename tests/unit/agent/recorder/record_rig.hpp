#pragma once
// Rig: a worker's flight record with its writer and its reader, for tests.

#include <sys/mman.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/recorder/worker_flight_record.hpp"
#include "common/flight_record_layout.hpp"
#include "tests/catch.hpp"
#include "worker_lib/src/operation/group_recorder.hpp"
#include "worker_lib/src/recorder/flight_recorder_memory.hpp"

namespace ddprun::agent {

/// A flight record with its writer, as if this process were the worker.
struct Rig {
    Rig() : agent(WorkerFlightRecord::make().value()) {
        std::string problem;
        memory = ddp::detail::take_recorder_memory(agent.descriptor(), problem);
        REQUIRE(problem == "");
        writer.emplace(*memory);
    }
    ~Rig() { ::munmap(memory, sizeof *memory); }
    Rig(const Rig&) = delete;
    Rig& operator=(const Rig&) = delete;

    ddp::detail::GroupEntry add(const std::string& name, std::vector<int> members) {
        ddp::detail::GroupSpec spec;
        spec.name = name;
        spec.members = std::move(members);
        return add_group(*writer, spec);
    }
    ddp::detail::RecordEntry queue(const ddp::detail::GroupEntry& group, std::uint64_t seq, std::string tag = {}) {
        ddp::detail::Operation operation;
        operation.kind = ddp::detail::OpKind::kAllReduce;
        operation.buffer.count = 4 + seq;
        operation.seq = seq;
        operation.label = std::move(tag);
        return record(operation, writer->claim(), group, Clock::now());
    }
    const std::vector<ddp::detail::RecordEntry>& queue(ddp::detail::TransferList& batch,
                                                       const ddp::detail::GroupEntry& group) {
        claim_entries(*writer, batch, group);
        record(batch, group, Clock::now());
        return batch.record_entries;
    }

    WorkerFlightRecord agent;
    flight_record::Memory* memory = nullptr;
    std::optional<ddp::detail::FlightRecorder> writer;
};

}  // namespace ddprun::agent
