#pragma once
// Ranks: the ranks of a node in one process, each of which a test takes through an operation step by step.

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "ddp/error.hpp"
#include "worker_lib/src/native/node/node.hpp"

namespace ddp::testing {

/// The ranks of a node, in this process.
class Ranks {
public:
    explicit Ranks(int size) {
        for (int i = 0; i < size; ++i) segments_.push_back(detail::Segment::create());
        for (int own = 0; own < size; ++own) {
            std::vector<detail::LocalRank> ranks(segments_.size());
            for (int i = 0; i < size; ++i) {
                ranks[static_cast<std::size_t>(i)].rank = i;
                ranks[static_cast<std::size_t>(i)].segment = segments_[static_cast<std::size_t>(i)];
            }
            nodes_.push_back(std::make_unique<detail::Node>("world", size, std::move(ranks), own));
        }
    }
    detail::Node& operator[](int rank) { return *nodes_[static_cast<std::size_t>(rank)]; }
    void open(const detail::Operation& operation) {
        for (const auto& node : nodes_) {
            node->progress.begin(operation);
            node->meetings.open(operation, {});
        }
    }
    [[nodiscard]] detail::Control& control(int rank) const {
        return segments_[static_cast<std::size_t>(rank)]->control();
    }
    [[nodiscard]] bool sleeps(int rank) const { return control(rank).asleep.load() != 0; }

private:
    std::vector<std::shared_ptr<detail::Segment>> segments_;
    std::vector<std::unique_ptr<detail::Node>> nodes_;
};

/// Returns an operation that is called now.
inline detail::Operation operation(std::uint64_t seq, std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    detail::Operation operation;
    operation.seq = seq;
    operation.timeout = timeout;
    operation.deadline = ddprun::Clock::now() + operation.timeout;
    return operation;
}

inline const Error kNone(ErrorCode::System, "nothing");

template <typename Action>
Error failure_of(Action action) {
    try {
        action();
    } catch (const Error& error) {
        return error;
    }
    return kNone;
}

/// A failure that a test gives to a node.
inline const detail::Failure kEnough{.code = ErrorCode::Aborted, .cause = "enough", .names_group = true};

}  // namespace ddp::testing
