#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include "common/fnv.hpp"
#include "ddp/bucket_plan.hpp"
#include "ddp/error.hpp"

namespace ddp {
namespace {

constexpr std::uint64_t kWordsVersion = 0x6464702d706c6132;  // "ddp-pla2"

[[noreturn]] void refuse_plan(const std::string& text) {
    throw Error(ErrorCode::InvalidArgument, "bucket plan: " + text);
}

constexpr std::size_t kMaxBytes = std::numeric_limits<std::ptrdiff_t>::max();  // of all gradients
constexpr std::size_t kMaxAlign = 4096;  // bounds the padding, so that a broken plan cannot fill the memory

std::size_t bytes_of(const ParamSpec& param) { return param.count * size_of(param.dtype); }

std::string named(std::span<const ParamSpec> params, std::size_t i) {
    return "parameter " + std::to_string(i) + " ('" + params[i].name + "')";
}

/// Throws for types that have no gradients, and for sizes whose sum, with the largest alignment, exceeds any memory.
void check(std::span<const ParamSpec> params) {
    std::size_t left = kMaxBytes;
    for (std::size_t i = 0; i < params.size(); ++i) {
        const std::size_t count = params[i].count;
        const DType dtype = params[i].dtype;
        if (!is_float(dtype)) {
            refuse_plan(named(params, i) + " is of type " + std::string(to_string(dtype)) +
                        ": only f16, bf16, f32 and f64 have gradients to average");
        }
        if (left <= kMaxAlign || count > (left - kMaxAlign) / size_of(dtype)) {
            refuse_plan(named(params, i) + " has " + std::to_string(count) +
                        " elements: all together are more than memory can hold");
        }
        left -= count * size_of(dtype) + kMaxAlign;
    }
}

std::size_t round_up(std::size_t value, std::size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// The bucket that is being filled for one element type, and the number of those closed before it.
struct Filling {
    BucketPlan::Bucket bucket;
    std::size_t closed = 0;
};

std::size_t limit_bytes(const Filling& filling, const BucketLimits& limits) {
    return filling.closed == 0 ? limits.first_bucket_cap_bytes : limits.bucket_cap_bytes;
}

void check(const BucketLimits& limits) {
    const std::size_t align = limits.align_bytes;
    if (align != 0 && align % sizeof(double) == 0 && align <= kMaxAlign) return;
    const std::string unit = std::to_string(sizeof(double));
    refuse_plan("BucketLimits::align_bytes is " + std::to_string(align) + ": expected a multiple of " + unit +
                ", from " + unit + " to " + std::to_string(kMaxAlign));
}

/// Returns `order`, or the last registered first if it is empty. Throws unless it names each of `params` once.
std::vector<std::size_t> complete(std::span<const std::size_t> order, std::size_t params) {
    std::vector<std::size_t> whole(order.begin(), order.end());
    if (whole.empty()) {
        whole.resize(params);
        std::iota(whole.rbegin(), whole.rend(), std::size_t{0});
        return whole;
    }
    std::vector<std::size_t> sorted = whole;
    std::ranges::sort(sorted);
    for (std::size_t i = 0; i < sorted.size(); ++i) {
        if (sorted[i] != i || sorted.size() != params)
            refuse_plan("the ready order must name each of the " + std::to_string(params) + " parameters once");
    }
    return whole;
}

/// Throws for a gap, between two gradients or behind the last one, that is larger than any alignment.
void check_gap(std::size_t begin, std::size_t end) {
    if (end - begin < kMaxAlign) return;
    refuse_plan("a gap of " + std::to_string(end - begin) + " bytes, which no alignment up to " +
                std::to_string(kMaxAlign) + " explains");
}

}  // namespace

BucketPlan plan_buckets(std::span<const ParamSpec> params, const BucketLimits& limits,
                        std::span<const std::size_t> ready_order) {
    check(limits);
    check(params);
    const std::vector<std::size_t> order = complete(ready_order, params.size());
    BucketPlan plan;
    std::map<DType, Filling> filling;
    const auto close = [&plan](Filling& f) {
        plan.buckets.push_back(std::move(f.bucket));
        f = {.bucket = {}, .closed = f.closed + 1};
    };
    for (const std::size_t i : order) {
        Filling& f = filling[params[i].dtype];
        f.bucket.dtype = params[i].dtype;
        f.bucket.slots.push_back({.param = i, .offset_bytes = f.bucket.bytes});
        f.bucket.bytes += round_up(bytes_of(params[i]), limits.align_bytes);
        if (f.bucket.bytes >= limit_bytes(f, limits)) close(f);
    }
    for (auto& [dtype, f] : filling) {
        if (!f.bucket.slots.empty()) close(f);
    }
    // A bucket is complete when its last slot is ready. This orders the buckets of different types.
    std::vector<std::size_t> position(order.size());
    for (std::size_t k = 0; k < order.size(); ++k) position[order[k]] = k;
    std::ranges::sort(plan.buckets, {},
                      [&](const BucketPlan::Bucket& bucket) { return position[bucket.slots.back().param]; });
    return plan;
}

std::uint64_t BucketPlan::hash() const {
    ddprun::Fnv64 fnv;
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

std::vector<std::uint64_t> BucketPlan::words() const {
    std::vector<std::uint64_t> words{kWordsVersion, buckets.size()};
    for (const Bucket& bucket : buckets) {
        words.insert(words.end(), {static_cast<std::uint64_t>(bucket.dtype), bucket.bytes, bucket.slots.size()});
        for (const Slot& slot : bucket.slots) words.insert(words.end(), {slot.param, slot.offset_bytes});
    }
    return words;
}

BucketPlan BucketPlan::from_words(std::span<const std::uint64_t> words) {
    std::size_t at = 0;
    const auto next = [&] {
        if (at == words.size())
            refuse_plan("it is cut short: there are only " + std::to_string(at) +
                        " numbers. Pass all that BucketPlan::words() returned");
        return words[at++];
    };
    if (const auto version = next(); version != kWordsVersion)
        refuse_plan("the numbers begin with " + std::to_string(version) + ", not with " +
                    std::to_string(kWordsVersion));
    BucketPlan plan;
    for (auto left = next(); left > 0; --left) {
        Bucket& bucket = plan.buckets.emplace_back();
        const std::uint64_t dtype = next();
        if (dtype > static_cast<std::uint64_t>(DType::F64)) refuse_plan("there is no type " + std::to_string(dtype));
        bucket.dtype = static_cast<DType>(dtype);
        bucket.bytes = next();
        for (auto slots = next(); slots > 0; --slots) {
            const std::uint64_t param = next();
            bucket.slots.push_back({.param = param, .offset_bytes = next()});
        }
    }
    if (at != words.size()) refuse_plan(std::to_string(words.size() - at) + " numbers follow the end of the plan");
    return plan;
}

void check_plan(const BucketPlan& plan, std::span<const ParamSpec> params) {
    check(params);
    std::vector<bool> seen(params.size(), false);
    for (const BucketPlan::Bucket& bucket : plan.buckets) {
        if (bucket.bytes % sizeof(double) != 0 || bucket.slots.empty())
            refuse_plan("a bucket of " + std::to_string(bucket.bytes) + " bytes for " +
                        std::to_string(bucket.slots.size()) + " gradients");
        std::size_t end = 0;
        for (const BucketPlan::Slot& slot : bucket.slots) {
            if (slot.param >= params.size()) refuse_plan("it has a parameter " + std::to_string(slot.param));
            const ParamSpec& param = params[slot.param];
            if (seen[slot.param]) refuse_plan(named(params, slot.param) + " is in it twice");
            if (param.dtype != bucket.dtype)
                refuse_plan(named(params, slot.param) + " is of another type than its bucket");
            if (slot.offset_bytes > bucket.bytes || bytes_of(param) > bucket.bytes - slot.offset_bytes)
                refuse_plan(named(params, slot.param) + " does not fit between byte " +
                            std::to_string(slot.offset_bytes) + " and the end of its bucket");
            if (slot.offset_bytes < end) refuse_plan(named(params, slot.param) + " overlaps the gradient before it");
            if (slot.offset_bytes % sizeof(double) != 0)
                refuse_plan(named(params, slot.param) + " begins at byte " + std::to_string(slot.offset_bytes) +
                            ", which is not a multiple of " + std::to_string(sizeof(double)));
            check_gap(end, slot.offset_bytes);
            end = slot.offset_bytes + bytes_of(param);
            seen[slot.param] = true;
        }
        check_gap(end, bucket.bytes);
    }
    const auto missing = std::ranges::find(seen, false);
    if (missing != seen.end()) refuse_plan(named(params, std::size_t(missing - seen.begin())) + " is not in it");
}

}  // namespace ddp
