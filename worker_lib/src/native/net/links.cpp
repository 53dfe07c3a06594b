#include "worker_lib/src/native/links.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "worker_lib/src/native/deadlines.hpp"
#include "worker_lib/src/native/sockets.hpp"
#include "worker_lib/src/native/system_error.hpp"

namespace ddp::detail {

namespace {

/// Before it sleeps a rank looks again for about as long as it takes to fall asleep and be woken.
constexpr auto kSpinning = std::chrono::microseconds(50);
/// So often an exchange looks after the node and its deadline while messages come and go.
constexpr auto kLooking = std::chrono::milliseconds(10);

}  // namespace

Links::Links(std::string group, std::int64_t generation, std::map<int, Link> links, Node& node)
    : group_(std::move(group)),
      generation_(generation),
      links_(std::move(links)),
      node_(node),
      spinning_(node.crowded() ? ddprun::Duration::zero() : kSpinning),
      interrupt_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!interrupt_) throw_errno("cannot create an eventfd", errno);
}

Links::~Links() {
    std::vector<int> sockets;
    for (const auto& [rank, link] : links_) {
        for (std::size_t socket = 0; socket < link.sockets(); ++socket) sockets.push_back(link.fd(socket));
    }
    let_go(std::move(sockets), ddprun::Clock::now() + kFarewell);
}

/// An operation may have many exchanges.
void Links::begin(const Operation& operation) {
    flows_.clear();
    if (std::exchange(seq_, operation.seq) == operation.seq) return;
    began_ = ddprun::Clock::now();
    for (auto& [rank, link] : links_) {
        link.lag = {};
        link.heard = false;
    }
}

Flow Links::make_flow(const Operation& operation, int rank) {
    Flow flow;
    flow.rank = rank;
    flow.link = &links_.at(rank);
    flow.out_header.generation = generation_;
    flow.out_header.signature = signature_of(operation);
    return flow;
}

void Links::exchange(const Operation& operation, std::uint32_t step, std::span<const OutMessage> out,
                     std::span<const InMessage> in) {
    begin(operation);
    const auto flow_of = [&](int rank) -> Flow& {
        const auto found = std::ranges::find(flows_, rank, &Flow::rank);
        return found != flows_.end() ? *found : flows_.emplace_back(make_flow(operation, rank));
    };
    for (const OutMessage& message : out) {
        Flow& flow = flow_of(message.rank);
        give(operation, flow, step, message.bytes, message.owner);
        flow.out_depends = message.depends;
    }
    for (const InMessage& message : in) {
        Flow& flow = flow_of(message.rank);
        flow.receive(step, message.bytes);
        flow.in_depends = message.depends;
    }
    run(operation, nullptr);
    flows_.clear();
}

void Links::begin(const Operation& operation, std::span<const int> peers) {
    begin(operation);
    for (const int peer : peers) flows_.push_back(make_flow(operation, peer));
}

void Links::go_on(const Operation& operation, Stream& stream) {
    run(operation, &stream);
    if (!stream.stops()) flows_.clear();
}

void Links::run(const Operation& operation, Stream* stream) {
    bool looked_again = stream == nullptr;
    auto enough = ddprun::TimePoint::max();  // of looking without sleeping
    auto look = ddprun::Clock::now() + kLooking;
    for (;;) {
        node_.say_listening();
        bool moved = false;
        bool waits = false;
        for (std::size_t i = 0; i < flows_.size(); ++i) {
            if (send_some(operation, flows_[i], i, stream)) moved = true;
            if (receive_some(operation, flows_[i], i, stream)) moved = true;
            waits = waits || !flows_[i].sent_all() || !flows_[i].received_all();
        }
        if (stream != nullptr && stream->stops()) return;
        if (const auto now = ddprun::Clock::now(); waits && now >= look) {
            look = now + kLooking;
            node_.check_poison(operation);
            check_late(operation, last_moment(), stream);
        }
        // A message that is done, or what the stream has computed for one peer, may make others possible.
        if (moved || !looked_again) {
            looked_again = !moved || stream == nullptr;
            enough = ddprun::TimePoint::max();
            continue;
        }
        if (!waits) return;
        node_.check_poison(operation);
        const auto now = ddprun::Clock::now();
        if (enough == ddprun::TimePoint::max()) enough = now + spinning_;
        if (now < enough) {
            ::sched_yield();
            continue;
        }
        wait(operation, stream);
        // Whoever has not read all of a message cannot be ahead of us: what it sent last is its reason.
        for (Flow& flow : flows_) {
            if (flow.link->sending_broken && !flow.sent_all()) peer_lost(operation, flow, "it closed the connection");
        }
    }
}

/// What is small has been read by now.
void Links::give(const Operation& operation, Flow& flow, std::uint32_t step, std::span<const std::byte> bytes,
                 Owner owner) const {
    flow.send(step, bytes, owner);
    if (owner == Owner::kNeighbour) node_.check_read(operation);
}

/// Whether a message was finished.
bool Links::send_some(const Operation& operation, Flow& flow, std::size_t peer, Stream* stream) const {
    if (!flow.sending && stream != nullptr) {
        const NextOut next = stream->next_out(peer);
        if (next.turn == Turn::kNow) give(operation, flow, next.step, next.bytes, next.owner);
    }
    if (flow.sent_all()) return false;
    flow.send_more();
    if (flow.unsealed && flow.sent.finished()) {
        node_.check_read(operation);
        flow.seal(Seal::kGood);
        flow.send_more(0);
    }
    if (!flow.sent_all()) return false;
    if (stream != nullptr) {
        flow.sending = false;
        stream->sent(peer);
    }
    return true;
}

/// The same.
bool Links::receive_some(const Operation& operation, Flow& flow, std::size_t peer, Stream* stream) const {
    if (!flow.receiving && stream != nullptr) {
        const NextIn next = stream->next_in(peer);
        if (next.turn == Turn::kNow) flow.receive(next.step, next.bytes);
    }
    if (flow.received_all()) return false;
    for (std::size_t socket = 0; socket < flow.link->sockets(); ++socket) receive_on(operation, flow, socket);
    if (!flow.received_all()) return false;
    if (flow.in_seal != Seal::kGood) not_vouched_for(operation, flow);
    ++flow.messages_in;
    if (stream != nullptr) {
        flow.receiving = false;
        stream->received(peer);
    }
    return true;
}

/// What is there to read of the message in hand.
void Links::receive_on(const Operation& operation, Flow& flow, std::size_t socket) const {
    const auto lost = [&](const std::string& cause) {
        const std::size_t sockets = flow.link->sockets();
        peer_lost(operation, flow,
                  sockets == 1 ? cause : fmt::format("{} (connection {} of {})", cause, socket + 1, sockets));
    };
    for (std::size_t taken = 0; flow.expects(socket) && taken < kTurnBytes;) {
        const bool had_header = flow.received.has_header();
        const ssize_t now = flow.receive_more(socket);
        if (now > 0) {
            taken += static_cast<std::size_t>(now);
            if (!had_header && flow.received.has_header()) {
                check_header(operation, flow);
                if (!std::exchange(flow.link->heard, true)) flow.link->lag = ddprun::Clock::now() - began_;
            }
        } else if (now == 0) {
            lost("it closed the connection");
        } else if (errno == EAGAIN) {
            return;
        } else {
            lost(ddprun::system_error("receiving failed", errno).message);
        }
    }
}

/// What is there to read may be a peer's reason: that comes first, unless data trickles on and on.
ddprun::TimePoint Links::last_moment() const { return last_network_deadline(node_.deadline()); }

/// Until a socket is ready, somebody interrupts, or it is time to look at the node again.
void Links::wait(const Operation& operation, const Stream* stream) const {
    std::vector<pollfd> waiting{{.fd = interrupt_.get(), .events = POLLIN, .revents = 0}};
    std::vector<Link*> links{nullptr};  // whose they are
    for (const Flow& flow : flows_) {
        for (std::size_t socket = 0; socket < flow.link->sockets(); ++socket) {
            short events = 0;
            if (!flow.sent_all(socket)) events |= POLLOUT | POLLRDHUP;
            if (flow.expects(socket)) events |= POLLIN;
            if (events == 0) continue;
            waiting.push_back({.fd = flow.link->fd(socket), .events = events, .revents = 0});
            links.push_back(flow.link);
        }
    }
    const auto now = ddprun::Clock::now();
    const auto deadline = network_deadline(node_.deadline());
    const auto until = now < deadline ? std::min<ddprun::TimePoint>(deadline, now + Waiter::kNap) : now + kLooking;
    const int ready = ::poll(waiting.data(), waiting.size(), poll_timeout(until));
    if (ready < 0 && errno != EINTR) throw_errno("poll failed", errno);
    if (waiting[0].revents != 0) {
        eventfd_t count = 0;
        (void)::eventfd_read(interrupt_.get(), &count);  // only ever read to be emptied
    }
    for (std::size_t i = 1; i < waiting.size(); ++i) {
        if ((waiting[i].revents & POLLRDHUP) != 0) links[i]->sending_broken = true;
    }
    check_late(operation, ready > 0 ? last_moment() : deadline, stream);
}

void Links::interrupt() const { (void)::eventfd_write(interrupt_.get(), 1); }  // fails only when it is set already

}  // namespace ddp::detail
