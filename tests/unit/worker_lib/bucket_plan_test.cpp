#include <set>

#include "ddp/error.hpp"
#include "ddp/reducer.hpp"
#include "tests/catch.hpp"

using ddp::BucketPlan;
using ddp::DType;
using ddp::ParamSpec;
using ddp::plan_buckets;

namespace {

std::vector<std::size_t> sizes(const BucketPlan& plan) {
    std::vector<std::size_t> result;
    for (const auto& bucket : plan.buckets) result.push_back(bucket.bytes);
    return result;
}

std::vector<std::size_t> params_of(const BucketPlan::Bucket& bucket) {
    std::vector<std::size_t> result;
    for (const auto& slot : bucket.slots) result.push_back(slot.param);
    return result;
}

}  // namespace

TEST_CASE("30 linear layers get the buckets that DDP gives them", "[plan]") {
    std::vector<ParamSpec> params;
    for (int layer = 0; layer < 30; ++layer) {
        params.push_back({"weight", 1024 * 1024, DType::f32});
        params.push_back({"bias", 1024, DType::f32});
    }
    const BucketPlan plan = plan_buckets(params, {});
    // Printed by PyTorch 1.13 for the parameters in the order in which backward makes them ready.
    CHECK(sizes(plan) == std::vector<std::size_t>{4198400, 29388800, 29388800, 29388800, 29388800, 4198400});
    CHECK(params_of(plan.buckets.front()) == std::vector<std::size_t>{59, 58});
    CHECK(params_of(plan.buckets.back()) == std::vector<std::size_t>{1, 0});
}

TEST_CASE("the tensor that crosses the limit is inside, and one that hits it closes the bucket", "[plan]") {
    const ddp::ReducerOptions options{.bucket_cap_bytes = 256, .first_bucket_cap_bytes = 256, .align_bytes = 128};
    const std::vector<ParamSpec> params{{"d", 1}, {"c", 32}, {"b", 33}, {"a", 1}};  // 128, 128, 256, 128 bytes, padded
    CHECK(sizes(plan_buckets(params, options)) == std::vector<std::size_t>{384, 256});
}

TEST_CASE("gradients are padded and never overlap", "[plan]") {
    const std::vector<ParamSpec> params{{"a", 5}, {"b", 33}, {"c", 0}, {"d", 32}};
    const BucketPlan plan = plan_buckets(params, {});
    REQUIRE(plan.buckets.size() == 1);
    CHECK(params_of(plan.buckets[0]) == std::vector<std::size_t>{3, 2, 1, 0});
    std::vector<std::size_t> offsets;
    for (const auto& slot : plan.buckets[0].slots) offsets.push_back(slot.offset_bytes);
    CHECK(offsets == std::vector<std::size_t>{0, 128, 128, 384});
    CHECK(plan.buckets[0].bytes == 512);
}

TEST_CASE("a bucket holds one type; each type walks the limits by itself", "[plan]") {
    const ddp::ReducerOptions options{.bucket_cap_bytes = 1024, .first_bucket_cap_bytes = 128, .align_bytes = 128};
    std::vector<ParamSpec> params;
    for (int i = 0; i < 6; ++i) params.push_back({"p", 64, i % 2 ? DType::f16 : DType::f32});  // 128 and 256 bytes
    const BucketPlan plan = plan_buckets(params, options);
    REQUIRE(plan.buckets.size() == 4);
    // The first bucket of each type is the small one; the leftovers are launched when their first layer is ready.
    CHECK(params_of(plan.buckets[0]) == std::vector<std::size_t>{5});
    CHECK(params_of(plan.buckets[1]) == std::vector<std::size_t>{4});
    CHECK(params_of(plan.buckets[2]) == std::vector<std::size_t>{3, 1});
    CHECK(params_of(plan.buckets[3]) == std::vector<std::size_t>{2, 0});
    CHECK(plan.buckets[0].dtype == DType::f16);
    CHECK(plan.buckets[3].dtype == DType::f32);
}

TEST_CASE("every parameter has exactly one place", "[plan]") {
    std::vector<ParamSpec> params;
    for (std::size_t i = 0; i < 200; ++i) params.push_back({"p", (i * 7919) % 3000, i % 3 ? DType::f32 : DType::f64});
    const BucketPlan plan =
        plan_buckets(params, {.bucket_cap_bytes = 20000, .first_bucket_cap_bytes = 1000, .align_bytes = 64});
    std::set<std::size_t> seen;
    for (const auto& bucket : plan.buckets) {
        for (const auto& slot : bucket.slots) {
            CHECK(seen.insert(slot.param).second);
            CHECK(params[slot.param].dtype == bucket.dtype);
            CHECK(slot.offset_bytes % 64 == 0);
            CHECK(slot.offset_bytes + params[slot.param].count * size_of(bucket.dtype) <= bucket.bytes);
        }
    }
    CHECK(seen.size() == params.size());
}

TEST_CASE("the hash tells plans apart", "[plan]") {
    const std::vector<ParamSpec> params{{"a", 100}, {"b", 100}};
    const std::vector<ParamSpec> other{{"a", 100}, {"b", 300}};
    CHECK(plan_buckets(params, {}).hash() == plan_buckets(params, {}).hash());
    CHECK(plan_buckets(params, {}).hash() != plan_buckets(other, {}).hash());
    CHECK(plan_buckets(params, {}).hash() != plan_buckets(params, {.first_bucket_cap_bytes = 1}).hash());
    CHECK(plan_buckets({}, {}).buckets.empty());
}

TEST_CASE("what has no gradient, or no sound alignment, is refused by name", "[plan]") {
    using Catch::Contains;
    const std::vector<ParamSpec> params{{"weight", 3}, {"steps", 1, DType::i64}};
    CHECK_THROWS_WITH(plan_buckets(params, {}), Contains("'steps'") && Contains("i64"));
    CHECK_THROWS_WITH(plan_buckets({}, {.align_bytes = 0}), Contains("align_bytes"));
    CHECK_THROWS_WITH(plan_buckets({}, {.align_bytes = 12}), Contains("align_bytes"));
}
