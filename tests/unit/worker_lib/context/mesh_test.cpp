// Mesh: coordinates, groups of each dimension, and shapes that are refused.

#include "ddp/mesh.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

using namespace ddp;
using namespace ddp::testing;
using Catch::Contains;

namespace {

std::string error_of(Context& context, List<MeshDimension> dimensions) {
    try {
        const Mesh mesh(context, dimensions);
    } catch (const Error& error) {
        return std::string(to_string(error.code())) + ": " + error.what();
    }
    return "none";
}

}  // namespace

TEST_CASE("a mesh has a group for each dimension, whose neighbours in the last are neighbours in the world",
          "[context][unit]") {
    const auto seen = run_ranks({.ranks_per_node = {6, 6}}, [](Context& context) {
        Mesh mesh(context, {{"replica", 2}, {"stage", 3}, {"shard", 2}});
        std::vector<int> result{mesh.coordinate("replica"), mesh.coordinate("stage"), mesh.coordinate("shard")};
        for (const char* const name : {"replica", "stage", "shard"}) {
            int sum = context.rank();
            mesh[name].all_reduce(sum, ReduceOp::Sum).wait();
            const bool fits = mesh[name].rank() == mesh.coordinate(name) && mesh[name].size() == mesh.size(name);
            result.push_back(fits ? sum : -1);
        }
        return result;
    });
    for (int rank = 0; rank < 12; ++rank) {
        const int replica = rank / 6, stage = rank / 2 % 3, shard = rank % 2;
        CHECK(seen[static_cast<std::size_t>(rank)] ==
              std::vector{replica, stage, shard, 2 * rank + 6 - 12 * replica,  //
                          3 * (6 * replica + shard) + 6, 2 * rank + 1 - 2 * shard});
    }
}

TEST_CASE("a mesh that does not fit the world is refused, and so is a dimension without a name of its own",
          "[context][unit]") {
    const auto errors = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        Mesh mesh(context, {{"all", 2}});
        std::string unknown;
        try {
            (void)mesh["al"];
        } catch (const Error& error) {
            unknown = error.what();
        }
        return std::vector{error_of(context, {{"a", 2}, {"b", 2}}),
                           error_of(context, {}),
                           error_of(context, {{"a", 2}, {"", 1}}),
                           error_of(context, {{"a", 2}, {"a", 1}}),
                           error_of(context, {{"a", -2}, {"b", -1}}),
                           error_of(context, {{"a", 1 << 30}, {"b", 1 << 30}, {"c", 1 << 30}}),
                           unknown};
    });
    CHECK_THAT(errors[0][0],
               Contains("InvalidArgument: Mesh: rank 0: 'a' 2 x 'b' 2 does not hold a world of 2 ranks. Make the "
                        "product of the sizes equal to it"));
    CHECK_THAT(errors[0][1], Contains("a mesh without dimensions does not hold a world of 2 ranks"));
    CHECK_THAT(errors[0][2], Contains("dimension 1 has no name"));
    CHECK_THAT(errors[0][3], Contains("two dimensions have the name 'a'"));
    CHECK_THAT(errors[0][4], Contains("dimension 'a' has the size -2, and at least 1 is needed"));
    CHECK_THAT(errors[0][5], Contains("does not hold a world of 2 ranks"));
    CHECK_THAT(errors[0][6], Contains("Mesh: there is no dimension 'al'; there is 'all'"));
}

TEST_CASE("ranks that make different meshes learn it", "[context][unit]") {
    const int columns = GENERATE(1, 3);  // 3: that rank alone has a mesh which does not fit
    const auto outcomes = try_ranks({.ranks_per_node = {4}, .init_timeout = std::chrono::milliseconds(20'000)},
                                    [columns](Context& context) {
                                        const bool odd = context.rank() == 0;
                                        const Mesh mesh(context, {{"row", odd ? 4 : 2}, {"column", odd ? columns : 2}});
                                    });
    for (const auto& outcome : outcomes) {
        CHECK_THAT(outcome.text(), Contains("the ranks disagree on the mesh") &&
                                       Contains(fmt::format("'row' 4 x 'column' {}", columns)) &&
                                       Contains("'row' 2 x 'column' 2") &&
                                       Contains("Make the same mesh on every rank"));
    }
}
