#pragma once
// GroupImpl::StoreWait: says on the board that this rank waits for the group at the store, for as long as it lives.
// These steps stand there as operations of a group of their own, "world (store)", for they have numbers of their own.

#include <exception>
#include <string_view>

#include "worker_lib/src/group.hpp"

namespace ddp::detail {

class GroupImpl::StoreWait {
public:
    /// what   "monitored_barrier": all ranks take the same steps in the same order
    StoreWait(GroupImpl& group, std::string_view what, std::string_view tag);
    ~StoreWait() { ticket_.ended(std::uncaught_exceptions() == exceptions_); }
    StoreWait(const StoreWait&) = delete;
    StoreWait& operator=(const StoreWait&) = delete;

private:
    const int exceptions_ = std::uncaught_exceptions();
    BoardTicket ticket_;
};

}  // namespace ddp::detail
