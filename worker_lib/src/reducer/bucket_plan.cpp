#include <algorithm>
#include <map>
#include <string>

#include "ddp/error.hpp"
#include "ddp/reducer.hpp"
#include "worker_lib/src/fnv.hpp"

namespace ddp {
namespace {

void check(const ParamSpec& param, std::size_t index) {
    if (is_float(param.dtype)) return;
    throw Error(ErrorCode::InvalidArgument, "parameter " + std::to_string(index) + " ('" + param.name +
                                                "') is of type " + std::string(to_string(param.dtype)) +
                                                ": only f16, bf16, f32 and f64 have gradients to average");
}

std::size_t round_up(std::size_t value, std::size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// The bucket that is being filled for one element type, and how many were closed before it.
struct Filling {
    BucketPlan::Bucket bucket;
    std::size_t closed = 0;
};

std::size_t limit_bytes(const Filling& filling, const ReducerOptions& options) {
    return filling.closed == 0 ? options.first_bucket_cap_bytes : options.bucket_cap_bytes;
}

}  // namespace

BucketPlan plan_buckets(std::span<const ParamSpec> params, const ReducerOptions& options) {
    if (options.align_bytes == 0 || options.align_bytes % sizeof(double) != 0) {
        throw Error(ErrorCode::InvalidArgument,
                    "ReducerOptions: align_bytes is " + std::to_string(options.align_bytes) +
                        ", it must be a positive multiple of " + std::to_string(sizeof(double)));
    }
    BucketPlan plan;
    std::map<DType, Filling> filling;
    const auto close = [&plan](Filling& f) {
        plan.buckets.push_back(std::move(f.bucket));
        f = {.bucket = {}, .closed = f.closed + 1};
    };
    for (std::size_t i = params.size(); i-- > 0;) {
        check(params[i], i);
        Filling& f = filling[params[i].dtype];
        f.bucket.dtype = params[i].dtype;
        f.bucket.slots.push_back({.param = i, .offset_bytes = f.bucket.bytes});
        f.bucket.bytes += round_up(params[i].count * size_of(params[i].dtype), options.align_bytes);
        if (f.bucket.bytes >= limit_bytes(f, options)) close(f);
    }
    for (auto& [dtype, f] : filling) {
        if (!f.bucket.slots.empty()) close(f);
    }
    // A bucket is complete when its first-registered parameter is ready, the last of its slots: that orders the types.
    std::ranges::sort(plan.buckets, std::ranges::greater{},
                      [](const BucketPlan::Bucket& bucket) { return bucket.slots.back().param; });
    return plan;
}

std::uint64_t BucketPlan::hash() const {
    detail::Fnv64 fnv;
    fnv.add_number(buckets.size());
    for (const Bucket& bucket : buckets) {
        fnv.add_number(static_cast<std::uint64_t>(bucket.dtype));
        fnv.add_number(bucket.bytes);
        fnv.add_number(bucket.slots.size());
        for (const Slot& slot : bucket.slots) {
            fnv.add_number(slot.param);
            fnv.add_number(slot.offset_bytes);
        }
    }
    return fnv.value();
}

}  // namespace ddp
