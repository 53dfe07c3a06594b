#include "ddp/transfer_batch.hpp"

#include <utility>

#include "worker_lib/src/group/group_impl.hpp"

namespace ddp {

TransferBatch::TransferBatch(detail::GroupImpl& group)
    : group_(&group), transfers_(std::make_unique<detail::TransferList>()) {}
TransferBatch::TransferBatch(TransferBatch&&) noexcept = default;
TransferBatch& TransferBatch::operator=(TransferBatch&&) noexcept = default;
TransferBatch::~TransferBatch() = default;

detail::TransferList& TransferBatch::collected() {
    if (!transfers_) transfers_ = std::make_unique<detail::TransferList>();       // it was moved from
    if (transfers_->transfers.capacity() == 0) transfers_->transfers.reserve(2);  // a send and a receive
    return *transfers_;
}

TransferBatch& TransferBatch::send(ConstBuffer buffer, int destination, int tag) {
    collected().transfers.push_back(
        {.sends = true, .buffer = detail::readable(buffer), .peer = destination, .tag = tag});
    return *this;
}

TransferBatch& TransferBatch::recv(Buffer buffer, int source, int tag) {
    collected().transfers.push_back({.sends = false, .buffer = buffer, .peer = source, .tag = tag});
    return *this;
}

Work TransferBatch::start(OpOptions options) {
    detail::TransferList batch;
    batch.transfers.swap(collected().transfers);
    return group_->transfer(std::move(batch), options);
}

}  // namespace ddp
