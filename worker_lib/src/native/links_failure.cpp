// What Links makes of a message that does not fit, a peer that is late, and a connection that has ended; and how it
// says goodbye.

#include <poll.h>
#include <sys/socket.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "worker_lib/src/exchange.hpp"
#include "worker_lib/src/native/deadlines.hpp"
#include "worker_lib/src/native/links.hpp"
#include "worker_lib/src/native/sockets.hpp"

namespace ddp::detail {

namespace {

using std::chrono::milliseconds;

/// Who ends because somebody else has may be missed before the news of that one comes. In looks, not in time: while a
/// machine stands still no news comes.
constexpr milliseconds kLook{2};
constexpr int kLooksForBetter = 50;
static_assert(sizeof(FailureNote) <= kMostUnsealed, "last words have no seal");
/// A peer that began so much later than we did is waited for so much longer before it is accused of what it may wait
/// for itself: its own deadline comes later.
constexpr milliseconds kMostLag = kTelling;
static_assert(3 * kDoubt + kMostLag < 2 * kTelling, "neighbours give us two kTelling more than messages");

std::span<const std::byte> bytes_of(const auto& value) { return std::as_bytes(std::span(&value, 1)); }

bool all_acknowledge(const Link& link) {
    for (std::size_t socket = 0; socket < link.sockets(); ++socket) {
        if (!acknowledges(link.fd(socket))) return false;
    }
    return true;
}

/// Whether a late peer may itself wait for messages of a third, in all that we wait for.
bool depends(const std::vector<Flow>& flows, const Flow& flow, const Stream* stream) {
    const auto peer = static_cast<std::size_t>(&flow - flows.data());
    if (!flow.sent_all() && !(stream != nullptr ? stream->out_depends(peer) : flow.out_depends)) return false;
    return flow.received_all() || (stream != nullptr ? stream->in_depends(peer) : flow.in_depends);
}

/// Those to accuse of the late ones.
struct Suspects {
    std::vector<const Flow*> flows;
    bool cut_off = false;  ///< their hosts acknowledge nothing
};

/// Hosts that acknowledge nothing; else those who need not wait for a third; else, and of those, whoever has sent the
/// fewest messages: who only waits has sent all that it can.
Suspects suspects(const std::vector<Flow>& flows, const Stream* stream) {
    std::vector<const Flow*> late;
    for (const Flow& flow : flows) {
        if (!flow.sent_all() || !flow.received_all()) late.push_back(&flow);
    }
    std::vector<const Flow*> silent = late;
    std::erase_if(silent, [](const Flow* flow) { return all_acknowledge(*flow->link); });
    if (!silent.empty()) return {std::move(silent), true};
    const auto may_wait = [&](const Flow* flow) { return depends(flows, *flow, stream); };
    if (!std::ranges::all_of(late, may_wait)) std::erase_if(late, may_wait);
    if (late.size() > 1) {
        const auto come = [](const Flow* flow) { return flow->messages_in; };
        const std::uint64_t fewest = come(*std::ranges::min_element(late, {}, come));
        std::erase_if(late, [&](const Flow* flow) { return come(flow) > fewest; });
    }
    return {std::move(late), false};
}

}  // namespace

/// Gives up when it is time to. Who knows best is first, and tells the others: whose messages a host does not even
/// acknowledge; then who waits for one rank; then who waits for one that may itself wait for a third; then who would
/// have to accuse several.
void Links::check_late(const Operation& operation, ddprun::TimePoint limit, const Stream* stream) const {
    const auto now = ddprun::Clock::now();
    if (now < limit) return;
    const auto [accused, cut_off] = suspects(flows_, stream);
    auto doubt = milliseconds(0);
    if (!cut_off) doubt = accused.size() > 1 ? 3 * kDoubt : kDoubt;
    if (!cut_off && accused.size() == 1 && depends(flows_, *accused[0], stream)) doubt += kDoubt;
    if (doubt > kDoubt) {
        ddprun::Duration lag{};
        for (const Flow* flow : accused) lag = std::max(lag, flow->link->lag);
        doubt += std::min(std::chrono::ceil<milliseconds>(lag), kMostLag);
    }
    if (now < extended(limit, doubt)) return;
    std::vector<int> ranks;
    std::vector<std::string> names;
    for (const Flow* flow : accused) {
        ranks.push_back(flow->rank);
        names.push_back(flow->link->name);
    }
    const std::string why =
        cut_off ? "nothing sent there is acknowledged any more: is that host down, or cut off?"
                : fmt::format("{} may itself wait for others", ranks.size() == 1 ? "that rank" : "each");
    throw Error(ErrorCode::Timeout,
                fmt::format("group '{}': {} waited until its deadline for {} in {}; {}", group_, node_.self(),
                            list_of(std::move(names)), describe(operation), why),
                ranks);
}

void Links::check_header(const Operation& operation, Flow& flow) const {
    const MessageHeader& header = flow.in_header;
    const Signature own = signature_of(operation);
    const auto refuse = [&](std::string_view why) {
        throw Error(ErrorCode::System,
                    fmt::format("group '{}': {}: {} got a message that does not fit from {}: {}", group_, describe(own),
                                node_.self(), flow.link->name, why),
                    {flow.rank});
    };
    if (header.magic != MessageHeader::kMagic) refuse("that is none of ours");
    if (header.step == MessageHeader::kLastWords) raise_note(operation, flow);
    if (header.generation != generation_) refuse("of another generation");
    if (header.signature.identity != own.identity) {
        throw mismatch(group_, node_.local(node_.own_index()).name, operation, flow.link->name, header.signature);
    }
    if (header.step != flow.in_step || header.payload_bytes != flow.in.size()) refuse("out of step");
}

/// The header in hand is that of the peer's last words; some of them may lie where the payload was expected.
void Links::raise_note(const Operation& operation, Flow& flow) const {
    FailureNote note;
    const auto bytes = std::as_writable_bytes(std::span(&note, 1));
    const auto come = flow.in.first(std::min(flow.received.done(0) - sizeof(MessageHeader), bytes.size()));
    std::ranges::copy(come, bytes.begin());
    ddprun::UniqueFd none;
    const auto deadline = ddprun::Clock::now() + kFarewell;
    if (!receive_all(flow.link->socket.get(), bytes.subspan(come.size()), none, deadline)) {
        // It went before we had read all: what was still on its way was lost when we wrote to it.
        hear_better(operation);
        throw Error(ErrorCode::PeerLost,
                    fmt::format("group '{}': {} has failed and did not say why", group_, flow.link->name), {flow.rank});
    }
    const Error said = read_note(note);
    const Error failure = note.complete != 0 ? said : reported_by(flow.link->name, said);
    node_.relay(failure, operation.seq - 1);  // our neighbours hear who found out, not that we have heard of it
    throw cannot_finish(group_, node_.self(), describe(operation), failure);
}

/// The connection is broken. If the last that the peer sent is its failure, that is what we report; or what the node
/// hears of another rank's failure or death, for which the peer was ended.
void Links::peer_lost(const Operation& operation, Flow& flow, const std::string& cause) const {
    look_for_reason(operation, flow);
    hear_better(operation);
    throw Error(ErrorCode::PeerLost,
                fmt::format("group '{}': {} lost {} in {}: {}", group_, node_.self(), flow.link->name,
                            describe(operation), cause),
                {flow.rank});
}

/// Throws what the node hears meanwhile of why it cannot go on.
void Links::hear_better(const Operation& operation) const {
    for (int look = 0; look < kLooksForBetter; ++look) {
        node_.say_listening();
        node_.check_failure(operation);
        (void)::poll(nullptr, 0, static_cast<int>(kLook.count()));
    }
}

/// Of what has come some may have been written after a rank of the peer's node had given up.
void Links::not_vouched_for(const Operation& operation, Flow& flow) const {
    flow.receiving = false;  // its last words are next
    peer_lost(operation, flow, "a rank of its node gave up in the midst of a message");
}

/// Reads on to the peer's last words, which come on the first socket, past the messages before them. Throws them if
/// they come.
void Links::look_for_reason(const Operation& operation, Flow& flow) const {
    const int socket = flow.link->socket.get();
    const auto deadline = ddprun::Clock::now() + kFarewell;
    std::array<std::byte, 8192> unwanted;
    ddprun::UniqueFd none;
    for (;; flow.receive(0, {})) {
        if (!flow.receiving) flow.receive(0, {});  // the header of whatever comes
        while (!flow.received.has_header()) {
            const ssize_t now = flow.receive_more(0);
            if (now == 0) return;
            if (now < 0 && (errno != EAGAIN || !wait_for(socket, POLLIN, deadline))) return;
        }
        if (flow.in_header.magic != MessageHeader::kMagic) return;
        if (flow.in_header.step == MessageHeader::kLastWords) raise_note(operation, flow);
        const Stripes payload{.payload_bytes = flow.in_header.payload_bytes, .sockets = flow.link->sockets()};
        const std::size_t come = flow.received.done(0) - sizeof(MessageHeader);
        const std::size_t share = payload.share(0) + seal_bytes(payload.payload_bytes);
        if (share < come) return;
        for (std::size_t left = share - come; left > 0;) {
            const auto some = std::span(unwanted).first(std::min(left, unwanted.size()));
            if (!receive_all(socket, some, none, deadline)) return;
            left -= some.size();
        }
    }
}

void Links::finish_messages() {
    const auto deadline = ddprun::Clock::now() + kFarewell;
    for (Flow& flow : std::exchange(flows_, {})) {
        if (flow.unsealed) flow.seal(Seal::kBroken);
        while (flow.cut_off() && !flow.link->sending_broken && wait_for(flow.link->socket.get(), POLLOUT, deadline))
            flow.send_more(0);
        if (flow.cut_off()) flow.link->sending_broken = true;
    }
}

void Links::say_goodbye(const Error& failure) {
    const auto told = node_.failure_of_others();
    const FailureNote note = told ? make_note(*told, Wording::kComplete) : make_note(failure);
    send_last_words(note, ddprun::Clock::now() + kFarewell);
}

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
        for (std::size_t socket = 0; socket < link.sockets(); ++socket) ::shutdown(link.fd(socket), SHUT_WR);
    }
}

}  // namespace ddp::detail
