#pragma once
// ShardLayout: where the tensors of each unit lie, and which range of the unit each rank owns. Pure values, the same on
// all ranks.

#include <cstddef>
#include <vector>

#include "ddp/bucket_plan.hpp"

namespace ddp::detail {

/// The tensors of all units. Each unit is divided into `ranks` parts of equal size; the last ones may be padding.
struct ShardLayout {
    /// One tensor in its unit.
    struct Slot {
        std::size_t param = 0;  ///< index among the parameters of all units
        std::size_t begin = 0;  ///< its first element in the unit
        std::size_t count = 0;
    };
    struct Unit {
        std::size_t elements = 0;     ///< up to the end of the last tensor
        std::size_t part = 0;         ///< of each rank, padding included
        std::size_t part_offset = 0;  ///< of a rank's part among its parts of all units
        std::vector<Slot> slots;
    };
    /// A rank's range of one tensor.
    struct Range {
        std::size_t unit = 0;
        std::size_t param = 0;
        std::size_t begin = 0;    ///< in the tensor
        std::size_t in_part = 0;  ///< in the rank's part of the unit
        std::size_t count = 0;
    };

    std::size_t ranks = 1;
    std::vector<Unit> units;

    [[nodiscard]] std::size_t whole(std::size_t unit) const { return units[unit].part * ranks; }
    [[nodiscard]] std::size_t largest_unit() const;
    [[nodiscard]] std::size_t parts() const;  ///< elements of one rank's parts of all units
    /// Returns how many ranges of a rank and a unit are not padding alone.
    [[nodiscard]] std::size_t filled_parts() const;
    [[nodiscard]] std::vector<Range> ranges(std::size_t rank) const;
    /// Returns what `rank` owns of one tensor; a count of 0: nothing.
    [[nodiscard]] Range range(std::size_t unit, const Slot& slot, std::size_t rank) const;
};

/// 128 bytes of f32.
inline constexpr std::size_t kShardAlignment = 32;

/// Lays the tensors of each unit end to end, each aligned to kShardAlignment elements, and rounds the parts up to
/// `granularity` elements, a multiple of that.
[[nodiscard]] ShardLayout lay_out_units(const std::vector<std::vector<ParamSpec>>& units, std::size_t ranks,
                                        std::size_t granularity = kShardAlignment);

}  // namespace ddp::detail
