#pragma once
// TransferBatch: sends and receives that start and end together, as one Work. Their order does not matter, so ranks
// that exchange messages with each other cannot block each other. One thread at a time.
//
//     ddp::TransferBatch batch = group.batch();
//     batch.send(border, right).recv(halo, left);
//     batch.start().wait();

#include <memory>

#include "ddp/buffer.hpp"
#include "ddp/export.hpp"
#include "ddp/types.hpp"
#include "ddp/work.hpp"

namespace ddp::detail {
class GroupImpl;
struct TransferList;
}  // namespace ddp::detail

namespace DDP_EXPORT ddp {

/// Collects messages until start(). ProcessGroup::batch() makes it; the group must outlive it.
class TransferBatch {
public:
    /// Leaves the other one empty.
    TransferBatch(TransferBatch&&) noexcept;
    TransferBatch& operator=(TransferBatch&&) noexcept;
    ~TransferBatch();

    /// Add a message, which start() sends or receives as ProcessGroup::send and recv do. Buffers may not overlap,
    /// except those of sends.
    TransferBatch& send(ConstBuffer buffer, int destination, int tag = 0);
    TransferBatch& recv(Buffer buffer, int source, int tag = 0);

    /// Starts all messages. The Work is done when all of them are; for an empty batch it is done at once. The batch is
    /// empty afterwards. Throws Error{InvalidArgument} naming the message that is wrong, before any has started.
    Work start(OpOptions options = {});

private:
    friend class ProcessGroup;  // makes it
    explicit TransferBatch(detail::GroupImpl& group);
    [[nodiscard]] detail::TransferList& collected();

    detail::GroupImpl* group_;
    std::unique_ptr<detail::TransferList> transfers_;
};

}  // namespace ddp
