#include "worker_lib/src/operation/operation_check.hpp"

#include <fmt/format.h>

#include <limits>
#include <numeric>
#include <optional>

#include "worker_lib/src/cuda/device_memory.hpp"

namespace ddp::detail {

namespace {

bool is_bitwise(ReduceOp op) { return op == ReduceOp::BitAnd || op == ReduceOp::BitOr || op == ReduceOp::BitXor; }

std::size_t max_elements(DType type) {
    return static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / size_of(type);
}

std::string reduction_complaint(DType type, ReduceOp op, Backend backend) {
    if (static_cast<int>(op) > static_cast<int>(ReduceOp::BitXor)) return "unknown reduction";
    if (op == ReduceOp::Avg && !is_float(type)) return "avg is defined for floats only";
    if (is_bitwise(op) && is_float(type)) return "band, bor and bxor are defined for integers only";
    if (is_bitwise(op) && backend == Backend::Nccl)
        return "NCCL has no band, bor and bxor; Backend::Native has, for host memory";
    if ((type == DType::I16 || type == DType::U16) && backend == Backend::Nccl)
        return fmt::format("NCCL does not reduce {}; convert to i32", ddp::to_string(type));
    return {};
}

/// Returns the sum of the first `ranks` counts; nothing if it overflows.
std::optional<std::size_t> sum(const std::vector<std::size_t>& counts, std::size_t ranks) {
    std::size_t total = 0;
    for (std::size_t i = 0; i < ranks; ++i) {
        if (__builtin_add_overflow(total, counts[i], &total)) return std::nullopt;
    }
    return total;
}

/// Checks the two buffers of an operation with a separate output, on one rank. complaint() makes it on its stack.
class Shape {
public:
    Shape(const Operation& operation, const GroupSpec& spec)
        : operation_(operation), rank_(static_cast<std::size_t>(spec.rank)), ranks_(spec.members.size()) {}

    std::string complaint() const {
        if (auto text = counts_complaint(); !text.empty()) return text;
        if (gives() && gets() && operation_.buffer.dtype != operation_.output->dtype) {
            return fmt::format("input and output are of different types, {} and {}",
                               ddp::to_string(operation_.buffer.dtype), ddp::to_string(operation_.output->dtype));
        }
        if (auto text = sizes_complaint(); !text.empty()) return text;
        return overlap_complaint();
    }

private:
    bool is_root() const { return !has_root(operation_.kind) || static_cast<int>(rank_) == operation_.root; }
    bool gives() const { return !scatters(operation_.kind) || is_root(); }
    bool gets() const { return (!gathers(operation_.kind) && operation_.kind != OpKind::kReduce) || is_root(); }

    std::string counts_complaint() const {
        const auto check = [&](const std::vector<std::size_t>& counts) {
            if (counts.size() != ranks_) return fmt::format("{} counts for {} ranks", counts.size(), ranks_);
            const auto total = sum(counts, ranks_);
            if (total && *total <= max_elements(operation_.buffer.dtype)) return std::string();
            return std::string("the counts add up to more than memory can hold");
        };
        const OpKind kind = operation_.kind;
        if (shares_counts(kind)) return check(operation_.counts);
        if (kind != OpKind::kAllToAllV) return {};
        if (auto text = check(operation_.counts); !text.empty()) return text;
        return check(operation_.receive_counts);
    }

    /// Returns whether one of the two buffers, on some rank, holds a part of equal size for each rank.
    bool needs_whole() const {
        const OpKind kind = operation_.kind;
        return kind == OpKind::kReduceScatter || kind == OpKind::kAllGather || kind == OpKind::kGather ||
               kind == OpKind::kScatter;
    }

    /// Checks how many elements each buffer has, given the other one or the counts.
    std::string sizes_complaint() const {
        const std::size_t in = operation_.buffer.count;
        const std::size_t out = operation_.output->count;
        const auto expect = [](std::string_view name, std::size_t count, std::size_t expected, const auto& why) {
            if (count == expected) return std::string();
            return fmt::format("the {} has {} elements and needs {}: {}", name, count, expected, why());
        };
        const auto says = [](std::string_view text) { return [text] { return text; }; };
        const auto times = [&](std::size_t part) {
            return [this, part] { return fmt::format("{} for each of {} ranks", part, ranks_); };
        };
        if (operation_.part().count > max_elements(operation_.part().dtype) / ranks_ && needs_whole()) {
            return fmt::format("the whole, {}, is more than memory can hold", times(operation_.part().count)());
        }
        const auto whole = says("the sum of the counts");
        const auto own = [&] { return fmt::format("the count of rank {}", rank_); };
        const auto& counts = operation_.counts;
        std::string text;
        switch (operation_.kind) {
            case OpKind::kAllReduce:
            case OpKind::kReduce: return gets() ? expect("output", out, in, says("as many as the input")) : "";
            case OpKind::kReduceScatter: return expect("input", in, ranks_ * out, times(out));
            case OpKind::kAllGather:
            case OpKind::kGather: return gets() ? expect("output", out, ranks_ * in, times(in)) : "";
            case OpKind::kScatter: return gives() ? expect("input", in, ranks_ * out, times(out)) : "";
            case OpKind::kAllGatherV:
            case OpKind::kGatherV:
                text = expect("input", in, counts[rank_], own);
                return text.empty() && gets() ? expect("output", out, *sum(counts, ranks_), whole) : text;
            case OpKind::kScatterV:
                text = expect("output", out, counts[rank_], own);
                return text.empty() && gives() ? expect("input", in, *sum(counts, ranks_), whole) : text;
            case OpKind::kAllToAll:
                if (in % ranks_ != 0) {
                    return fmt::format("the input of {} elements does not divide into parts for {} ranks", in, ranks_);
                }
                return expect("output", out, in, says("as many as the input"));
            case OpKind::kAllToAllV:
                text = expect("input", in, *sum(counts, ranks_), says("the sum of the counts to send"));
                if (!text.empty()) return text;
                return expect("output", out, *sum(operation_.receive_counts, ranks_),
                              says("the sum of the counts to receive"));
            case OpKind::kBroadcast:
            case OpKind::kBarrier:
            case OpKind::kReplay: break;
        }
        return {};
    }

    /// Returns the offset of this rank's part in the whole, in elements.
    std::size_t own_offset() const {
        if (!operation_.counts.empty()) return *sum(operation_.counts, rank_);
        return rank_ * operation_.part().count;
    }

    std::string overlap_complaint() const {
        if (!gives() || !gets() || operation_.buffer.count == 0 || operation_.output->count == 0) return {};
        const auto in = reinterpret_cast<std::uintptr_t>(operation_.buffer.data);
        const auto out = reinterpret_cast<std::uintptr_t>(operation_.output->data);
        if (in >= out + operation_.output->bytes() || out >= in + operation_.buffer.bytes()) return {};
        const std::uintptr_t offset = own_offset() * size_of(operation_.buffer.dtype);
        switch (operation_.kind) {
            case OpKind::kAllToAll:
            case OpKind::kAllToAllV: return "input and output overlap: it cannot be done in place";
            case OpKind::kReduceScatter:
            case OpKind::kScatter:
            case OpKind::kScatterV:
                if (out == in + offset) return {};
                return fmt::format("input and output overlap: in place, the output is rank {}'s part of the input",
                                   rank_);
            case OpKind::kAllGather:
            case OpKind::kAllGatherV:
            case OpKind::kGather:
            case OpKind::kGatherV:
                if (in == out + offset) return {};
                return fmt::format("input and output overlap: in place, the input is rank {}'s part of the output",
                                   rank_);
            default: break;
        }
        return in == out ? "" : "input and output overlap: in place, they are the same";
    }

    const Operation& operation_;
    const std::size_t rank_;
    const std::size_t ranks_;
};

}  // namespace

std::string buffer_complaint(const Buffer& buffer, std::string_view name, Backend backend) {
    const std::size_t width = size_of(buffer.dtype);
    if (width == 0) return fmt::format("unknown element type {}", static_cast<int>(buffer.dtype));
    if (buffer.count > max_elements(buffer.dtype)) return "the count is too large for memory";
    if (buffer.count > 0 && buffer.data == nullptr) return fmt::format("the {} is null", name);
    if (reinterpret_cast<std::uintptr_t>(buffer.data) % width != 0) {
        return fmt::format("the {} is not aligned to its elements of {} bytes", name, width);
    }
    if (auto text = device_memory_complaint(buffer, "the ", name); !text.empty()) return text;
    if (backend == Backend::Native && buffer.device != Device::Cpu) {
        return fmt::format(
            "the {} is device memory, and the native backend takes host memory only: use a group of Backend::Nccl "
            "(InitOptions::backend), or copy it to the host",
            name);
    }
    if (backend == Backend::Nccl && buffer.device != Device::Cuda) {
        return fmt::format(
            "the {} is host memory, and the NCCL backend takes CUDA memory only: copy it to the device "
            "(Device::Cuda), or use Backend::Native",
            name);
    }
    return {};
}

std::string device_memory_complaint(const Buffer& buffer, std::string_view article, std::string_view name) {
    if (buffer.device != Device::Cpu || buffer.count == 0) return {};
    const auto device = device_holding(buffer.data);
    if (!device) return {};
    return fmt::format(
        "{}{} says host memory, and is memory of CUDA device {}. Pass Device::Cuda with it, as in Buffer(pointer, "
        "count, Device::Cuda), which needs a group of Backend::Nccl; or copy it to the host",
        article, name, *device);
}

std::string stream_complaint(const Stream& stream, Backend backend) {
    if (stream.handle == nullptr || backend != Backend::Native) return {};
    return "OpOptions::stream is set, but an operation on host memory does not wait for a CUDA stream. Synchronise the "
           "stream before the call, and leave it out; if it is device memory, pass Device::Cuda with it";
}

std::string complaint(const Operation& operation, const GroupSpec& spec, Backend backend) {
    if (!has_buffer(operation.kind)) return stream_complaint(operation.stream, backend);
    const char* const name = operation.output ? "input" : "buffer";
    if (auto text = buffer_complaint(operation.buffer, name, backend); !text.empty()) return text;
    if (operation.output) {
        if (auto text = buffer_complaint(*operation.output, "output", backend); !text.empty()) return text;
    }
    if (auto text = stream_complaint(operation.stream, backend); !text.empty()) return text;
    const int size = static_cast<int>(spec.members.size());
    if (has_root(operation.kind) && (operation.root < 0 || operation.root >= size)) {
        return fmt::format("there is no rank {} in a group of {}", operation.root, size);
    }
    if (reduces(operation.kind)) {
        auto text = reduction_complaint(operation.part().dtype, operation.reduce_op, backend);
        if (!text.empty()) return text;
    }
    return operation.output ? Shape(operation, spec).complaint() : "";
}

}  // namespace ddp::detail
