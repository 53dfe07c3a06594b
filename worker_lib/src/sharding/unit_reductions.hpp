#pragma once
// UnitReductions: the gradients of units, from the end of a scope to this rank's part of their average. The owner's
// thread only.
//
// A gradient is written to a block, whole. The group adds the blocks of all ranks, and each rank gets its part (the
// first exchange); replicas then add their parts (the second exchange). A block is free for another unit when the first
// exchange has ended. All ranks close the same units in the same order, so all begin the exchanges in one order.

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp/process_group.hpp"
#include "ddp/sharding.hpp"
#include "worker_lib/src/sharding/shard_layout.hpp"

namespace ddp::detail {

struct ReductionOptions {
    DType main = DType::F32;              ///< of the parts
    DType reduced = DType::F32;           ///< of whole gradients, and of the first exchange
    bool keep = false;                    ///< every unit has a block of its own
    std::span<const std::string> labels;  ///< of the units' operations
};

class UnitReductions {
public:
    /// `replicas` may be null. All arguments must outlive this object. Takes memory of the groups' arenas. Throws
    /// Error{System}.
    UnitReductions(ProcessGroup& group, ProcessGroup* replicas, const ShardLayout& layout, ReductionOptions options);

    /// Returns this rank's part of a unit's gradients, of type ReductionOptions::main.
    [[nodiscard]] Buffer part(std::size_t unit) const;
    void begin(Reduce reduce);
    [[nodiscard]] bool was_opened(std::size_t unit) const { return units_[unit].opened; }
    /// Returns memory for the whole gradient of a unit, which close() takes back.
    [[nodiscard]] Buffer open(std::size_t unit);
    void close(std::size_t unit);
    /// Waits for all exchanges, and divides.
    void finish();

private:
    struct Unit {
        std::byte* part = nullptr;  ///< of type main
        bool opened = false;        ///< in this backward
        bool has_sum = false;       ///< the part holds sums since the last Reduce::All
        int divided_by = 1;         ///< what the first exchanges divide by, all alike since the last Reduce::All
        bool is_average = false;    ///< the first exchange is the only one
        std::byte* kept = nullptr;  ///< whole gradients of backwards that sent nothing
        bool has_kept = false;
        std::size_t block = 0;
        Work second;
    };
    struct Block {
        std::byte* memory = nullptr;
        std::optional<std::size_t> unit;  ///< that is open, or in its first exchange
        Work first;
        Buffer sum;  ///< what the first exchange leaves here; without memory: it leaves it in the part
    };

    [[nodiscard]] Buffer whole(std::size_t unit, std::byte* memory) const {
        return {memory, layout_.whole(unit), options_.reduced};
    }
    [[nodiscard]] std::size_t take_block(std::size_t unit);
    [[nodiscard]] int replicas() const { return replicas_ == nullptr ? 1 : replicas_->size(); }
    void keep(std::size_t unit);
    void begin_first(std::size_t unit);
    /// Waits for the oldest first exchange, adds its result to the part, and begins the second exchange.
    void end_first();

    ProcessGroup& group_;
    ProcessGroup* const replicas_;
    const ShardLayout& layout_;
    const ReductionOptions options_;
    Reduce reduce_ = Reduce::All;
    std::vector<Unit> units_;
    std::vector<Block> blocks_;
    std::deque<std::size_t> in_flight_;  ///< blocks in their first exchange, the oldest first
};

}  // namespace ddp::detail
