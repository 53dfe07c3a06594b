#include "worker_lib/src/native/links.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "worker_lib/src/native/deadlines.hpp"
#include "worker_lib/src/native/sockets.hpp"
#include "worker_lib/src/native/system_error.hpp"

namespace ddp::detail {

namespace {

using std::chrono::milliseconds;

/// For the last words to and from a peer, when something has failed already.
constexpr milliseconds kFarewell{250};

std::span<const std::byte> bytes_of(const auto& value) { return std::as_bytes(std::span(&value, 1)); }

}  // namespace

/// One peer's part in an exchange: a message to it, one from it, or both. Each is a header, then the payload.
struct Links::Flow {
    int rank = 0;
    Link* link = nullptr;
    bool sends = false;
    bool receives = false;
    MessageHeader out_header;
    std::span<const std::byte> out;
    std::size_t sent = 0;
    MessageHeader in_header;
    std::span<std::byte> in;
    std::size_t received = 0;

    [[nodiscard]] bool sent_all() const { return !sends || sent == sizeof(MessageHeader) + out.size(); }
    [[nodiscard]] bool received_all() const { return !receives || received == sizeof(MessageHeader) + in.size(); }
    [[nodiscard]] bool cut_off() const { return sent > 0 && !sent_all(); }
};

Links::Links(std::string group, std::int64_t generation, int own_rank, std::map<int, Link> links, const Node& node)
    : group_(std::move(group)),
      generation_(generation),
      own_rank_(own_rank),
      links_(std::move(links)),
      node_(node),
      interrupt_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!interrupt_) throw_errno("cannot create an eventfd", errno);
}

Links::~Links() = default;

void Links::exchange(const Operation& operation, std::uint32_t step, std::span<const OutMessage> out,
                     std::span<const InMessage> in) {
    std::vector<Flow> flows = make_flows(operation, step, out, in);
    try {
        run(operation, flows);
    } catch (...) {
        cut_ = std::move(flows);
        throw;
    }
}

std::vector<Links::Flow> Links::make_flows(const Operation& operation, std::uint32_t step,
                                           std::span<const OutMessage> out, std::span<const InMessage> in) {
    std::vector<Flow> flows;
    const auto flow_of = [&](int rank) -> Flow& {
        const auto found = std::ranges::find(flows, rank, &Flow::rank);
        if (found != flows.end()) return *found;
        Flow& flow = flows.emplace_back();
        flow.rank = rank;
        flow.link = &links_.at(rank);
        flow.out_header.step = step;
        flow.out_header.generation = generation_;
        flow.out_header.signature = signature_of(operation);
        return flow;
    };
    for (const OutMessage& message : out) {
        Flow& flow = flow_of(message.rank);
        flow.sends = true;
        flow.out = message.bytes;
        flow.out_header.payload_bytes = message.bytes.size();
    }
    for (const InMessage& message : in) {
        Flow& flow = flow_of(message.rank);
        flow.receives = true;
        flow.in = message.bytes;
    }
    return flows;
}

void Links::run(const Operation& operation, std::vector<Flow>& flows) {
    for (;;) {
        bool done = true;
        for (Flow& flow : flows) {
            if (!flow.sent_all()) send_more(flow);
            if (!flow.received_all()) receive_more(operation, flow);
            done = done && flow.sent_all() && flow.received_all();
        }
        if (done) return;
        node_.check_poison(operation);
        node_.say_listening();
        wait(operation, flows);
        for (Flow& flow : flows) {
            if (!flow.link->sending_broken || flow.sent_all()) continue;
            // Whoever has not read all of this message cannot be ahead of us: what it sent last is its reason.
            if (!flow.received_all()) receive_more(operation, flow);
            peer_lost(operation, flow, "it closed the connection");
        }
    }
}

/// Until a socket is ready, somebody interrupts, or it is time to look at the node again.
void Links::wait(const Operation& operation, const std::vector<Flow>& flows) const {
    std::vector<pollfd> waiting{{.fd = interrupt_.get(), .events = POLLIN, .revents = 0}};
    for (const Flow& flow : flows) {
        short events = 0;
        if (!flow.sent_all()) events |= POLLOUT | POLLRDHUP;
        if (!flow.received_all()) events |= POLLIN;
        waiting.push_back({.fd = events == 0 ? -1 : flow.link->socket.get(), .events = events, .revents = 0});
    }
    const auto now = ddprun::Clock::now();
    const auto deadline = network_deadline(node_.deadline());
    const int ready = ::poll(waiting.data(), waiting.size(), poll_timeout(std::min(deadline, now + Waiter::kNap)));
    if (ready < 0 && errno != EINTR) throw_errno("poll failed", errno);
    if (waiting[0].revents != 0) {
        eventfd_t count = 0;
        (void)::eventfd_read(interrupt_.get(), &count);  // only ever read to be emptied
    }
    for (std::size_t i = 0; i < flows.size(); ++i) {
        if ((waiting[i + 1].revents & POLLRDHUP) != 0) flows[i].link->sending_broken = true;
    }
    // What is there to read may be a peer's reason: that comes first, unless data trickles on and on.
    if (now < (ready > 0 ? extended(deadline, kTelling) : deadline)) return;
    throw_late(operation, flows);
}

void Links::throw_late(const Operation& operation, const std::vector<Flow>& flows) const {
    std::vector<int> ranks;
    std::string names;
    for (const Flow& flow : flows) {
        if (flow.sent_all() && flow.received_all()) continue;
        ranks.push_back(flow.rank);
        names += (names.empty() ? "" : " and ") + flow.link->name;
    }
    throw Error(ErrorCode::Timeout,
                fmt::format("group '{}': rank {} waited until its deadline for {} in {}; {} may itself wait for others",
                            group_, own_rank_, names, describe(operation), ranks.size() == 1 ? "that rank" : "each"),
                ranks);
}

void Links::send_more(Flow& flow) const {
    while (!flow.sent_all() && !flow.link->sending_broken) {
        const bool in_header = flow.sent < sizeof(MessageHeader);
        const auto header = bytes_of(flow.out_header);
        const auto rest = in_header ? header.subspan(flow.sent) : flow.out.subspan(flow.sent - header.size());
        const int more = in_header && !flow.out.empty() ? MSG_MORE : 0;
        const ssize_t sent = ::send(flow.link->socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL | more);
        if (sent > 0) {
            flow.sent += static_cast<std::size_t>(sent);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            flow.link->sending_broken = true;  // what the peer sent before it ended may tell why: read that first
        }
    }
}

void Links::receive_more(const Operation& operation, Flow& flow) const {
    while (!flow.received_all()) {
        const auto header = std::as_writable_bytes(std::span(&flow.in_header, 1));
        const bool in_header = flow.received < header.size();
        const auto rest = in_header ? header.subspan(flow.received) : flow.in.subspan(flow.received - header.size());
        const ssize_t received = ::recv(flow.link->socket.get(), rest.data(), rest.size(), 0);
        if (received > 0) {
            flow.received += static_cast<std::size_t>(received);
            if (in_header && flow.received == header.size()) check_header(operation, flow);
        } else if (received == 0) {
            peer_lost(operation, flow, "it closed the connection");
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            peer_lost(operation, flow, ddprun::system_error("receiving failed", errno).message);
        }
    }
}

void Links::check_header(const Operation& operation, const Flow& flow) const {
    const MessageHeader& header = flow.in_header;
    const Signature own = signature_of(operation);
    const auto refuse = [&](const char* what) {
        throw Error(ErrorCode::System, fmt::format("group '{}': {} sent a message {}", group_, flow.link->name, what),
                    {flow.rank});
    };
    if (header.magic != MessageHeader::kMagic) refuse("that is none of ours");
    if (header.step == MessageHeader::kLastWords) raise_note(operation, flow);
    if (header.generation != generation_) refuse("of another generation");
    if (!same_operation(header.signature, own)) {
        throw Error(ErrorCode::Mismatch,
                    fmt::format("group '{}': the ranks called different operations: rank {}: {}, rank {}: {}", group_,
                                own_rank_, describe(own), flow.rank, describe(header.signature)),
                    {flow.rank});
    }
    if (header.step != flow.out_header.step || header.payload_bytes != flow.in.size()) refuse("out of step");
}

void Links::raise_note(const Operation& operation, const Flow& flow) const {
    FailureNote note;
    ddprun::UniqueFd none;
    const auto deadline = ddprun::Clock::now() + kFarewell;
    const auto bytes = std::as_writable_bytes(std::span(&note, 1));
    if (!receive_all(flow.link->socket.get(), bytes, none, deadline)) {
        throw Error(ErrorCode::PeerLost,
                    fmt::format("group '{}': {} has failed and did not say why", group_, flow.link->name), {flow.rank});
    }
    const Error failure = read_note(note);
    if (note.complete != 0) throw cannot_finish(group_, own_rank_, describe(operation), failure);
    throw Error(failure.code(), fmt::format("{} reported: {}", flow.link->name, failure.what()), failure.culprits());
}

/// The connection is broken. If the peer's last message is its failure, that is what we report.
void Links::peer_lost(const Operation& operation, Flow& flow, const std::string& cause) const {
    const auto header = std::as_writable_bytes(std::span(&flow.in_header, 1));
    const bool at_border = flow.received == 0 || !flow.receives || flow.received_all();
    ddprun::UniqueFd none;
    if (at_border && receive_all(flow.link->socket.get(), header, none, ddprun::Clock::now() + kFarewell) &&
        flow.in_header.magic == MessageHeader::kMagic && flow.in_header.step == MessageHeader::kLastWords) {
        raise_note(operation, flow);
    }
    throw Error(ErrorCode::PeerLost,
                fmt::format("group '{}': rank {} lost {} in {}: {}", group_, own_rank_, flow.link->name,
                            describe(operation), cause),
                {flow.rank});
}

void Links::finish_messages() {
    const auto deadline = ddprun::Clock::now() + kFarewell;
    for (Flow& flow : std::exchange(cut_, {})) {
        while (flow.cut_off() && !flow.link->sending_broken && wait_for(flow.link->socket.get(), POLLOUT, deadline))
            send_more(flow);
        if (flow.cut_off()) flow.link->sending_broken = true;
    }
}

void Links::interrupt() const { (void)::eventfd_write(interrupt_.get(), 1); }  // fails only when it is set already

void Links::say_goodbye(const Error& failure) { send_last_words(make_note(failure), ddprun::Clock::now() + kFarewell); }

void Links::say_goodbye(const Absence& departure) {
    send_last_words(make_note(departure.error, Wording::kComplete), ddprun::Clock::now());
}

void Links::send_last_words(const FailureNote& note, ddprun::TimePoint deadline) {
    struct {
        MessageHeader header;
        FailureNote note;
    } message{{}, note};
    message.header.step = MessageHeader::kLastWords;
    message.header.generation = generation_;
    message.header.payload_bytes = sizeof(FailureNote);
    for (auto& [rank, link] : links_) {
        // Not delivered: the peer sees the connection end, and reports that.
        if (!link.sending_broken) (void)send_all(link.socket.get(), bytes_of(message), -1, deadline);
        link.sending_broken = true;
        ::shutdown(link.socket.get(), SHUT_WR);
    }
}

}  // namespace ddp::detail
