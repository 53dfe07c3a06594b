#include "worker_lib/src/native/net/exchange_errors.hpp"

#include <poll.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "worker_lib/src/native/net/sockets.hpp"
#include "worker_lib/src/native/protocol/deadlines.hpp"

namespace ddp::detail {

namespace {

using std::chrono::milliseconds;

/// A peer may have ended because of a failure elsewhere, which reaches the node a little later. Counted in looks, not
/// in time, because no report arrives while a machine is suspended.
constexpr milliseconds kLookInterval{2};
constexpr int kLooksForBetterReason = 50;
static_assert(sizeof(FailureNote) <= kMaxUnsealed, "a final report has no seal");
/// A peer that began the operation later than this rank has a later deadline. So it gets that much more time before an
/// error names it for messages that it may itself wait for.
constexpr milliseconds kMaxLag = kReporting;
static_assert(3 * kDoubt + kMaxLag < 2 * kReporting, "neighbours wait 2 * kReporting longer than the network deadline");

bool all_acknowledge(const Link& link) {
    for (std::size_t socket = 0; socket < link.sockets(); ++socket) {
        if (!acknowledges(link.fd(socket))) return false;
    }
    return true;
}

/// Returns whether a late peer may itself wait for messages of a third rank: it has reported that it waits, or it may
/// in both directions that are late.
bool depends(const std::vector<Flow>& flows, const Flow& flow, const MessageStream* stream, ddprun::TimePoint now) {
    if (flow.link->waits(now)) return true;
    const auto peer = static_cast<std::size_t>(&flow - flows.data());
    if (!flow.sent_all() && !(stream != nullptr ? stream->out_depends(peer) : flow.out.depends)) return false;
    return flow.received_all() || (stream != nullptr ? stream->in_depends(peer) : flow.in.depends);
}

/// The late peers that an error names.
struct Suspects {
    std::vector<const Flow*> flows;
    bool cut_off = false;  ///< their hosts acknowledge nothing
};

/// Returns the peers whose hosts acknowledge nothing. If there are none, takes the late peers that need not wait for a
/// third rank, or else all late peers, and returns those of them that have sent the fewest messages. A peer that only
/// waits has sent all that it can.
Suspects suspects(const std::vector<Flow>& flows, const MessageStream* stream, ddprun::TimePoint now) {
    std::vector<const Flow*> late;
    for (const Flow& flow : flows) {
        if (!flow.sent_all() || !flow.received_all()) late.push_back(&flow);
    }
    std::vector<const Flow*> silent = late;
    std::erase_if(silent, [](const Flow* flow) { return all_acknowledge(*flow->link); });
    if (!silent.empty()) return {std::move(silent), true};
    const auto may_wait = [&](const Flow* flow) { return depends(flows, *flow, stream, now); };
    if (!std::ranges::all_of(late, may_wait)) std::erase_if(late, may_wait);
    if (late.size() > 1) {
        const auto completed = [](const Flow* flow) { return flow->in.completed; };
        const std::uint64_t fewest = completed(*std::ranges::min_element(late, {}, completed));
        std::erase_if(late, [&](const Flow* flow) { return completed(flow) > fewest; });
    }
    return {std::move(late), false};
}

}  // namespace

ExchangeErrors::ExchangeErrors(std::string group, std::int64_t generation, Node& node)
    : group_(std::move(group)), generation_(generation), node_(node) {}

void ExchangeErrors::raise(Failure failure) const {
    throw FailureError(std::move(failure), group_, node_.ranks.self());
}

void ExchangeErrors::check_late(const Operation& operation, const std::vector<Flow>& flows, ddprun::TimePoint now,
                                ddprun::Duration overdue, const MessageStream* stream) const {
    const auto [accused, cut_off] = suspects(flows, stream, now);
    auto doubt = milliseconds(0);
    if (!cut_off) doubt = accused.size() > 1 ? 3 * kDoubt : kDoubt;
    if (!cut_off && accused.size() == 1 && depends(flows, *accused[0], stream, now))
        doubt = accused[0]->link->waits(now) ? 3 * kDoubt : 2 * kDoubt;
    if (doubt > kDoubt) {
        ddprun::Duration lag{};
        for (const Flow* flow : accused) lag = std::max(lag, flow->link->lag);
        doubt += std::min(std::chrono::ceil<milliseconds>(lag), kMaxLag);
    }
    if (overdue < doubt) return;
    std::vector<int> ranks;
    std::vector<std::string> names;
    for (const Flow* flow : accused) {
        ranks.push_back(flow->rank);
        names.push_back(flow->link->name);
    }
    const std::string_view why =
        cut_off
            ? "nothing sent there is acknowledged any more: is that host down, or cut off?"
            : ddprun::inflect(ranks.size(), "look at that rank first: it is late, or it waits for another rank itself",
                              "look at those ranks first: each is late, or waits for another rank itself");
    raise({.code = ErrorCode::Timeout,
           .cause = fmt::format("{} waited until its deadline for {} in {}; {}", node_.ranks.self(),
                                ddprun::list_of(std::move(names)), describe(operation), why),
           .culprits = ranks});
}

void ExchangeErrors::check_header(const Operation& operation, Flow& flow) const {
    const MessageHeader& header = flow.in.header;
    const Signature own = signature_of(operation);
    const auto refuse = [&](std::string_view why) {
        raise({.code = ErrorCode::System,
               .cause = fmt::format("{}: {} received an unexpected message from {}: {}", describe(own),
                                    node_.ranks.self(), flow.link->name, why),
               .culprits = {flow.rank}});
    };
    if (header.magic != MessageHeader::kMagic) refuse("it does not come from this library");
    if (header.step == MessageHeader::kFinalReport) raise_note(operation, flow);
    if (header.generation != generation_) refuse("it belongs to another generation");
    if (header.signature.identity != own.identity) {
        node_.failure.check(operation);  // a peer may call something else because this rank has aborted the group
        raise(mismatch(node_.ranks.own_local().name, operation, flow.link->name, header.signature));
    }
    if (header.step != flow.in.step || header.payload_bytes != flow.in.bytes.size())
        refuse("its step or size is wrong");
}

/// Throws the failure of a peer's final report, whose header has been received. Part of the report may lie where the
/// payload was expected.
void ExchangeErrors::raise_note(const Operation& operation, Flow& flow) const {
    FailureNote note;
    const auto bytes = std::as_writable_bytes(std::span(&note, 1));
    const auto arrived = flow.in.bytes.first(std::min(flow.in.progress.done(0) - sizeof(MessageHeader), bytes.size()));
    std::ranges::copy(arrived, bytes.begin());
    ddprun::UniqueFd none;
    const auto deadline = ddprun::Clock::now() + kFinalReportTimeout;
    if (!receive_all(flow.link->socket.get(), bytes.subspan(arrived.size()), none, deadline)) {
        // The peer ended before all was read: a reset, caused by data sent to it, has dropped the rest.
        await_better_reason(operation);
        raise({.code = ErrorCode::PeerLost,
               .cause = fmt::format("{} has failed without reporting the reason", flow.link->name),
               .culprits = {flow.rank}});
    }
    const Failure failure = reported_by(flow.link->name, read_note(note, node_.ranks.group_size()));
    node_.failure.poison(failure, operation.seq - 1);  // neighbours see the rank that found it, not this one
    raise(met_in(describe(operation), failure));
}

void ExchangeErrors::peer_lost(const Operation& operation, Flow& flow, const std::string& cause) const {
    read_final_report(operation, flow);
    await_better_reason(operation);
    raise(
        {.code = ErrorCode::PeerLost,
         .cause = fmt::format("{} lost {} in {}: {}", node_.ranks.self(), flow.link->name, describe(operation), cause),
         .culprits = {flow.rank}});
}

/// Throws the failure that reaches the node within a moment, if one does.
void ExchangeErrors::await_better_reason(const Operation& operation) const {
    for (int look = 0; look < kLooksForBetterReason; ++look) {
        node_.progress.signal_listening();
        node_.failure.check_any(operation);
        (void)::poll(nullptr, 0, static_cast<int>(kLookInterval.count()));
    }
}

void ExchangeErrors::invalid_payload(const Operation& operation, Flow& flow) const {
    flow.in.active = false;  // its final report is next
    peer_lost(operation, flow, "a rank of its node gave up in the middle of a message");
}

/// Skips the peer's messages on the first socket up to its final report, and throws that. Returns if there is none.
void ExchangeErrors::read_final_report(const Operation& operation, Flow& flow) const {
    const int socket = flow.link->socket.get();
    const auto deadline = ddprun::Clock::now() + kFinalReportTimeout;
    std::array<std::byte, 8192> unwanted;
    ddprun::UniqueFd none;
    for (;; flow.receive(0, {})) {
        if (!flow.in.active) flow.receive(0, {});  // the header of the next message
        while (!flow.in.progress.has_header()) {
            const ssize_t now = flow.receive_more(0);
            if (now == 0) return;
            if (now < 0 && (errno != EAGAIN || !wait_for(socket, POLLIN, deadline))) return;
            flow.drop_reports();
        }
        if (flow.in.header.magic != MessageHeader::kMagic) return;
        if (flow.in.header.step == MessageHeader::kFinalReport) raise_note(operation, flow);
        const Stripes payload{.payload_bytes = flow.in.header.payload_bytes, .sockets = flow.link->sockets()};
        const std::size_t arrived = flow.in.progress.done(0) - sizeof(MessageHeader);
        const std::size_t share = payload.share(0) + seal_bytes(payload.payload_bytes);
        if (share < arrived) return;
        for (std::size_t left = share - arrived; left > 0;) {
            const auto some = std::span(unwanted).first(std::min(left, unwanted.size()));
            if (!receive_all(socket, some, none, deadline)) return;
            left -= some.size();
        }
    }
}

}  // namespace ddp::detail
