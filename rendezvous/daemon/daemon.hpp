#pragma once
// Daemon: what the coordinator decides, performed on sockets and timers. It owns the control port, the connections of
// agents and the stores of generations. Lives on the io_context's one thread; the program around it is main.cpp.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/error.hpp"
#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/daemon/inquiries.hpp"
#include "rendezvous/daemon/line_limit.hpp"
#include "rendezvous/store/server.hpp"
#include "rendezvous/transport/channel.hpp"

namespace ddprun::daemon {

inline constexpr std::uint16_t kDefaultPort = 29400;
/// Connections that have not joined yet; more wait in the listener's backlog.
inline constexpr int kMaxStrangers = 256;
/// Connections of ddpctl at one time.
inline constexpr std::size_t kMaxInspectors = 16;
inline constexpr std::chrono::seconds kInspectorIdle{30};

struct DaemonConfig {
    boost::asio::ip::address bind = boost::asio::ip::address_v4::loopback();
    std::uint16_t port = kDefaultPort;  ///< 0: a free one
    coordinator::Config job;
    std::chrono::milliseconds linger{10'000};         ///< without any agent for so long, the daemon ends
    std::chrono::milliseconds handshake_time{2'000};  ///< from the connection to the Join
};

class Daemon : public std::enable_shared_from_this<Daemon> {
public:
    /// Binds the control port. Errors: kInUse or kSystem, with the address and what to do.
    [[nodiscard]] static Result<std::shared_ptr<Daemon>> listen(const boost::asio::any_io_executor& executor,
                                                                DaemonConfig config);
    ~Daemon();

    [[nodiscard]] boost::asio::ip::tcp::endpoint endpoint() const { return endpoint_; }

    /// Serves until the job is finished, no agent is left, or stop(). Then all agents were told and every port is
    /// closed. Returns the exit code of ddprund: 0 after a job's verdict, whatever it says; exit_code::kInfrastructure
    /// when agents stayed away; 128 + signal after stop(signal).
    [[nodiscard]] boost::asio::awaitable<int> run();

    /// Ends run() within about a second: agents are told that the job was stopped.
    void stop(int signal);

private:
    using tcp = boost::asio::ip::tcp;
    using ChannelPtr = std::shared_ptr<transport::Channel>;

    Daemon(tcp::acceptor acceptor, DaemonConfig config);

    // Connections: daemon_sessions.cpp
    void spawn(boost::asio::awaitable<void> task);
    boost::asio::awaitable<void> accept_connections();
    boost::asio::awaitable<void> serve(tcp::socket socket);
    boost::asio::awaitable<void> serve_agent(coordinator::Join join, ChannelPtr channel, std::string peer);
    boost::asio::awaitable<void> serve_inspector(coordinator::Inspect wish, ChannelPtr channel, std::string peer);
    void inquire(const coordinator::NodeId& node, const coordinator::AgentMessage& message);
    [[nodiscard]] bool admit(const coordinator::Join& join, const ChannelPtr& channel);
    void refuse(const ChannelPtr& channel, const coordinator::Rejected& answer);
    void close_later(ChannelPtr channel);
    boost::asio::awaitable<void> say_goodbye();
    void log_stranger(const std::string& line);

    // Decisions: daemon.cpp
    boost::asio::awaitable<void> tick();
    void apply(const coordinator::Event& event);
    void perform(const coordinator::Send& action);
    void perform(const coordinator::Refuse& action);
    void perform(const coordinator::OpenStore& action);
    void perform(const coordinator::CloseStore& action);
    void perform(const coordinator::Disconnect& action);
    void perform(const coordinator::FinishJob& action);
    void perform(const InquiryActions& actions);
    void perform(const ToAgent& action);
    void perform(const ToInspector& action);
    void perform(const Conclusion& action);
    void perform(const JudgingFailure& action);
    void perform(const JudgedFailure& action);
    void log_step(const std::string& reason, Generation before);
    [[nodiscard]] bool deserted(TimePoint now);
    [[nodiscard]] bool verdict_is_missed(TimePoint now) const;
    void drop_idle_inspectors(TimePoint now);
    void end(int exit_code);

    tcp::acceptor acceptor_;
    const DaemonConfig config_;
    const tcp::endpoint endpoint_;
    coordinator::State state_;
    std::optional<coordinator::Event> answer_;  ///< of an action, to be applied after the other actions of its step
    std::map<coordinator::NodeId, ChannelPtr> agents_;
    Inquiries inquiries_;
    struct Inspector {
        ChannelPtr channel;
        TimePoint asked;  ///< the last time
    };
    std::map<InspectorId, Inspector> inspectors_;
    std::uint64_t last_inspector_ = 0;
    ChannelPtr joining_;  ///< whose Join is being decided on
    std::map<Generation, std::unique_ptr<store::StoreServer>> stores_;

    std::optional<int> exit_code_;  ///< set: run() comes to its end
    boost::asio::steady_timer tick_timer_;
    TimePoint alone_since_;
    TimePoint finished_at_;  ///< once the coordinator has given its verdict
    int strangers_ = 0;
    int closing_ = 0;                   ///< channels whose goodbye is under way
    boost::asio::steady_timer closed_;  ///< never expires; cancelled when `closing_` falls to 0
    LineLimit stranger_lines_;
    std::string last_reason_;
};

}  // namespace ddprun::daemon
