#pragma once
// A worker's board with both its ends, for tests.

#include <sys/mman.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/board/worker_board.hpp"
#include "common/board_layout.hpp"
#include "tests/catch.hpp"
#include "worker_lib/src/backend.hpp"

namespace ddprun::agent {

/// A board with its writer, as if this process were the worker.
struct Rig {
    Rig() : agent(WorkerBoard::make().value()) {
        std::string problem;
        memory = ddp::detail::take_board(agent.descriptor(), problem);
        REQUIRE(problem == "");
        writer.emplace(*memory);
    }
    ~Rig() { ::munmap(memory, sizeof *memory); }
    Rig(const Rig&) = delete;
    Rig& operator=(const Rig&) = delete;

    ddp::detail::BoardGroup add(const std::string& name, std::vector<int> members) {
        ddp::detail::GroupSpec spec;
        spec.name = name;
        spec.members = std::move(members);
        return writer->add(spec);
    }
    ddp::detail::BoardTicket queue(const ddp::detail::BoardGroup& group, std::uint64_t seq, std::string tag = {}) {
        ddp::detail::Operation operation;
        operation.kind = ddp::detail::OpKind::kAllReduce;
        operation.buffer.count = 4 + seq;
        operation.seq = seq;
        operation.tag = std::move(tag);
        return writer->queue(operation, writer->claim(), group, Clock::now());
    }
    const std::vector<ddp::detail::BoardTicket>& queue(ddp::detail::TransferBatch& batch,
                                                       const ddp::detail::BoardGroup& group) {
        writer->claim(batch, group);
        ddp::detail::Board::queue(batch, group, Clock::now());
        return batch.tickets;
    }

    WorkerBoard agent;
    board::Board* memory = nullptr;
    std::optional<ddp::detail::Board> writer;
};

}  // namespace ddprun::agent
