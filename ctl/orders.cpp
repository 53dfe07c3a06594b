#include "ctl/orders.hpp"

#include <string>

#include "common/exit_codes.hpp"
#include "common/text/escape.hpp"
#include "common/text/print.hpp"
#include "ctl/session.hpp"
#include "ctl/status_text.hpp"

namespace ddprun::ctl {
namespace {

namespace asio = boost::asio;

/// Sends the order and returns its answer.
template <typename Reply>
asio::awaitable<Result<Reply>> answer_to(client::ControlClient& daemon, const protocol::Order& order) {
    const protocol::AgentMessage message = order;
    daemon.send(message);
    while (true) {
        Result<protocol::DaemonMessage> received = co_await next_answer(daemon);
        if (!received) co_return received.error();
        if (auto* reply = std::get_if<Reply>(&*received)) co_return std::move(*reply);
    }
}

int print(const std::string& text) {
    const Result<void> printed = print_to_stdout(text);
    return printed ? exit_code::kSuccess : fail(printed.error(), exit_code::kOutput);
}

asio::awaitable<int> show_status(client::ControlClient& daemon, const StatusOptions& options) {
    const protocol::Order order{.protocol = protocol::kProtocolVersion};
    const auto status = co_await answer_to<protocol::Status>(daemon, order);
    if (!status) co_return fail(status.error(), exit_code::kInfrastructure);
    co_return print(status_text(*status, options));
}

asio::awaitable<int> give_order(client::ControlClient& daemon, const OrderOptions& options) {
    const protocol::Order order{protocol::kProtocolVersion, options.command, options.node};
    const auto answer = co_await answer_to<protocol::Answer>(daemon, order);
    if (!answer) co_return fail(answer.error(), exit_code::kInfrastructure);
    const std::string text = escape_controls(answer->text);
    if (answer->refused) co_return fail({Errc::kRefused, text}, exit_code::kUsage);
    co_return print(text + "\n");
}

}  // namespace

int run_status(const StatusOptions& options) {
    return run_session(options, [&](client::ControlClient& daemon, const Endpoint& /*endpoint*/) {
        return show_status(daemon, options);
    });
}

int run_order(const OrderOptions& options) {
    return run_session(options, [&](client::ControlClient& daemon, const Endpoint& /*endpoint*/) {
        return give_order(daemon, options);
    });
}

}  // namespace ddprun::ctl
