#pragma once
// UnitGathers: this rank's part of each unit, and the memory in which units are whole. It gathers a unit when a scope
// opens it, and ahead of that the units that are expected next. The owner's thread only.
//
// If all ranks share a node, units are mapped: the pages of all parts, end to end and read-only. A gather is then a
// barrier, after which no rank writes to its part. Else the parts are copied.
//
// Units that may be freed share a few blocks. A block keeps its unit until another one needs it, so the units that end
// a forward are still whole when backward begins. All ranks open the same scopes, so all choose the same blocks.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ddp/process_group.hpp"
#include "worker_lib/src/sharding/read_only_view.hpp"
#include "worker_lib/src/sharding/shard_layout.hpp"

namespace ddp::detail {

struct GatherOptions {
    DType main = DType::F32;              ///< of the parts
    DType gathered = DType::F32;          ///< of whole units
    bool keep = false;                    ///< whole units have memory of their own, and are freed by changed() alone
    int prefetch = 1;                     ///< units gathered ahead
    std::span<const std::string> labels;  ///< of the units' operations
    /// BackendImpl::arenas() of the group, with which units are mapped; empty: they are copied. Mapped parts are whole
    /// pages (lay_out_units), and `keep` is set.
    std::vector<std::span<const std::byte>> arenas = {};
};

class UnitGathers {
public:
    /// All arguments must outlive this object. Takes memory of the group's arena. Throws Error{System} naming the rank.
    UnitGathers(ProcessGroup& group, const ShardLayout& layout, GatherOptions options);

    /// Returns this rank's part of a unit, of type GatherOptions::main.
    [[nodiscard]] Buffer part(std::size_t unit) const;
    /// Returns the whole unit, which stays until close(). Throws the error of its all_gather.
    [[nodiscard]] Buffer open(std::size_t unit, bool backward);
    void close(std::size_t unit) { --units_[unit].open; }
    [[nodiscard]] bool has_open() const;
    /// Ends a forward or a backward: nothing is gathered ahead of its last unit.
    void end_pass();
    /// Declares that the parts will be written. Waits for gathers in flight, and, if units are mapped, until no rank
    /// has a scope: each of them calls this then.
    void changed();

private:
    struct Unit {
        std::byte* part = nullptr;   ///< of type main
        std::byte* input = nullptr;  ///< of its gather; the part itself if the types are the same
        bool outdated = true;        ///< the part has changed since it was converted to `input`
        std::optional<std::size_t> block;
        int open = 0;  ///< scopes
        Work gather;
    };
    struct Block {
        std::byte* memory = nullptr;
        std::optional<std::size_t> unit;
        bool expected = false;   ///< gathered ahead, and not opened yet
        std::uint64_t used = 0;  ///< time of the last use
    };
    /// The order in which scopes were opened last, one for forward and one for backward.
    struct Order {
        std::vector<std::optional<std::size_t>> next;  ///< by unit
        std::optional<std::size_t> last;
    };

    [[nodiscard]] bool converts() const { return options_.main != options_.gathered; }
    [[nodiscard]] bool maps() const { return !options_.arenas.empty(); }
    void allocate();
    [[nodiscard]] std::byte* allocate_pages(std::size_t bytes);
    void map_units(const std::byte* inputs);
    void show_parts(const std::byte* inputs);
    /// Returns the block for a unit; nothing if all are in use and the unit is not `needed` now.
    [[nodiscard]] std::optional<std::size_t> take_block(std::size_t unit, bool needed);
    /// Begins a gather. Returns false if there is no block.
    bool begin(std::size_t unit, bool needed);

    ProcessGroup& group_;
    const ShardLayout& layout_;
    const GatherOptions options_;
    std::vector<Unit> units_;
    std::optional<ReadOnlyView> view_;  ///< the mapped units
    std::vector<Block> blocks_;
    std::array<Order, 2> orders_;  ///< forward, backward
    std::uint64_t time_ = 0;
};

}  // namespace ddp::detail
