#include "ddp/batch.hpp"

#include <utility>

#include "worker_lib/src/group.hpp"

namespace ddp {

Batch::Batch(detail::GroupImpl& group) : group_(&group), transfers_(std::make_unique<detail::TransferBatch>()) {}
Batch::Batch(Batch&&) noexcept = default;
Batch& Batch::operator=(Batch&&) noexcept = default;
Batch::~Batch() = default;

Batch& Batch::send(Buffer buffer, int destination, int tag) {
    transfers_->transfers.push_back({.sends = true, .buffer = buffer, .peer = destination, .tag = tag});
    return *this;
}

Batch& Batch::recv(Buffer buffer, int source, int tag) {
    transfers_->transfers.push_back({.sends = false, .buffer = buffer, .peer = source, .tag = tag});
    return *this;
}

Work Batch::start(Stream /*stream*/, OpOptions options) {
    detail::TransferBatch batch;
    batch.transfers.swap(transfers_->transfers);
    return group_->transfer(std::move(batch), options);
}

}  // namespace ddp
