#include "ddp/collectives.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <numeric>
#include <span>

#include "ddp/error.hpp"
#include "worker_lib/src/group/agreement.hpp"
#include "worker_lib/src/operation/operation_check.hpp"

namespace ddp {

namespace {

[[noreturn]] void refuse(const ProcessGroup& group, std::string_view call, const std::string& wrong) {
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("group '{}': {}: {}: {}", group.name(), group.name_of(group.rank()), call, wrong));
}

/// Returns the options with the name of the call, unless the caller has given a label.
OpOptions labelled(OpOptions options, std::string_view call) {
    if (options.label.empty()) options.label = call;
    return options;
}

/// Collective. Returns how many bytes each rank has.
std::vector<std::size_t> sizes_of(ProcessGroup& group, std::string_view bytes, const OpOptions& options) {
    std::vector<std::size_t> sizes(static_cast<std::size_t>(group.size()));
    const std::size_t own = bytes.size();
    group.all_gather(own, sizes, options).wait();
    return sizes;
}

/// Resizes `bytes` for what is about to arrive. Without the memory it aborts the group, because the others wait.
void resize(ProcessGroup& group, std::string& bytes, std::size_t size, std::string_view call) {
    try {
        bytes.resize(size);
    } catch (const std::exception&) {  // no memory, or more than a string can hold
        const std::string why = fmt::format("{}: there is no memory for {} bytes", call, size);
        group.abort(why);
        throw Error(ErrorCode::System,
                    fmt::format("group '{}': {}: {}", group.name(), group.name_of(group.rank()), why));
    }
}

std::size_t total_of(std::span<const std::size_t> sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

std::vector<std::string> cut(std::string_view all, std::span<const std::size_t> sizes) {
    std::vector<std::string> parts;
    for (const std::size_t size : sizes) {
        parts.emplace_back(all.substr(0, size));
        all.remove_prefix(size);
    }
    return parts;
}

template <typename T>
double mean_of(ProcessGroup& group, std::span<T> values, double weight, const OpOptions& options) {
    std::vector<double> sums(values.size() + 1);
    for (std::size_t i = 0; weight > 0 && i < values.size(); ++i) sums[i] = weight * static_cast<double>(values[i]);
    sums.back() = weight;
    group.all_reduce(sums, ReduceOp::Sum, options).wait();
    const double total = sums.back();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = total > 0 ? static_cast<T>(sums[i] / total) : T{0};
    return total;
}

}  // namespace

void broadcast_string(ProcessGroup& group, std::string& bytes, int root, const OpOptions& options) {
    const OpOptions named = labelled(options, "broadcast_string()");
    std::size_t size = bytes.size();
    group.broadcast(size, root, named).wait();
    resize(group, bytes, size, named.label);
    group.broadcast(bytes, root, named).wait();
}

std::vector<std::string> all_gather_strings(ProcessGroup& group, std::string_view bytes, const OpOptions& options) {
    const OpOptions named = labelled(options, "all_gather_strings()");
    const std::vector<std::size_t> sizes = sizes_of(group, bytes, named);
    std::string all;
    resize(group, all, total_of(sizes), named.label);
    group.all_gather_v(bytes, all, sizes, named).wait();
    return cut(all, sizes);
}

std::vector<std::string> gather_strings(ProcessGroup& group, std::string_view bytes, int root,
                                        const OpOptions& options) {
    const OpOptions named = labelled(options, "gather_strings()");
    const std::vector<std::size_t> sizes = sizes_of(group, bytes, named);
    const bool is_root = group.rank() == root;
    std::string all;
    resize(group, all, is_root ? total_of(sizes) : 0, named.label);
    group.gather_v(bytes, all, sizes, root, named).wait();
    return is_root ? cut(all, sizes) : std::vector<std::string>();
}

void all_reduce_coalesced(ProcessGroup& group, List<Buffer> buffers, ReduceOp op, const OpOptions& options) {
    constexpr std::string_view kCall = "all_reduce_coalesced()";
    const std::span<const Buffer> list = buffers.elements();
    const DType type = list.empty() ? DType::F32 : list.front().dtype;
    std::size_t count = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
        const Buffer& one = list[i];
        if (one.device != Device::Cpu) {
            refuse(group, kCall,
                   fmt::format("buffer {} is device memory, and host memory is expected. Use all_reduce for it", i));
        }
        if (auto wrong = detail::device_memory_complaint(one, "buffer ", std::to_string(i)); !wrong.empty())
            refuse(group, kCall, wrong);
        if (one.dtype != type) {
            refuse(group, kCall,
                   fmt::format("buffer {} is of type {}, and buffer 0 of {}. Make one call for each type", i,
                               to_string(one.dtype), to_string(type)));
        }
        if (one.data == nullptr && one.count > 0)
            refuse(group, kCall, fmt::format("buffer {} is null and has {} elements", i, one.count));
        count += one.count;
    }
    // The all-reduce compares only the sum of the counts: other counts with the same sum would add up unlike buffers.
    std::vector<std::string> items;
    for (std::size_t i = 0; i < list.size(); ++i)
        items.push_back(fmt::format("buffer {} {}[{}]", i, to_string(type), list[i].count));
    detail::require_agreement(group, "the buffers of all_reduce_coalesced()", items,
                              "Pass the same buffers in the same order on every rank.", options.timeout);
    std::vector<std::byte> together(count * size_of(type));
    std::size_t at = 0;
    for (const Buffer& one : list) {
        if (one.count > 0) std::memcpy(&together[at], one.data, one.bytes());
        at += one.bytes();
    }
    group.all_reduce({together.data(), count, type}, op, labelled(options, kCall)).wait();
    at = 0;
    for (const Buffer& one : list) {
        if (one.count > 0) std::memcpy(one.data, &together[at], one.bytes());
        at += one.bytes();
    }
}

double weighted_mean(ProcessGroup& group, Buffer values, double weight, const OpOptions& options) {
    constexpr std::string_view kCall = "weighted_mean()";
    const OpOptions named = labelled(options, kCall);
    if (!std::isfinite(weight) || weight < 0)
        refuse(group, kCall,
               fmt::format("the weight is {}, and must be finite and not negative. Pass the size of this rank's batch",
                           weight));
    if (values.device != Device::Cpu)
        refuse(group, kCall, "the values are device memory, and host memory is expected. Copy them before");
    if (values.data == nullptr && values.count > 0) refuse(group, kCall, "the values are null");
    if (auto wrong = detail::device_memory_complaint(values, "the ", "buffer"); !wrong.empty())
        refuse(group, kCall, wrong);
    if (values.dtype == DType::F32)
        return mean_of(group, std::span(static_cast<float*>(values.data), values.count), weight, named);
    if (values.dtype == DType::F64)
        return mean_of(group, std::span(static_cast<double*>(values.data), values.count), weight, named);
    refuse(
        group, kCall,
        fmt::format("the values are of type {}, and must be f32 or f64. Convert them before", to_string(values.dtype)));
}

}  // namespace ddp
