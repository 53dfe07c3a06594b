#pragma once
// Mesh: the world as a grid with named dimensions, and a group for each of them.
//
//     ddp::Mesh mesh(context, {{"replica", 2}, {"shard", 4}});        // 8 ranks
//     mesh["shard"].all_gather(part, whole).wait();                   // among 4 ranks
//     mesh["replica"].all_reduce(part, ddp::ReduceOp::Avg).wait();    // among 2 ranks

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/context.hpp"
#include "ddp/export.hpp"
#include "ddp/process_group.hpp"
#include "ddp/types.hpp"

namespace DDP_EXPORT ddp {

/// A dimension of a Mesh.
struct MeshDimension {
    std::string_view name;  ///< unique in its mesh, and not empty
    int size = 1;           ///< ranks along it
};

/// Owns one group per dimension: the ranks that differ from this one only in that coordinate. Ranks are numbered as
/// elements of an array: neighbours in the last dimension are neighbours in the world, so give it the dimension that
/// communicates most. One thread at a time.
class Mesh {
public:
    /// Collective over the world. The product of the sizes is the world size. Throws Error{InvalidArgument} if it is
    /// not, for a size below 1 and for a name that is empty or given twice; Error{Mismatch} if the ranks make different
    /// meshes; else as ProcessGroup::split. Must not
    /// outlive the context.
    Mesh(Context& context, List<MeshDimension> dimensions);

    /// Returns the group of a dimension, in which this rank is number coordinate(dimension). Throws
    /// Error{InvalidArgument} with the names that exist, if there is none of that name.
    [[nodiscard]] ProcessGroup& operator[](std::string_view dimension);
    /// Returns this rank's position along a dimension. Throws as operator[].
    [[nodiscard]] int coordinate(std::string_view dimension) const;
    /// Returns the number of ranks along a dimension. Throws as operator[].
    [[nodiscard]] int size(std::string_view dimension) const;

private:
    struct Axis {
        std::string name;
        int size = 1;
        int coordinate = 0;
        std::unique_ptr<ProcessGroup> group;
    };

    [[nodiscard]] const Axis& axis(std::string_view name) const;

    std::vector<Axis> axes_;
};

}  // namespace ddp
