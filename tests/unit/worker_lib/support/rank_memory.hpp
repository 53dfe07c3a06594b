#pragma once
// Where the buffers of a rank lie in a test: in its arena, outside, or one rank here and the next there.

#include <algorithm>
#include <cstddef>
#include <list>
#include <span>
#include <vector>

#include "tests/unit/worker_lib/support/local_world.hpp"

namespace ddp::testing {

enum class Memory { kArena, kForeign, kMixed };

class RankMemory {
public:
    RankMemory(Context& context, Memory memory)
        : arena_(context.world().arena()),
          in_arena_(memory == Memory::kArena || (memory == Memory::kMixed && context.rank() % 2 == 0)) {}

    /// Aligned to 8 bytes at least, and valid as long as this object and the context.
    [[nodiscard]] std::byte* allocate(std::size_t bytes) {
        if (in_arena_) return static_cast<std::byte*>(arena_.allocate(bytes));
        return blocks_.emplace_back(bytes + 8).data();
    }
    [[nodiscard]] std::byte* copy_of(std::span<const std::byte> bytes) {
        std::byte* const memory = allocate(bytes.size());
        std::copy(bytes.begin(), bytes.end(), memory);
        return memory;
    }
    /// Later allocations lie on the other side.
    void change_sides() { in_arena_ = !in_arena_; }

private:
    Arena& arena_;
    bool in_arena_;
    std::list<std::vector<std::byte>> blocks_;
};

}  // namespace ddp::testing
