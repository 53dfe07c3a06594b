#pragma once
// TransferBatch: sends and receives that start and end together, as one Work.

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

/// Sends and receives that start and end together, as one Work. Their order does not matter, so ranks that exchange
/// messages with each other cannot block each other. ProcessGroup::batch() makes it; the group must outlive it. One
/// thread at a time.
///
///     ddp::TransferBatch batch = group.batch();
///     batch.send(border, right).recv(halo, left);
///     batch.start().wait();
class TransferBatch {
public:
    /// Leaves the other one empty.
    TransferBatch(TransferBatch&&) noexcept;
    /// Replaces the messages collected so far, and leaves the other one empty.
    TransferBatch& operator=(TransferBatch&&) noexcept;
    ~TransferBatch();

    /// Adds a message that start() sends as ProcessGroup::send() does. Buffers of one batch may not overlap, except
    /// those of sends.
    TransferBatch& send(ConstBuffer buffer, int destination, int tag = 0);
    /// Adds a message that start() receives as ProcessGroup::recv() does.
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
