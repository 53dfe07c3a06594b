#pragma once
// The arithmetic of the fake NCCL: what a collective does to the buffers of all ranks once they are there.

#include <nccl.h>

#include <cstddef>
#include <map>
#include <optional>

namespace ddp::test {

/// One collective of all ranks of one communicator.
struct FakeCollective {
    struct Place {
        const void* in;
        void* out;
    };
    std::map<int, Place> places;  // by rank: those whose streams have reached it
    std::size_t count = 0;
    ncclDataType_t type = ncclFloat32;
    std::optional<ncclRedOp_t> op;  // nothing: a broadcast
    int root = 0;
    bool done = false;
    void compute(int size) const;  ///< f32 and i32 only
};

}  // namespace ddp::test
