#include "tests/sim/trace.hpp"

#include <fmt/format.h>

#include "rendezvous/protocol/json.hpp"

namespace ddprun::sim {

using namespace protocol;
using namespace coordinator;

std::string describe(const daemon::DaemonHappening& what) {
    if (const auto* inquiry = std::get_if<diagnosis::InquiryHappening>(&what)) {
        const auto* request = std::get_if<diagnosis::InspectionRequested>(inquiry);
        return request != nullptr ? fmt::format("inspector {} asks", static_cast<int>(request->inspector))
                                  : "an inspector leaves";
    }
    struct {
        std::string operator()(const NodeMessage& e) const { return fmt::format("{} {}", e.node, encode(e.message)); }
        std::string operator()(const NodeDisconnected& e) const { return fmt::format("{} disconnected", e.node); }
        std::string operator()(const StoreOpened& e) const {
            return fmt::format("store {} opened at {}", number(e.generation), e.port);
        }
        std::string operator()(const StoreFailed& e) const {
            return fmt::format("store {} failed", number(e.generation));
        }
        std::string operator()(const DiagnosisPending&) const { return {}; }
        std::string operator()(const Diagnosed&) const { return {}; }
        std::string operator()(const StarterEnded&) const { return "the starter of the daemon has ended"; }
        std::string operator()(const NoMoreNodes&) const { return "no further node will join"; }
        std::string operator()(const StopRequested&) const { return "the daemon is signaled to stop"; }
        std::string operator()(const Ordered& e) const { return "ddpctl: " + encode(AgentMessage(e.order)); }
        std::string operator()(const Tick&) const { return {}; }
    } text;
    return std::visit(text, std::get<Happening>(what));
}

std::string describe(const daemon::DaemonAction& action) {
    struct {
        std::string operator()(const Send& a) const { return fmt::format("send {} {}", a.node, encode(a.message)); }
        std::string operator()(const Refuse& a) const { return fmt::format("refuse {}: {}", a.node, a.reason); }
        std::string operator()(const Reply& a) const { return "answer ddpctl: " + a.answer.text; }
        std::string operator()(const OpenStore& a) const { return fmt::format("open store {}", number(a.generation)); }
        std::string operator()(const CloseStore& a) const {
            return fmt::format("close store {}", number(a.generation));
        }
        std::string operator()(const Disconnect& a) const { return fmt::format("disconnect {}", a.node); }
        std::string operator()(const EndDaemon& a) const { return fmt::format("end the daemon with {}", a.exit_code); }
        std::string operator()(const diagnosis::ToAgent& a) const {
            return fmt::format("send {} {}", a.node, encode(a.message));
        }
        std::string operator()(const diagnosis::ToInspector& a) const {
            return fmt::format("send inspector {} {}", static_cast<int>(a.inspector), encode(a.message));
        }
        std::string operator()(const diagnosis::Conclusion& a) const { return "conclude " + a.text; }
    } text;
    return std::visit(text, action);
}

}  // namespace ddprun::sim
