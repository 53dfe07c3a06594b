#include "worker_lib/src/reducer/agreements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "common/text/number.hpp"
#include "ddp/float16.hpp"
#include "worker_lib/src/group/agreement.hpp"
#include "worker_lib/src/group/broadcast_in_pieces.hpp"
#include "worker_lib/src/reducer/parameter_reader.hpp"
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
BucketPlan checked_plan(const ProcessGroup& group, const std::vector<ParamSpec>& params, const ReducerOptions& options,
                        Device device) {
    if (device == Device::Cuda && group.backend() != Backend::Nccl)
        refuse(
            "ReducerOptions::device is Device::Cuda, but the group is of the native backend, which reduces host "
            "memory. Make the Context with Backend::Nccl, or leave the option out");
    check_uses(params);
    BucketPlan plan = options.plan ? *options.plan : plan_buckets(params, options.limits);
    check_plan(plan, params);
    return plan;
}

}  // namespace

BucketPlan agree_on_plan(ProcessGroup& group, const std::vector<ParamSpec>& params, const ReducerOptions& options,
                         Device device) {
    std::vector<std::string> items = describe(params, options);
    BucketPlan plan;
    std::exception_ptr refusal;
    try {
        plan = checked_plan(group, params, options, device);
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
    require_agreement(
        group, "the next backward", step,
        fmt::format("begin_backward and no_sync() have to be used alike on every rank. Here it is the one "
                    "after {} synchronised ones.",
                    steps));
}

std::vector<std::size_t> share_ready_order(ProcessGroup& group, const std::vector<std::size_t>& own,
                                           std::size_t params) {
    std::vector<std::uint64_t> order(own.begin(), own.end());
    order.resize(params, params);  // the index of no parameter
    group.broadcast(order, 0, {.label = "ready order"}).wait();
    if (std::ranges::find(order, params) != order.end()) return {};
    return {order.begin(), order.end()};
}

namespace {

/// Returns the values in host memory: the buffer itself, or a copy in `memory`.
Buffer on_host(const Buffer& buffer, ParameterReader& reader, std::vector<std::byte>& memory) {
    if (buffer.device == Device::Cpu) return buffer;
    memory.reserve(buffer.bytes());
    reader.read(buffer,
                [&](std::span<const std::byte> piece) { memory.insert(memory.end(), piece.begin(), piece.end()); });
    return {memory.data(), buffer.count, buffer.dtype};
}

/// Collective. Returns the index of the first number that differs between ranks; nothing if none does.
std::optional<std::size_t> first_difference(ProcessGroup& group, const std::vector<std::uint64_t>& own) {
    std::vector<std::uint64_t> lowest = own;
    std::vector<std::uint64_t> highest = own;
    Work low = group.all_reduce(lowest, ReduceOp::Min, {.label = "lowest"});
    group.all_reduce(highest, ReduceOp::Max, {.label = "highest"}).wait();
    low.wait();
    const auto differs = std::ranges::mismatch(lowest, highest).in1;
    if (differs == lowest.end()) return std::nullopt;
    return static_cast<std::size_t>(differs - lowest.begin());
}

/// Collective. Returns the index of the first element whose bits differ between ranks, given that one does.
std::size_t first_element_that_differs(ProcessGroup& group, const Buffer& values) {
    std::vector<std::byte> reference(values.bytes());
    if (group.rank() == 0) std::memcpy(reference.data(), values.data, values.bytes());
    const Buffer all(reference);
    broadcast_in_pieces(group, std::span(&all, 1), 0, "reference");
    const std::span own(static_cast<const std::byte*>(values.data), values.bytes());
    std::uint64_t first = static_cast<std::uint64_t>(std::ranges::mismatch(own, reference).in1 - own.begin());
    group.all_reduce(first, ReduceOp::Min, {.label = "first difference"}).wait();
    return first / size_of(values.dtype);
}

template <typename T>
T load(const Buffer& buffer, std::size_t index) {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(buffer.data) + index * sizeof(T), sizeof(T));
    return value;
}

/// Returns an element with as many digits as its type has.
std::string text_of(const Buffer& buffer, std::size_t index) {
    switch (buffer.dtype) {
        case DType::I8: return fmt::to_string(load<std::int8_t>(buffer, index));
        case DType::Bool:  // any byte
        case DType::U8: return fmt::to_string(load<std::uint8_t>(buffer, index));
        case DType::I16: return fmt::to_string(load<std::int16_t>(buffer, index));
        case DType::U16: return fmt::to_string(load<std::uint16_t>(buffer, index));
        case DType::I32: return fmt::to_string(load<std::int32_t>(buffer, index));
        case DType::U32: return fmt::to_string(load<std::uint32_t>(buffer, index));
        case DType::I64: return fmt::to_string(load<std::int64_t>(buffer, index));
        case DType::U64: return fmt::to_string(load<std::uint64_t>(buffer, index));
        case DType::F16: return fmt::to_string(float{load<Float16>(buffer, index)});
        case DType::BF16: return fmt::to_string(float{load<BFloat16>(buffer, index)});
        case DType::F32: return fmt::to_string(load<float>(buffer, index));
        case DType::F64: return fmt::to_string(load<double>(buffer, index));
    }
    return "?";
}

}  // namespace

void verify_parameters(ProcessGroup& group, const std::vector<ParamSpec>& specs, std::span<const Buffer> params,
                       ParameterReader& reader) {
    constexpr std::string_view kWhat = "the values of the parameters";
    constexpr std::string_view kAdvice =
        "Call sync_parameters before training, and update every parameter alike on every rank.";
    std::string wrong = reader.complaint(params);
    if (params.size() != specs.size()) wrong = fmt::format("{} buffers for {} parameters", params.size(), specs.size());
    const bool complete = wrong.empty();
    // Only the ranks have to agree on types: weights may be f32 where gradients are bf16.
    std::vector<std::string> items;
    for (std::size_t i = 0; complete && i < params.size(); ++i)
        items.push_back(describe(i, {specs[i].name, params[i].count, params[i].dtype}));
    if (!complete) items.push_back("verify_parameters: " + wrong);
    require_agreement(group, kWhat, items, kAdvice);
    if (!complete) refuse(items.front());  // on every rank

    const std::vector<std::uint64_t> hashes = reader.hashes(params);
    const auto differs = first_difference(group, hashes);
    if (!differs) return;
    std::vector<std::byte> memory;
    const Buffer values = on_host(params[*differs], reader, memory);
    const std::size_t at = std::min(first_element_that_differs(group, values), values.count - 1);
    const std::string text = fmt::format("{} with {} at index {} (bits with the hash {:016x})", items[*differs],
                                         text_of(values, at), at, hashes[*differs]);
    require_agreement(group, kWhat, std::span(&text, 1), kAdvice);
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
