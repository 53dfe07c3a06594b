#include "worker_lib/src/native/backend/p2p_slot.hpp"

#include <utility>

namespace ddp::detail {

P2p& P2pSlot::make(const GroupKey& key, ddprun::UniqueFd listener) {
    p2p_ = std::make_shared<P2p>(P2pSetup{.group = peers_.group(),
                                          .rank = peers_.rank(),
                                          .topology = peers_.topology(),
                                          .members = peers_.members(),
                                          .node = peers_.node(),
                                          .arena = peers_.arena(),
                                          .key = key,
                                          .listener = std::move(listener),
                                          .on_failure = on_failure_,
                                          .on_thrown = on_thrown_});
    current_.store(p2p_.get(), std::memory_order_seq_cst);
    return *p2p_;
}

}  // namespace ddp::detail
