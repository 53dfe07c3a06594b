#include "worker_lib/src/checkpoint/state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string_view>

#include "common/text/escape.hpp"
#include "common/text/utf8.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/operation/operation_check.hpp"

namespace ddp::detail {
namespace {

using ddprun::checkpoint::Tensor;

/// Returns "F32".
std::string type_in_files(DType dtype) {
    std::string text(to_string(dtype));
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return text;
}

std::string text_of(std::string_view name, std::string type, std::span<const std::size_t> shape) {
    std::ranges::transform(type, type.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return fmt::format("'{}' {}[{}]", ddprun::log_line(name, 200), type, fmt::join(shape, ","));
}
std::string text_of(const NamedShard& shard) {
    return text_of(shard.name, std::string(to_string(shard.part.dtype)), shard.shape);
}
std::string text_of(const Tensor& tensor) { return text_of(tensor.name, tensor.dtype, tensor.shape); }

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t bytes = ddprun::character_bytes(text);
        if (bytes == 0) return false;
        text.remove_prefix(bytes);
    }
    return true;
}

/// Returns what is wrong with a name; empty: nothing.
std::string_view complaint_about_name(std::string_view name) {
    if (name.empty()) return "a tensor needs a name";
    if (name == "__metadata__") return "the file format uses this name itself";
    if (std::ranges::any_of(name, [](char c) { return static_cast<unsigned char>(c) < 0x20; }))
        return "the name contains a control character";
    if (!is_utf8(name)) return "the name is not UTF-8";
    return {};
}

std::string complaint_about_range(const NamedShard& shard) {
    std::size_t bytes = size_of(shard.part.dtype);
    if (bytes == 0) return "its type does not exist";
    for (const std::size_t size : shard.shape) {
        if (size != 0 && bytes > std::numeric_limits<std::size_t>::max() / size) return "its shape is too large";
        bytes *= size;
    }
    const std::size_t elements = elements_of(shard);
    if (shard.part.count <= elements && shard.begin <= elements - shard.part.count) return {};
    return fmt::format("its part has {} elements from {} on, and the whole tensor {}", shard.part.count, shard.begin,
                       elements);
}

void check(const NamedShard& shard, Backend backend, std::set<std::string_view>& seen) {
    const auto refuse = [&](std::string_view why) {
        throw Error(ErrorCode::InvalidArgument,
                    fmt::format("cannot checkpoint '{}': {}", ddprun::log_line(shard.name, 200), why));
    };
    if (const auto wrong = complaint_about_name(shard.name); !wrong.empty()) refuse(wrong);
    if (!seen.insert(shard.name).second) refuse("two tensors have this name");
    if (const auto wrong = complaint_about_range(shard); !wrong.empty()) refuse(wrong);
    const bool on_device = shard.part.device != Device::Cpu;
    if (on_device && backend == Backend::Native)
        refuse(
            "it is device memory, and this group is on the native backend, which takes host memory only. Copy it to "
            "the host first, or use Backend::Nccl");
    const Backend taken_by = on_device ? Backend::Nccl : Backend::Native;
    if (const auto wrong = buffer_complaint(shard.part, "buffer", taken_by); !wrong.empty()) refuse(wrong);
}

}  // namespace

std::vector<NamedShard> as_shards(std::span<const NamedBuffer> state) {
    std::vector<NamedShard> shards;
    for (const NamedBuffer& named : state) shards.push_back({named.name, {named.buffer.count}, 0, named.buffer});
    return shards;
}

std::size_t elements_of(const NamedShard& shard) {
    return std::accumulate(shard.shape.begin(), shard.shape.end(), std::size_t{1}, std::multiplies<>());
}

void check_state(std::span<const NamedShard> state, Backend backend) {
    std::set<std::string_view> seen;
    for (const NamedShard& shard : state) check(shard, backend, seen);
}

std::string describe(std::size_t i, const NamedShard& shard, bool is_whole) {
    return fmt::format("tensor {} {}{}", i, text_of(shard),
                       is_whole && shard.part.device == Device::Cuda ? " on cuda" : "");
}

FileOrder order_of(std::span<const NamedShard> state) {
    FileOrder order;
    order.in_state.resize(state.size());
    std::iota(order.in_state.begin(), order.in_state.end(), std::size_t{0});
    std::ranges::stable_sort(order.in_state, std::greater(),
                             [&](std::size_t i) { return size_of(state[i].part.dtype); });
    std::size_t next = 0;
    for (const std::size_t i : order.in_state) {
        const std::size_t bytes = elements_of(state[i]) * size_of(state[i].part.dtype);
        order.tensors.push_back({state[i].name, type_in_files(state[i].part.dtype), state[i].shape, next, bytes});
        next += bytes;
    }
    return order;
}

std::string difference(std::span<const Tensor> tensors, std::span<const NamedShard> state) {
    std::map<std::string_view, const Tensor*> in_file;
    for (const Tensor& tensor : tensors) in_file.emplace(tensor.name, &tensor);
    for (const NamedShard& shard : state) {
        const auto found = in_file.find(shard.name);
        if (found == in_file.end()) return fmt::format("the file has nothing, this program {}", text_of(shard));
        const Tensor& tensor = *found->second;
        const bool same_type = tensor.dtype == type_in_files(shard.part.dtype);
        const bool same_size = tensor.bytes == elements_of(shard) * size_of(shard.part.dtype);
        const bool same_shape = tensor.shape == shard.shape || tensor.shape.size() < 2 || shard.shape.size() < 2;
        if (!same_type || !same_size || !same_shape)
            return fmt::format("the file has {}, this program {}", text_of(tensor), text_of(shard));
        in_file.erase(found);
    }
    if (in_file.empty()) return {};
    return fmt::format("the file has {}, this program nothing", text_of(*in_file.begin()->second));
}

}  // namespace ddp::detail
