#include "ddp/mesh.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "common/text/list.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/group/agreement.hpp"

namespace ddp {

namespace {

std::string text_of(std::span<const MeshDimension> dimensions) {
    std::vector<std::string> parts;
    for (const auto& [name, size] : dimensions) parts.push_back(fmt::format("'{}' {}", name, size));
    return fmt::format("{}", fmt::join(parts, " x "));
}

[[noreturn]] void refuse(const Context& context, const std::string& text) {
    throw Error(ErrorCode::InvalidArgument, fmt::format("Mesh: rank {}: {}", context.rank(), text));
}

void check(std::span<const MeshDimension> dimensions, const Context& context) {
    const int world_size = context.world_size();
    std::int64_t ranks = 1;
    for (std::size_t i = 0; i < dimensions.size(); ++i) {
        const auto& [name, size] = dimensions[i];
        if (name.empty()) refuse(context, fmt::format("dimension {} has no name. Give it one", i));
        const auto before = dimensions.first(i);
        if (std::ranges::find(before, name, &MeshDimension::name) != before.end())
            refuse(context, fmt::format("two dimensions have the name '{}'. Give each its own", name));
        if (size < 1)
            refuse(context, fmt::format("dimension '{}' has the size {}, and at least 1 is needed", name, size));
        ranks = std::min<std::int64_t>(ranks * size, std::int64_t{1} << 32);  // no overflow
    }
    if (ranks == world_size) return;
    refuse(context, fmt::format("{} does not hold a world of {} ranks. Make the product of the sizes equal to it",
                                dimensions.empty() ? "a mesh without dimensions" : text_of(dimensions), world_size));
}

}  // namespace

Mesh::Mesh(Context& context, List<MeshDimension> dimensions) {
    const std::span<const MeshDimension> list = dimensions.elements();
    // First: a rank that alone is refused would leave the others to their deadline.
    detail::require_agreement(context.world(), "the mesh", std::vector{text_of(list)},
                              "Make the same mesh on every rank.");
    check(list, context);
    int stride = context.world_size();
    for (const auto& [name, size] : list) {
        const int outside = context.rank() / stride;  // the coordinates before this one
        stride /= size;
        const int coordinate = context.rank() / stride % size;
        const int inside = context.rank() % stride;
        auto group = context.world().split(outside * stride + inside, coordinate, name);
        if (group->size() != size) {
            throw Error(ErrorCode::Mismatch,
                        fmt::format("Mesh: {} of {} ranks have joined dimension '{}' of {}. Make the same mesh on "
                                    "every rank",
                                    group->size(), size, name, text_of(list)));
        }
        axes_.push_back({std::string(name), size, coordinate, std::move(group)});
    }
}

const Mesh::Axis& Mesh::axis(std::string_view name) const {
    const auto found = std::ranges::find(axes_, name, &Axis::name);
    if (found != axes_.end()) return *found;
    std::vector<std::string> names;
    for (const Axis& one : axes_) names.push_back(fmt::format("'{}'", one.name));
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("Mesh: there is no dimension '{}'; there is {}", name, ddprun::list_of(std::move(names))));
}

ProcessGroup& Mesh::operator[](std::string_view dimension) { return *axis(dimension).group; }
int Mesh::coordinate(std::string_view dimension) const { return axis(dimension).coordinate; }
int Mesh::size(std::string_view dimension) const { return axis(dimension).size; }

}  // namespace ddp
