// How a rank comes to speak with another one: itself, a neighbour, or a rank of another node.

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "worker_lib/src/native/p2p.hpp"

namespace ddp::detail {

namespace {

constexpr std::size_t kLoopBytes = std::size_t{128} << 10;

}  // namespace

P2pPeer& P2p::peer(int rank) {
    auto& slot = by_rank_[rank];
    if (slot) return *slot;
    const auto& local = setup_.topology.local();
    const auto index = std::ranges::find(local, rank) - local.begin();
    if (rank == setup_.rank) {
        slot = connect_self();
    } else if (index < static_cast<std::ptrdiff_t>(local.size())) {
        slot = connect_neighbour(rank, static_cast<int>(index));
    } else {
        slot = connect_remote(rank);
    }
    peers_.push_back(slot.get());
    return *slot;
}

std::unique_ptr<P2pPeer> P2p::connect_self() {
    loop_.resize(kLoopBytes + sizeof(LaneControl) + kSeparation);
    void* begin = loop_.data();
    std::size_t space = loop_.size();
    std::align(kSeparation, kLoopBytes, begin, space);
    auto* const control = new (begin) LaneControl;
    const LaneMemory lane{control, reinterpret_cast<std::byte*>(control + 1), kLoopBytes};
    const PeerMemory memory{.kind = PeerMemory::Kind::kOwn, .heap = nullptr, .heap_bytes = 0};
    return std::make_unique<P2pPeer>(owner_, setup_.rank, memory, std::make_unique<LaneOutlet>(lane),
                                     std::make_unique<LaneInlet>(lane, WakerFence::kSleeper));  // both ends are ours
}

std::unique_ptr<P2pPeer> P2p::connect_neighbour(int rank, int index) {
    const Node& node = setup_.node;
    const Segment& own = *node.local(node.own_index()).segment;
    const Segment& theirs = *node.local(index).segment;
    const PeerMemory memory{.kind = PeerMemory::Kind::kHeap, .heap = theirs.heap(), .heap_bytes = theirs.heap_bytes()};
    const auto lane = [&](const Segment& from, int to) {
        return lane_at(from.post_area(), kPostBytes, node.size(), to);
    };
    auto made = std::make_unique<P2pPeer>(
        owner_, rank, memory, std::make_unique<LaneOutlet>(lane(own, index)),
        std::make_unique<LaneInlet>(lane(theirs, node.own_index()), node.waiter().waker_fence()));
    neighbour_of_.resize(setup_.members.size(), -1);
    LocalPeer& neighbour = neighbours_.emplace_back();
    neighbour.peer = made.get();
    neighbour.index = index;
    neighbour.page = &theirs.post_page();
    neighbour.since = ddprun::Clock::now();
    neighbour_of_[static_cast<std::size_t>(rank)] = static_cast<int>(neighbours_.size()) - 1;
    return made;
}

std::unique_ptr<P2pPeer> P2p::connect_remote(int rank) {
    const Member& member = setup_.members[static_cast<std::size_t>(rank)];
    auto outlet = std::make_unique<SocketOutlet>(*ready_, setup_.hello, rank, member);
    auto inlet = std::make_unique<SocketInlet>(*ready_);
    auto* const out = outlet.get();
    auto* const in = inlet.get();
    auto made = std::make_unique<P2pPeer>(owner_, rank, PeerMemory{}, std::move(outlet), std::move(inlet));
    RemotePeer& remote = remotes_.emplace_back();
    remote.peer = made.get();
    remote.outlet = out;
    remote.inlet = in;
    return made;
}

/// Those who have connected, whether or not we have anything to do with them so far.
void P2p::let_in() {
    door_->look([this](int rank, ddprun::UniqueFd socket) {
        const auto& local = setup_.topology.local();
        const bool known = rank >= 0 && rank < static_cast<int>(setup_.members.size());
        if (!known || std::ranges::find(local, rank) != local.end()) return;
        (void)peer(rank);
        std::ranges::find(remotes_, rank, [](const RemotePeer& one) {
            return one.peer->rank();
        })->inlet->attach(std::move(socket));
    });
}

}  // namespace ddp::detail
