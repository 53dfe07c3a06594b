#include "ddp/batch.hpp"

#include <utility>

#include "worker_lib/src/group/group_impl.hpp"

namespace ddp {

Batch::Batch(detail::GroupImpl& group) : group_(&group), transfers_(std::make_unique<detail::TransferBatch>()) {}
Batch::Batch(Batch&&) noexcept = default;
Batch& Batch::operator=(Batch&&) noexcept = default;
Batch::~Batch() = default;

detail::TransferBatch& Batch::collected() {
    if (!transfers_) transfers_ = std::make_unique<detail::TransferBatch>();      // it was moved from
    if (transfers_->transfers.capacity() == 0) transfers_->transfers.reserve(2);  // a send and a receive
    return *transfers_;
}

Batch& Batch::send(ConstBuffer buffer, int destination, int tag) {
    collected().transfers.push_back(
        {.sends = true, .buffer = detail::readable(buffer), .peer = destination, .tag = tag});
    return *this;
}

Batch& Batch::recv(Buffer buffer, int source, int tag) {
    collected().transfers.push_back({.sends = false, .buffer = buffer, .peer = source, .tag = tag});
    return *this;
}

Work Batch::start(OpOptions options) {
    detail::TransferBatch batch;
    batch.transfers.swap(collected().transfers);
    return group_->transfer(std::move(batch), options);
}

}  // namespace ddp
