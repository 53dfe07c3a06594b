#include "worker_lib/src/native/p2p/peers.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace ddp::detail::p2p {

namespace {

constexpr std::size_t kLoopBytes = std::size_t{128} << 10;

}  // namespace

Peers::Peers(P2pSetup& setup, PostPage& own_page)
    : setup_(setup), own_{setup.rank, setup.members, setup.arena, setup.node, own_page.listening, {}, {}} {
    if (!setup.listener) return;
    ready_.emplace();
    acceptor_.emplace(*ready_, setup.key, setup.members.size(), std::move(setup.listener));
}

bool Peers::is_local(int rank) const {
    return std::ranges::find(setup_.topology.local(), rank) != setup_.topology.local().end();
}

Peer& Peers::at(int rank) {
    auto& peer = by_rank_[rank];
    if (peer) return *peer;
    if (rank == setup_.rank) {
        peer = connect_self();
    } else if (is_local(rank)) {
        const auto& local = setup_.topology.local();
        peer = connect_neighbour(rank, static_cast<int>(std::ranges::find(local, rank) - local.begin()));
    } else {
        peer = connect_remote(rank);
    }
    all_.push_back(peer.get());
    return *peer;
}

std::unique_ptr<Peer> Peers::connect_self() {
    loop_.resize(kLoopBytes + sizeof(RingControl) + kSeparation);
    void* begin = loop_.data();
    std::size_t space = loop_.size();
    std::align(kSeparation, kLoopBytes, begin, space);
    auto* const control = new (begin) RingControl;
    const RingMemory ring{control, reinterpret_cast<std::byte*>(control + 1), kLoopBytes};
    const PeerMemory memory{.kind = PeerMemory::Kind::kOwn, .heap = nullptr, .heap_bytes = 0};
    return std::make_unique<Peer>(own_, setup_.rank, memory, std::make_unique<RingSink>(ring),
                                  std::make_unique<RingSource>(ring, WakerFence::kSleeper));  // both ends are ours
}

std::unique_ptr<Peer> Peers::connect_neighbour(int rank, int index) {
    const Node& node = setup_.node;
    const Segment& own = *node.ranks.local(node.ranks.own_index()).segment;
    const Segment& theirs = *node.ranks.local(index).segment;
    const PeerMemory memory{.kind = PeerMemory::Kind::kHeap, .heap = theirs.heap(), .heap_bytes = theirs.heap_bytes()};
    const auto ring = [&](const Segment& from, int to) {
        return ring_at(from.post_area(), kPostBytes, node.ranks.size(), to);
    };
    auto peer = std::make_unique<Peer>(
        own_, rank, memory, std::make_unique<RingSink>(ring(own, index)),
        std::make_unique<RingSource>(ring(theirs, node.ranks.own_index()), node.ranks.waiter().waker_fence()));
    neighbour_index_.resize(setup_.members.size(), -1);
    neighbours_.push_back({peer.get(), index, &theirs.post_page(), {.count = 0, .since = ddprun::Clock::now()}});
    neighbour_index_[static_cast<std::size_t>(rank)] = static_cast<int>(neighbours_.size()) - 1;
    return peer;
}

std::unique_ptr<Peer> Peers::connect_remote(int rank) {
    const Member& member = setup_.members[static_cast<std::size_t>(rank)];
    auto sink = std::make_unique<SocketSink>(*ready_, setup_.key, rank, member);
    auto source = std::make_unique<SocketSource>(*ready_);
    auto* const out = sink.get();
    auto* const in = source.get();
    auto peer = std::make_unique<Peer>(own_, rank, PeerMemory{}, std::move(sink), std::move(source));
    remotes_.push_back({.peer = peer.get(), .sink = out, .source = in});
    return peer;
}

void Peers::accept() {
    if (!acceptor_) return;
    acceptor_->look([this](int rank, ddprun::UniqueFd socket) REQUIRES(kRunning) {
        const bool known = rank >= 0 && rank < static_cast<int>(setup_.members.size());
        if (!known || is_local(rank)) return;
        (void)at(rank);
        const auto rank_of = [](const RemotePeer& one) { return one.peer->rank(); };
        std::ranges::find(remotes_, rank, rank_of)->source->attach(std::move(socket));
    });
}

bool Peers::has_to_send() const {
    return std::ranges::any_of(all_, [](Peer* one) REQUIRES(kRunning) { return !one->outbox().empty(); });
}

bool Peers::owes_reply() const {
    return std::ranges::any_of(all_, [](Peer* one) REQUIRES(kRunning) { return one->outbox().owes_reply(); });
}

std::string Peers::name_of(int rank) const {
    return is_local(rank) ? detail::name_of(rank, setup_.members) : name_with_address(rank, setup_.members);
}

void Peers::disconnect() {
    remotes_.clear();
    neighbours_.clear();
    neighbour_index_.clear();
    all_.clear();
    by_rank_.clear();
    acceptor_.reset();
    ready_.reset();
}

}  // namespace ddp::detail::p2p
