#include "worker_lib/src/reducer/agreements.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "common/fnv.hpp"
#include "common/text/number.hpp"
#include "worker_lib/src/group/agreement.hpp"
#include "worker_lib/src/reducer/refuse.hpp"

namespace ddp::detail {
namespace {

std::string describe(std::size_t i, const ParamSpec& param) {
    return "parameter " + std::to_string(i) + " '" + param.name + "' " + std::string(to_string(param.dtype)) + "[" +
           std::to_string(param.count) + "]";
}

std::string_view name_of(Average average) {
    switch (average) {
        case Average::Auto: return "Auto";
        case Average::Pre: return "Pre";
        case Average::Post: return "Post";
        case Average::InReduce: return "InReduce";
    }
    return "?";
}

/// Returns all options and parameters on which a rank's collectives depend.
std::vector<std::string> describe(const std::vector<ParamSpec>& params, const ReducerOptions& options) {
    std::vector<std::string> items;
    items.reserve(params.size() + 2);
    items.push_back("bucket limits of " + std::to_string(options.limits.first_bucket_cap_bytes) + " and " +
                    std::to_string(options.limits.bucket_cap_bytes) + " bytes, alignment " +
                    std::to_string(options.limits.align_bytes));
    items.push_back(
        std::string(options.hook ? "a hook" : "no hook") + ", Average::" + std::string(name_of(options.average)) +
        (options.rebuild && !options.plan ? ", rebuild" : "") + (options.find_unused ? ", find_unused" : "") +
        (options.check_every_step ? ", check_every_step" : ""));
    for (std::size_t i = 0; i < params.size(); ++i) items.push_back(describe(i, params[i]));
    return items;
}

/// Returns the buckets, then the address of each gradient. So the first item that differs is the first bucket of
/// another size or, only if there is none, the first gradient at another address.
std::vector<std::string> describe(const BucketPlan& plan, const std::vector<ParamSpec>& params) {
    std::vector<std::string> items;
    items.reserve(plan.buckets.size() + params.size());
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
        const BucketPlan::Bucket& bucket = plan.buckets[b];
        items.push_back("bucket " + std::to_string(b) + " with " + ddprun::counted(bucket.slots.size(), "parameter") +
                        " in " + std::to_string(bucket.bytes) + " bytes of " + std::string(to_string(bucket.dtype)) +
                        ", the first of them " +
                        describe(bucket.slots.front().param, params[bucket.slots.front().param]));
    }
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
        for (const BucketPlan::Slot& slot : plan.buckets[b].slots) {
            items.push_back(describe(slot.param, params[slot.param]) + " at byte " + std::to_string(slot.offset_bytes) +
                            " of bucket " + std::to_string(b));
        }
    }
    return items;
}

void check_uses(const std::vector<ParamSpec>& params) {
    for (std::size_t i = 0; i < params.size(); ++i) {
        if (params[i].uses < 1)
            refuse(describe(i, params[i]) + ": uses is " + std::to_string(params[i].uses) + ", at least 1 is needed");
    }
}

/// Returns the plan, checked as far as one rank can. Throws Error{InvalidArgument}.
BucketPlan checked_plan(const std::vector<ParamSpec>& params, const ReducerOptions& options) {
    check_uses(params);
    BucketPlan plan = options.plan ? *options.plan : plan_buckets(params, options.limits);
    check_plan(plan, params);
    return plan;
}

}  // namespace

BucketPlan agree_on_plan(ProcessGroup& group, const std::vector<ParamSpec>& params, const ReducerOptions& options) {
    std::vector<std::string> items = describe(params, options);
    BucketPlan plan;
    std::exception_ptr refusal;
    try {
        plan = checked_plan(params, options);
    } catch (const Error& error) {
        // Perhaps only this rank has found it. The others get it by the comparison, else they would wait for this rank.
        refusal = std::current_exception();
        items.insert(items.begin(), error.what());
    }
    require_agreement(group, "the reducer's parameters or options", items);
    if (refusal) std::rethrow_exception(refusal);
    // Without ReducerOptions::plan this differs only if the nodes run different versions of this library.
    require_agreement(group, "the bucket plan", describe(plan, params),
                      "Pass the same ReducerOptions::plan on every rank, or none on any.");
    return plan;
}

void agree_on_step(ProcessGroup& group, std::uint64_t steps, bool sync) {
    const std::vector<std::string> step{sync ? "one with sync" : "one without sync"};
    require_agreement(group, "the backward after " + std::to_string(steps) + " synchronised ones", step,
                      "begin_backward and no_sync() have to be used alike on every rank.");
}

std::vector<std::size_t> share_ready_order(ProcessGroup& group, const std::vector<std::size_t>& own,
                                           std::size_t params) {
    std::vector<std::uint64_t> order(own.begin(), own.end());
    order.resize(params, params);  // the index of no parameter
    group.broadcast(order, 0, {.label = "ready order"}).wait();
    if (std::ranges::find(order, params) != order.end()) return {};
    return {order.begin(), order.end()};
}

void verify_parameters(ProcessGroup& group, const std::vector<ParamSpec>& specs, std::span<const Buffer> params) {
    std::vector<std::string> items;
    const bool complete = params.size() == specs.size();
    if (!complete) {
        items.push_back("verify_parameters: " + std::to_string(params.size()) + " buffers for " +
                        std::to_string(specs.size()) + " parameters");
    }
    for (std::size_t i = 0; complete && i < params.size(); ++i) {
        ddprun::Fnv64 fnv;
        fnv.add({static_cast<const char*>(params[i].data), params[i].bytes()});
        char hash[24];
        std::snprintf(hash, sizeof hash, "0x%016" PRIx64, fnv.value());
        items.push_back(describe(i, specs[i]) + " whose bits have the hash " + hash);
    }
    require_agreement(group, "the values of the parameters", items,
                      "Call sync_parameters before training, and update every parameter alike on every rank.");
    if (!complete) refuse(items.front());  // on every rank
}

std::vector<bool> used_on_any_rank(ProcessGroup& group, const std::vector<bool>& used) {
    constexpr std::size_t kBits = 64;
    std::vector<std::uint64_t> words((used.size() + kBits - 1) / kBits, 0);
    for (std::size_t i = 0; i < used.size(); ++i) words[i / kBits] |= std::uint64_t{used[i]} << (i % kBits);
    group.all_reduce(words, ReduceOp::BitOr, {.label = "used gradients"}).wait();
    std::vector<bool> any(used.size());
    for (std::size_t i = 0; i < any.size(); ++i) any[i] = (words[i / kBits] >> (i % kBits) & 1) != 0;
    return any;
}

}  // namespace ddp::detail
