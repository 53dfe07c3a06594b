#include "worker_lib/src/native/net/links.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "worker_lib/src/native/net/sockets.hpp"
#include "worker_lib/src/native/protocol/deadlines.hpp"
#include "worker_lib/src/util/error.hpp"

namespace ddp::detail {

namespace {

/// Time for which a rank polls before it sleeps, about as long as falling asleep and being woken take.
constexpr auto kSpinning = std::chrono::microseconds(50);
/// Interval at which an exchange checks the node and its deadline while messages move.
constexpr auto kLooking = std::chrono::milliseconds(10);
/// Interval at which an exchange looks for peers whose hosts acknowledge nothing.
constexpr auto kLookingAtHosts = std::chrono::milliseconds(250);

}  // namespace

Links::Links(std::string group, std::int64_t generation, std::map<int, Link> links, Node& node)
    : generation_(generation),
      links_(std::move(links)),
      node_(node),
      errors_(std::move(group), generation, node),
      spinning_(node.ranks.oversubscribed() ? ddprun::Duration::zero() : kSpinning),
      interrupt_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!interrupt_) throw_errno("cannot create an eventfd", errno);
}

Links::~Links() {
    std::vector<int> sockets;
    for (const auto& [rank, link] : links_) {
        for (std::size_t socket = 0; socket < link.sockets(); ++socket) sockets.push_back(link.fd(socket));
    }
    drain(std::move(sockets), ddprun::Clock::now() + kFinalReportTimeout);
}

/// Begins an exchange. An operation may have many.
void Links::begin(const Operation& operation) {
    flows_.clear();
    if (std::exchange(seq_, operation.seq) == operation.seq) return;
    began_ = ddprun::Clock::now();
    noted_unreachable_ = -1;
    for (auto& [rank, link] : links_) {
        link.lag = {};
        link.heard = false;
        link.reported_waiting = false;
    }
}

Flow Links::make_flow(const Operation& operation, int rank) {
    Flow flow;
    flow.rank = rank;
    flow.link = &links_.at(rank);
    flow.out.header.generation = generation_;
    flow.out.header.signature = signature_of(operation);
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
        flow.out.depends = message.depends;
    }
    for (const InMessage& message : in) {
        Flow& flow = flow_of(message.rank);
        flow.receive(step, message.bytes);
        flow.in.depends = message.depends;
    }
    run(operation, nullptr);
    flows_.clear();
}

void Links::begin(const Operation& operation, std::span<const int> peers) {
    begin(operation);
    for (const int peer : peers) flows_.push_back(make_flow(operation, peer));
}

void Links::go_on(const Operation& operation, MessageStream& stream) {
    run(operation, &stream);
    if (!stream.stops()) flows_.clear();
}

void Links::run(const Operation& operation, MessageStream* stream) {
    bool looked_again = stream == nullptr;
    auto enough = ddprun::TimePoint::max();  // of polling without sleep
    auto look = ddprun::Clock::now() + kLooking;
    for (;;) {
        node_.progress.signal_listening();
        bool moved = false;
        bool waits = false;
        for (std::size_t i = 0; i < flows_.size(); ++i) {
            if (send_some(operation, flows_[i], i, stream)) moved = true;
            if (receive_some(operation, flows_[i], i, stream)) moved = true;
            waits = waits || !flows_[i].sent_all() || !flows_[i].received_all();
        }
        if (stream != nullptr && stream->stops()) break;
        if (const auto now = ddprun::Clock::now(); waits && now >= look) {
            look = now + kLooking;
            node_.failure.check(operation);
            check_late(operation, true, stream);
        }
        // A message that is done, or a result that the stream has computed for one peer, may make others possible.
        if (moved || !looked_again) {
            looked_again = !moved || stream == nullptr;
            enough = ddprun::TimePoint::max();
            continue;
        }
        if (!waits) break;
        node_.failure.check(operation);
        const auto now = ddprun::Clock::now();
        if (enough == ddprun::TimePoint::max()) enough = now + spinning_;
        if (now < enough) {
            ::sched_yield();
            continue;
        }
        wait(operation, stream);
        // A peer that has not read all of a message cannot be ahead of this rank: its last message is its reason.
        for (Flow& flow : flows_) {
            if (flow.link->sending_broken && !flow.sent_all())
                errors_.peer_lost(operation, flow, "it closed the connection");
        }
    }
    // What follows in this operation waits for no other node.
    if (std::exchange(noted_unreachable_, -1) >= 0) operation.record_entry.unreachable(-1);
}

/// Gives a message to a flow. A small one has been read from its owner's memory when this returns.
void Links::give(const Operation& operation, Flow& flow, std::uint32_t step, std::span<const std::byte> bytes,
                 Owner owner) const {
    flow.send(step, bytes, owner);
    if (owner == Owner::kNeighbour) node_.wait.check_read(operation);
}

/// Sends as much as the sockets take. Returns whether a message was finished.
bool Links::send_some(const Operation& operation, Flow& flow, std::size_t peer, MessageStream* stream) const {
    if (!flow.out.active && stream != nullptr) {
        const NextOut next = stream->next_out(peer);
        if (next.readiness == Readiness::kNow) give(operation, flow, next.step, next.bytes, next.owner);
    }
    if (flow.sent_all()) return false;
    flow.send_more();
    if (flow.out.unsealed && flow.out.progress.finished()) {
        node_.wait.check_read(operation);
        flow.seal(Seal::kGood);
        flow.send_more(0);
    }
    if (!flow.sent_all()) return false;
    if (stream != nullptr) {
        flow.out.active = false;
        stream->sent(peer);
    }
    return true;
}

/// Receives the data that the sockets have. Returns whether a message was finished.
bool Links::receive_some(const Operation& operation, Flow& flow, std::size_t peer, MessageStream* stream) const {
    if (!flow.in.active && stream != nullptr) {
        const NextIn next = stream->next_in(peer);
        if (next.readiness == Readiness::kNow) flow.receive(next.step, next.bytes);
    }
    if (flow.received_all()) return false;
    for (std::size_t socket = 0; socket < flow.link->sockets(); ++socket) receive_on(operation, flow, socket);
    if (!flow.received_all()) return false;
    if (flow.in.seal != Seal::kGood) errors_.invalid_payload(operation, flow);
    ++flow.in.completed;
    if (stream != nullptr) {
        flow.in.active = false;
        stream->received(peer);
    }
    return true;
}

/// Reads the data that a socket has of the current message.
void Links::receive_on(const Operation& operation, Flow& flow, std::size_t socket) const {
    const auto lost = [&](const std::string& cause) {
        const std::size_t sockets = flow.link->sockets();
        errors_.peer_lost(operation, flow,
                          sockets == 1 ? cause : fmt::format("{} (connection {} of {})", cause, socket + 1, sockets));
    };
    for (std::size_t taken = 0; flow.expects(socket) && taken < kBytesAtOnce;) {
        const bool had_header = flow.in.progress.has_header();
        const ssize_t now = flow.receive_more(socket);
        if (now > 0) {
            taken += static_cast<std::size_t>(now);
            if (had_header) continue;
            flow.drop_reports();
            if (flow.in.progress.has_header()) {
                flow.link->waiting = {};
                errors_.check_header(operation, flow);
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

/// Returns when a socket is ready, interrupt() is called, or it is time to look at the node again.
void Links::wait(const Operation& operation, const MessageStream* stream) {
    std::vector<pollfd> waiting{{.fd = interrupt_.get(), .events = POLLIN, .revents = 0}};
    std::vector<Link*> links{nullptr};  // by index in `waiting`
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
    const auto limit = node_.progress.limit(kNetworkExtra);
    const auto until = now < limit ? std::min<ddprun::TimePoint>(limit, now + Waiter::kNap) : now + kLooking;
    const int ready = ::poll(waiting.data(), waiting.size(), poll_timeout(until));
    if (ready < 0 && errno != EINTR) throw_errno("poll failed", errno);
    if (waiting[0].revents != 0) {
        eventfd_t count = 0;
        (void)::eventfd_read(interrupt_.get(), &count);  // only ever read to be emptied
    }
    for (std::size_t i = 1; i < waiting.size(); ++i) {
        if ((waiting[i].revents & POLLRDHUP) != 0) links[i]->sending_broken = true;
    }
    check_late(operation, ready > 0, stream);
}

/// Throws as ExchangeErrors::check_late(), at the limit as pauses of this rank have moved it. Before, it reports to the
/// peers that this rank waits itself. `arrives`: the sockets are still ready. Then the limit is later, because the next
/// message may be the final report of a peer; but there is one, because a peer may never stop sending.
void Links::check_late(const Operation& operation, bool arrives, const MessageStream* stream) {
    const auto now = ddprun::Clock::now();
    note_unreachable(operation, now);
    if (node_.progress.look(now) > ddprun::Duration::zero()) {
        for (auto& [rank, link] : links_) link.reported_waiting = false;  // what they know is out of date
    }
    const auto limit = node_.progress.limit(arrives ? kArrivingExtra : kNetworkExtra);
    if (now < limit) return;
    report_waiting(operation);
    errors_.check_late(operation, flows_, now, now - limit, stream);
}

/// Shows in the flight record a peer whose host is silent. Looks at all peers: another one may wait for data that this
/// rank has sent in an earlier operation.
void Links::note_unreachable(const Operation& operation, ddprun::TimePoint now) {
    if (now < unreachable_looked_ + kLookingAtHosts) return;
    unreachable_looked_ = now;
    const auto silent = std::ranges::find_if(links_, [](const auto& entry) { return entry.second.host_is_silent(); });
    const int peer = silent != links_.end() ? silent->second.global_rank : -1;
    if (std::exchange(noted_unreachable_, peer) != peer) operation.record_entry.unreachable(peer);
}

/// Reports to the peers that this rank waits itself, to each once in an operation, and again after a pause. One of them
/// may be an operation ahead, wait for this rank, and take it for the late one. Peers that have a message only in part
/// get the report later, if they take the rest.
void Links::report_waiting(const Operation& operation) {
    MessageHeader report;
    report.step = MessageHeader::kWaiting;
    report.generation = generation_;
    report.signature = signature_of(operation);
    for (auto& [rank, link] : links_) {
        const auto flow = std::ranges::find(flows_, rank, &Flow::rank);
        if (link.reported_waiting || link.sending_broken || !send_queue_is_empty(link.socket.get())) continue;
        if (flow != flows_.end() && !flow->sent_all()) continue;
        const ssize_t sent = ::send(link.socket.get(), &report, sizeof report, MSG_NOSIGNAL | MSG_DONTWAIT);
        link.reported_waiting = sent > 0;
        if (sent > 0 && sent < static_cast<ssize_t>(sizeof report)) link.sending_broken = true;
    }
}

int Links::unreachable() const {
    const auto lost =
        std::ranges::find_if(links_, [](const auto& entry) { return is_unreachable(entry.second.error); });
    return lost != links_.end() ? lost->second.global_rank : -1;
}

void Links::interrupt() const { (void)::eventfd_write(interrupt_.get(), 1); }  // fails only when it is set already

void Links::finish_messages() {
    const auto deadline = ddprun::Clock::now() + kFinalReportTimeout;
    for (Flow& flow : std::exchange(flows_, {})) {
        if (flow.out.unsealed) flow.seal(Seal::kBroken);
        while (flow.cut_off() && !flow.link->sending_broken && wait_for(flow.link->socket.get(), POLLOUT, deadline))
            flow.send_more(0);
        if (flow.cut_off()) flow.link->sending_broken = true;
    }
}

void Links::report_end(const Failure& failure) {
    const auto reported = node_.failure.found_by_others();
    send_final_report(make_note(reported ? *reported : failure), ddprun::Clock::now() + kFinalReportTimeout);
}

void Links::report_end(const Absence& departure) {
    send_final_report(make_note(departure.failure), ddprun::Clock::now());
}

void Links::send_final_report(const FailureNote& note, ddprun::TimePoint deadline) {
    struct {
        MessageHeader header;
        FailureNote note;
    } message{{}, note};
    static_assert(sizeof message == sizeof(MessageHeader) + sizeof(FailureNote), "its header counts all its bytes");
    message.header.step = MessageHeader::kFinalReport;
    message.header.generation = generation_;
    message.header.payload_bytes = sizeof(FailureNote);
    for (auto& [rank, link] : links_) {
        // If it is not delivered, the peer sees the connection end and reports that.
        if (!link.sending_broken)
            (void)send_all(link.socket.get(), std::as_bytes(std::span(&message, 1)), -1, deadline);
        link.sending_broken = true;
        for (std::size_t socket = 0; socket < link.sockets(); ++socket) ::shutdown(link.fd(socket), SHUT_WR);
    }
}

}  // namespace ddp::detail
