#pragma once
// Batch: sends and receives that start together and end together, as one Work. The order inside does not matter, so
// that ranks which exchange with each other cannot block each other.
//
//     ddp::Batch batch = group.batch();
//     batch.send(border, right).recv(halo, left);
//     batch.start().wait();

#include <memory>

#include "ddp/types.hpp"
#include "ddp/work.hpp"

namespace ddp {

namespace detail {
class GroupImpl;
struct TransferBatch;
}  // namespace detail

class Batch {
public:
    explicit Batch(detail::GroupImpl& group);
    /// The other one is empty afterwards.
    Batch(Batch&&) noexcept;
    Batch& operator=(Batch&&) noexcept;
    ~Batch();

    /// As ProcessGroup::send and recv, but nothing happens yet. Buffers may not overlap, except those of sends.
    Batch& send(Buffer buffer, int destination, int tag = 0);
    Batch& recv(Buffer buffer, int source, int tag = 0);

    /// Starts all of them; the Work is done when all are. The batch is empty afterwards. An empty one is done at once.
    /// Throws Error{InvalidArgument} that says which of them is wrong: then none has started.
    Work start(Stream stream = {}, OpOptions options = {});

private:
    [[nodiscard]] detail::TransferBatch& collected();

    detail::GroupImpl* group_;
    std::unique_ptr<detail::TransferBatch> transfers_;
};

}  // namespace ddp
