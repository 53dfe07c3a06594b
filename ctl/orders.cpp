#include "ctl/orders.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "common/exit_codes.hpp"
#include "common/text/escape.hpp"
#include "common/text/print.hpp"
#include "common/text/words.hpp"
#include "ctl/session.hpp"
#include "ctl/status_text.hpp"

namespace ddprun::ctl {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds kLookInterval{300};

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
    const protocol::Order order{protocol::kProtocolVersion, options.command, options.node, options.deadline};
    const auto answer = co_await answer_to<protocol::Answer>(daemon, order);
    if (!answer) co_return fail(answer.error(), exit_code::kInfrastructure);
    const std::string text = escape_controls(answer->text);
    if (answer->refused) co_return fail({Errc::kRefused, text}, exit_code::kUsage);
    co_return print(text + "\n");
}

/// Notes in `busy` whether the node may have workers. A node that is not in the status has none. A daemon that ends
/// meanwhile changes nothing: the next look shows that.
asio::awaitable<int> look_at(client::ControlClient& daemon, const std::string& node, bool& busy) {
    const protocol::Order order{.protocol = protocol::kProtocolVersion};
    const auto status = co_await answer_to<protocol::Status>(daemon, order);
    if (!status && status.error().code == Errc::kClosed) co_return exit_code::kSuccess;
    if (!status) co_return fail(status.error(), exit_code::kInfrastructure);
    busy = std::ranges::any_of(status->nodes, [&](const auto& shown) { return shown.host == node && shown.busy; });
    co_return exit_code::kSuccess;
}

int wait_until_idle(const OrderOptions& options) {
    const std::string node = name_node(escape_controls(options.node));
    bool over = false;
    const auto ended = [&] {
        over = true;
        // If the daemon alone was killed, the node stops its workers a few seconds later.
        return print(
            fmt::format("the job has ended; if {} still has workers, it stops them when it notices that\n", node));
    };
    for (bool busy = true;; std::this_thread::sleep_for(kLookInterval)) {
        const int code = run_session(
            options,
            [&](client::ControlClient& daemon, const Endpoint& /*endpoint*/) {
                return look_at(daemon, options.node, busy);
            },
            ended);
        if (over || code != exit_code::kSuccess) return code;
        if (!busy) return print(fmt::format("{} runs no workers\n", node));
    }
}

}  // namespace

int run_status(const StatusOptions& options) {
    return run_session(options, [&](client::ControlClient& daemon, const Endpoint& /*endpoint*/) {
        return show_status(daemon, options);
    });
}

int run_order(const OrderOptions& options) {
    OrderOptions found = options;  // the job is looked for once: its ddprun may be connecting again at a later look
    const int code = run_session(options, [&](client::ControlClient& daemon, const Endpoint& endpoint) {
        found.endpoint = endpoint;
        return give_order(daemon, options);
    });
    return options.wait && code == exit_code::kSuccess ? wait_until_idle(found) : code;
}

}  // namespace ddprun::ctl
