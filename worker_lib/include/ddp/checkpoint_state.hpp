#pragma once
// NamedBuffer and NamedShard: the memory that a Checkpointer saves and loads.

#include <cstddef>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/export.hpp"

namespace DDP_EXPORT ddp {

/// A whole tensor that every rank has, with the same values. Nothing compares them: blocks of ranks that differ mix. It
/// may be host memory when it is saved and device memory when it is loaded: the file is the same.
struct NamedBuffer {
    std::string name;  ///< unique in a checkpoint, and not empty
    Buffer buffer;     ///< read by save(), written by load()
};

/// This rank's part of a tensor: a range of its elements, in row-major order. Every rank lists the same tensors in the
/// same order, also those of which it has no part. Values of W ranks that differ are a tensor of shape {W, …}.
struct NamedShard {
    std::string name;                     ///< unique in a checkpoint, and not empty
    std::vector<std::size_t> shape = {};  ///< of the whole tensor; empty: one element
    std::size_t begin = 0;                ///< the first element of the part
    Buffer part = {};  ///< read by save(), written by load(); it has the type of the tensor, even if it is empty
};

/// Joins the states of several objects, for one checkpoint.
template <typename... More>
[[nodiscard]] std::vector<NamedShard> concat(std::vector<NamedShard> first, More... more) {
    const auto append = [&first](std::vector<NamedShard> next) {
        first.insert(first.end(), std::make_move_iterator(next.begin()), std::make_move_iterator(next.end()));
    };
    (append(std::move(more)), ...);
    return first;
}

}  // namespace ddp
