#pragma once
// The arithmetic of the fake NCCL: what a collective, or a message, does to the buffers of its ranks once they are
// there. Calls that do not fit together, of which NCCL says only that they must, never end here.

#include <nccl.h>

#include <cstddef>
#include <map>

namespace ddp::test {

/// Bytes of one element.
[[nodiscard]] std::size_t width_of(ncclDataType_t type);

enum class FakeKind { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter };

/// What one rank asks for, as nccl.h counts it.
struct FakeCall {
    FakeKind kind = FakeKind::kAllReduce;
    std::size_t count = 0;
    ncclDataType_t type = ncclFloat32;
    ncclRedOp_t op = ncclSum;
    int root = 0;
    bool operator==(const FakeCall&) const = default;
};

/// One collective of all ranks of one communicator.
struct FakeCollective {
    struct Place {
        const void* in;
        void* out;
    };
    FakeCall call;
    std::map<int, Place> places = {};  ///< by rank: those whose streams have reached it
    bool torn = false;                 ///< one rank has called something else
    bool done = false;

    void compute() const;
};

/// One message: the k-th send from a rank to another and the k-th receive there.
struct FakeMessage {
    struct Side {
        bool here = false;
        void* data = nullptr;
        std::size_t count = 0;
        ncclDataType_t type = ncclFloat32;
    };
    Side sender = {};
    Side receiver = {};
    bool done = false;

    /// Carries it, if both sides are here and agree.
    void carry();
};

}  // namespace ddp::test
