#pragma once
// The arithmetic of the fake NCCL: what a collective or a message does to the buffers of its ranks once all have called
// it. Calls that do not match, which NCCL only forbids, never end here.

#include <cstddef>
#include <map>

#include "worker_lib/src/nccl/abi.hpp"

namespace ddp::test {

using namespace abi;

/// Returns the bytes of one element.
[[nodiscard]] std::size_t width_of(ncclDataType_t type);

enum class FakeKind { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter };

/// The call of one rank, with nccl.h's counts.
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
    struct RankBuffers {
        const void* in;
        void* out;
    };
    FakeCall call;
    std::map<int, RankBuffers> rank_buffers = {};  ///< by rank, of those whose streams have reached it
    bool torn = false;                             ///< one rank has called something else
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

    /// Copies the message if both sides are here and agree.
    void carry();
};

}  // namespace ddp::test
