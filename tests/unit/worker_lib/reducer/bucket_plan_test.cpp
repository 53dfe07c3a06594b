#include <set>

#include "ddp/bucket_plan.hpp"
#include "ddp/error.hpp"
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
        params.push_back({"weight", 1024 * 1024, DType::F32});
        params.push_back({"bias", 1024, DType::F32});
    }
    const BucketPlan plan = plan_buckets(params, {});
    // Printed by PyTorch 1.13 for the parameters in the order in which backward makes them ready.
    CHECK(sizes(plan) == std::vector<std::size_t>{4198400, 29388800, 29388800, 29388800, 29388800, 4198400});
    CHECK(params_of(plan.buckets.front()) == std::vector<std::size_t>{59, 58});
    CHECK(params_of(plan.buckets.back()) == std::vector<std::size_t>{1, 0});
}

TEST_CASE("the tensor that crosses the limit is inside, and one that hits it closes the bucket", "[plan]") {
    const ddp::BucketLimits options{.bucket_cap_bytes = 256, .first_bucket_cap_bytes = 256, .align_bytes = 128};
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

TEST_CASE("a bucket holds one type, each type walks the limits by itself", "[plan]") {
    const ddp::BucketLimits options{.bucket_cap_bytes = 1024, .first_bucket_cap_bytes = 128, .align_bytes = 128};
    std::vector<ParamSpec> params;
    for (int i = 0; i < 6; ++i) params.push_back({"p", 64, i % 2 ? DType::F16 : DType::F32});  // 128 and 256 bytes
    const BucketPlan plan = plan_buckets(params, options);
    REQUIRE(plan.buckets.size() == 4);
    // The first bucket of each type is the small one; the leftovers are launched when their first layer is ready.
    CHECK(params_of(plan.buckets[0]) == std::vector<std::size_t>{5});
    CHECK(params_of(plan.buckets[1]) == std::vector<std::size_t>{4});
    CHECK(params_of(plan.buckets[2]) == std::vector<std::size_t>{3, 1});
    CHECK(params_of(plan.buckets[3]) == std::vector<std::size_t>{2, 0});
    CHECK(plan.buckets[0].dtype == DType::F16);
    CHECK(plan.buckets[3].dtype == DType::F32);
}

TEST_CASE("every parameter has exactly one slot", "[plan]") {
    std::vector<ParamSpec> params;
    for (std::size_t i = 0; i < 200; ++i) params.push_back({"p", (i * 7919) % 3000, i % 3 ? DType::F32 : DType::F64});
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

TEST_CASE("different plans have different hashes", "[plan]") {
    const std::vector<ParamSpec> params{{"a", 100}, {"b", 100}};
    const std::vector<ParamSpec> other{{"a", 100}, {"b", 300}};
    CHECK(plan_buckets(params, {}).hash() == plan_buckets(params, {}).hash());
    CHECK(plan_buckets(params, {}).hash() != plan_buckets(other, {}).hash());
    CHECK(plan_buckets(params, {}).hash() != plan_buckets(params, {.first_bucket_cap_bytes = 1}).hash());
    CHECK(plan_buckets({}, {}).buckets.empty());
}

TEST_CASE("a type without gradients and a bad alignment are refused by name", "[plan]") {
    using Catch::Contains;
    const std::vector<ParamSpec> params{{"weight", 3}, {"steps", 1, DType::I64}};
    CHECK_THROWS_WITH(plan_buckets(params, {}), Contains("'steps'") && Contains("i64"));
    CHECK_THROWS_WITH(plan_buckets({}, {.align_bytes = 0}), Contains("align_bytes"));
    CHECK_THROWS_WITH(plan_buckets({}, {.align_bytes = 12}), Contains("align_bytes"));
    CHECK_THROWS_WITH(plan_buckets({}, {.align_bytes = 8192}),
                      Contains("align_bytes is 8192") && Contains("from 8 to 4096"));
    CHECK_THROWS_WITH(plan_buckets({}, {.align_bytes = std::size_t{1} << 63}), Contains("align_bytes"));
}

TEST_CASE("a ready order decides what shares a bucket, and which bucket comes first", "[plan]") {
    const std::vector<ParamSpec> params{{"a", 32}, {"b", 32}, {"c", 32, DType::F64}, {"d", 32}};
    const ddp::BucketLimits limits{.bucket_cap_bytes = 256, .first_bucket_cap_bytes = 256};
    const std::vector<std::size_t> order{1, 3, 2, 0};
    const BucketPlan plan = plan_buckets(params, limits, order);
    REQUIRE(plan.buckets.size() == 3);
    CHECK(params_of(plan.buckets[0]) == std::vector<std::size_t>{1, 3});
    CHECK(params_of(plan.buckets[1]) == std::vector<std::size_t>{2});
    CHECK(params_of(plan.buckets[2]) == std::vector<std::size_t>{0});

    using Catch::Contains;
    for (const std::vector<std::size_t>& bad :
         {std::vector<std::size_t>{1, 3, 2}, {1, 3, 2, 2}, {1, 3, 2, 4}, {0, 1, 2, 3, 4}})
        CHECK_THROWS_WITH(plan_buckets(params, limits, bad), Contains("each of the 4 parameters once"));
}

TEST_CASE("a plan survives its way through numbers, and broken numbers are refused", "[plan]") {
    using Catch::Contains;
    const std::vector<ParamSpec> params{{"a", 100}, {"b", 3, DType::BF16}, {"c", 50, DType::F64}};
    const BucketPlan plan = plan_buckets(params, {});
    const auto words = plan.words();
    CHECK(BucketPlan::from_words(words) == plan);
    CHECK(BucketPlan::from_words(BucketPlan{}.words()) == BucketPlan{});
    for (std::size_t length = 0; length < words.size(); ++length)
        CHECK_THROWS_WITH(BucketPlan::from_words(std::span(words).first(length)), Contains("cut short"));
    auto longer = words;
    longer.push_back(1);
    CHECK_THROWS_WITH(BucketPlan::from_words(longer), Contains("1 numbers follow"));
    auto other = words;
    other[0] = 7;
    CHECK_THROWS_WITH(BucketPlan::from_words(other), Contains("begin with 7"));
    other = words;
    other[2] = 200;
    CHECK_THROWS_WITH(BucketPlan::from_words(other), Contains("no type 200"));
    other = words;
    other[1] = ~std::uint64_t{0};  // believed, this would fill the memory
    CHECK_THROWS_WITH(BucketPlan::from_words(other), Contains("cut short"));
}

TEST_CASE("a plan that does not fit the parameters is refused, with the reason", "[plan]") {
    using Catch::Contains;
    const std::vector<ParamSpec> params{{"a", 32}, {"b", 32}};
    const BucketPlan good = plan_buckets(params, {});
    CHECK_NOTHROW(check_plan(good, params));
    const auto broken = [&](auto change) {
        BucketPlan plan = good;
        change(plan.buckets.front());
        return plan;
    };
    using Bucket = BucketPlan::Bucket;
    CHECK_THROWS_WITH(check_plan(broken([](Bucket& b) { b.slots.pop_back(); }), params),
                      Contains("'a'") && Contains("not in it"));
    CHECK_THROWS_WITH(check_plan(broken([](Bucket& b) { b.slots[0].param = 0; }), params),
                      Contains("'a'") && Contains("twice"));
    CHECK_THROWS_WITH(check_plan(broken([](Bucket& b) { b.slots[0].param = 9; }), params), Contains("parameter 9"));
    CHECK_THROWS_WITH(check_plan(broken([](Bucket& b) { b.dtype = DType::F64; }), params), Contains("another type"));
    CHECK_THROWS_WITH(check_plan(broken([](Bucket& b) { b.bytes = 128; }), params),
                      Contains("does not fit between byte 128 and the end of its bucket"));
    CHECK_THROWS_WITH(check_plan(broken([](Bucket& b) { b.bytes = 255; }), params), Contains("255 bytes"));
    CHECK_THROWS_WITH(check_plan(broken([](Bucket& b) { b.slots[1].offset_bytes = 64; }), params),
                      Contains("overlaps the gradient before it"));
    CHECK_THROWS_WITH(check_plan(broken([](Bucket& b) { b.slots[1].offset_bytes = 132, b.bytes = 264; }), params),
                      Contains("byte 132, which is not a multiple of 8"));
    CHECK_THROWS_WITH(check_plan(broken([](Bucket& b) { b.slots[1].offset_bytes = ~std::size_t{7}; }), params),
                      Contains("does not fit between byte"));
}

TEST_CASE("sizes that no memory can hold, and gaps that would fill it, are refused", "[plan]") {
    using Catch::Contains;
    constexpr std::size_t kHuge = std::size_t{1} << 62;
    const std::vector<ParamSpec> wraps{{"small", 3}, {"wraps", kHuge}};  // times 4 bytes: 0 of 64 bits
    CHECK_THROWS_WITH(plan_buckets(wraps, {}), Contains("'wraps'") && Contains("more than memory"));
    const std::vector<ParamSpec> together{{"one", kHuge / 4}, {"two", kHuge / 4}, {"three", 1}};
    CHECK_THROWS_WITH(plan_buckets(together, {}), Contains("'two'") && Contains("more than memory"));
    CHECK_THROWS_WITH(check_plan({}, wraps), Contains("'wraps'") && Contains("more than memory"));

    const std::vector<ParamSpec> params{{"a", 32}, {"b", 32}};
    BucketPlan plan;  // whose bytes add up to 0 of 64 bits
    for (std::size_t i = 0; i < 2; ++i)
        plan.buckets.push_back({.bytes = 2 * kHuge, .slots = {{.param = i, .offset_bytes = 0}}});
    CHECK_THROWS_WITH(check_plan(BucketPlan::from_words(plan.words()), params), Contains("gap of 92233720368547"));
    plan = plan_buckets(params, {});
    plan.buckets[0].slots[1].offset_bytes += 4096;
    plan.buckets[0].bytes += 4096;
    CHECK_THROWS_WITH(check_plan(plan, params), Contains("gap of 4096 bytes"));
    plan = plan_buckets(params, {});
    plan.buckets.push_back({.bytes = 8});
    CHECK_THROWS_WITH(check_plan(plan, params), Contains("8 bytes for 0 gradients"));
    CHECK_NOTHROW(check_plan(plan_buckets(params, {.align_bytes = 4096}), params));
}
