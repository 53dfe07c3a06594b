#pragma once
// Makes checkpoint files of versions 1 and 2, which the library reads and no longer writes.

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>

#include "common/fnv.hpp"
#include "common/word_hash.hpp"
#include "ddp/checkpoint_state.hpp"

namespace ddp::testing {

/// Returns the whole file.
inline std::string old_checkpoint(int version, std::uint64_t step, std::span<const NamedBuffer> state) {
    constexpr std::size_t kHead = 1024;
    std::string lines;
    std::string tensors;
    for (const NamedBuffer& named : state) {
        const auto bytes = std::span(static_cast<const std::byte*>(named.buffer.data), named.buffer.bytes());
        ddprun::Fnv64 fnv;
        fnv.add(bytes);
        ddprun::WordHash64 words;
        words.add(bytes);
        lines += fmt::format("tensor {} {} {:#018x} {} {}\n", to_string(named.buffer.dtype), named.buffer.count,
                             version == 1 ? fnv.value() : words.value(), kHead + tensors.size(), named.name);
        tensors.append(static_cast<const char*>(named.buffer.data), bytes.size());
        tensors.resize((tensors.size() + 127) / 128 * 128, '\0');
    }
    std::string head = fmt::format("{:<63}\n", fmt::format("ddp-checkpoint {} head {:010}", version, kHead));
    head += fmt::format("step {}\nworld_size 1\nfile_bytes {}\n", step, kHead + tensors.size()) + lines;
    ddprun::Fnv64 fnv;
    fnv.add(head);
    head += fmt::format("end {:#018x}\n", fnv.value());
    head.resize(kHead, ' ');
    return head + tensors;
}

}  // namespace ddp::testing
