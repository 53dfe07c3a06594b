#include "worker_lib/src/native/p2p/p2p.hpp"

#include <utility>

namespace ddp::detail {

namespace {

/// Pauses between two yields, few for the reason of Waiter::kPauses. Each turn also looks at all peers.
constexpr int kPauses = 20;

PostPage& own_page(const Node& node) { return node.ranks.local(node.ranks.own_index()).segment->post_page(); }

int pauses(const Node& node) { return node.ranks.oversubscribed() ? 0 : kPauses; }

}  // namespace

P2p::P2p(P2pSetup setup)
    : setup_(std::move(setup)),
      self_{setup_.group, name_of(setup_.rank, setup_.members), &setup_.node},
      sleeper_(own_page(setup_.node), setup_.node.ranks.waiter()),
      peers_(setup_, own_page(setup_.node)),
      engine_(setup_, peers_, works_, sleeper_, activity_),
      scheduler_(setup_, engine_, works_, peers_, sleeper_, activity_, pauses(setup_.node)),
      immediate_(setup_.node, peers_, works_, engine_, sleeper_, scheduler_, pauses(setup_.node)) {}

P2p::~P2p() { stop(p2p::group_is_gone(), true); }

std::shared_ptr<WorkState> P2p::submit(TransferList batch, p2p::DoneTransfers done) {
    auto work = std::make_shared<P2pWork>(std::move(batch), done, shared_from_this());
    works_.submit(work);
    return work;
}

void P2p::stop(const Failure& final_report, bool failed) {
    if (activity_.is_stopping.exchange(true)) return;
    scheduler_.stop(final_report, failed);
    const p2p::Running running(scheduler_.running());
    peers_.disconnect();
}

}  // namespace ddp::detail
