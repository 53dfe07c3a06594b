#include "rendezvous/store/client/client.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "common/text/number.hpp"
#include "rendezvous/store/client/key_text.hpp"

namespace ddprun::store {
namespace {

using namespace std::chrono_literals;

constexpr Duration kReplyTimeout = 60s;  ///< for an answer that the store owes at once

TimePoint reply_deadline() { return Clock::now() + kReplyTimeout; }

Error unexpected(char answer) {
    return {Errc::kMalformed, fmt::format("unexpected answer {}", static_cast<int>(answer))};
}

}  // namespace

Result<Client> Client::connect(const Endpoint& endpoint, TimePoint deadline, std::string name,
                               const SlowNotice& notice) {
    if (!name.empty()) name += ' ';
    SlowNotice with_name = notice;
    if (notice.report) with_name.report = [&](const std::string& text) { notice.report(name + text); };
    auto stream = connect_stream(endpoint, deadline, with_name);
    if (!stream) return Error{stream.error().code, name + stream.error().message};
    return Client(std::move(*stream), endpoint, std::move(name));
}

Result<void> Client::set(std::string_view key, std::string_view value) {
    if (auto sent = send(request_of(RequestKind::kSet, key, value)); !sent) {
        return give_up("set key " + quoted(key), sent.error());
    }
    return {};
}

Result<void> Client::multi_set(const Pairs& pairs) {
    std::string request = request_of(RequestKind::kMultiSet);
    wire::append_number<std::uint64_t>(request, pairs.size());
    for (const auto& [key, value] : pairs) {
        wire::append_bytes(request, key);
        wire::append_bytes(request, value);
    }
    if (auto sent = send(request); !sent) return give_up(fmt::format("set {} keys", pairs.size()), sent.error());
    return {};
}

Result<std::string> Client::get(std::string_view key, TimePoint deadline) {
    const std::array<std::string, 1> keys{std::string(key)};
    if (auto there = wait(keys, deadline); !there) return there.error();
    auto sent = send(request_of(RequestKind::kGet, key));
    auto value = sent ? stream_.receive_bytes(kReplyTimeout) : sent.error();
    if (!value) return give_up("get key " + quoted(key), value.error());
    return value;
}

Result<std::vector<std::string>> Client::multi_get(std::span<const std::string> keys, TimePoint deadline) {
    if (keys.empty()) return std::vector<std::string>{};
    if (auto there = wait(keys, deadline); !there) return there.error();
    std::vector<std::string> values;
    auto sent = send(request_of(RequestKind::kMultiGet, keys));
    while (sent && values.size() < keys.size()) {
        auto value = stream_.receive_bytes(kReplyTimeout);
        if (!value) return give_up("get " + named(keys), value.error());
        values.push_back(std::move(*value));
    }
    if (!sent) return give_up("get " + named(keys), sent.error());
    return values;
}

Result<std::int64_t> Client::add(std::string_view key, std::int64_t amount) {
    auto sum = ask_number(request_of(RequestKind::kAdd, key, amount));
    if (!sum) return give_up("add to key " + quoted(key), sum.error());
    return sum;
}

Result<void> Client::append(std::string_view key, std::string_view value) {
    if (auto sent = send(request_of(RequestKind::kAppend, key, value)); !sent) {
        return give_up("append to key " + quoted(key), sent.error());
    }
    return {};
}

Result<std::string> Client::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
    std::string request = request_of(RequestKind::kCompareSet, key, expected);
    wire::append_bytes(request, desired);
    auto sent = send(request);
    auto value = sent ? stream_.receive_bytes(kReplyTimeout) : sent.error();
    if (!value) return give_up("compare and set key " + quoted(key), value.error());
    return value;
}

Result<void> Client::wait(std::span<const std::string> keys, TimePoint deadline) {
    const TimePoint begun = Clock::now();
    const auto there = try_wait(keys, deadline);
    if (!there) return there.error();
    if (*there) return {};
    return wait_timeout(keys, Clock::now() - begun);
}

Result<bool> Client::try_wait(std::span<const std::string> keys, TimePoint deadline) {
    const auto failed = [&](const Error& cause) { return give_up("wait for " + named(keys), cause); };
    if (auto sent = send(request_of(RequestKind::kWait, keys)); !sent) return failed(sent.error());
    const auto answer = stream_.receive_byte(deadline);
    if (answer && *answer == wire::kStopWaiting) return true;
    if (answer) return failed(unexpected(*answer));
    if (answer.error().code != Errc::kTimeout) return failed(answer.error());

    const auto last_moment = cancel_wait();
    if (!last_moment) return failed(last_moment.error());
    return *last_moment;
}

Result<bool> Client::cancel_wait() {
    if (auto sent = send(request_of(RequestKind::kCancelWait)); !sent) return sent.error();
    auto answer = stream_.receive_byte(reply_deadline());
    if (!answer) return answer.error();
    const bool arrived = *answer == wire::kStopWaiting;
    // The keys arrived while the request was under way: both answers are sent, in this order.
    if (arrived) answer = stream_.receive_byte(reply_deadline());
    if (!answer) return answer.error();
    if (*answer != wire::kWaitCanceled) return unexpected(*answer);
    return arrived;
}

Error Client::wait_timeout(std::span<const std::string> keys, Duration waited) {
    std::string what = "not set";
    std::string first(keys.empty() ? std::string{} : keys.front());
    if (keys.size() > 1) {
        const auto absent = missing(keys);
        if (!absent) return absent.error();
        what = absent->empty()
                   ? "all set by now"
                   : fmt::format("{} {} not set", quoted_list(*absent), inflect(absent->size(), "is", "are"));
        if (!absent->empty()) first = absent->front();
    }
    return {Errc::kTimeout, fmt::format("{}waited {} for {} at {}: {}{}", name_, rounded_seconds_text(waited),
                                        named(keys), to_string(endpoint_), what, missing_key_hint(endpoint_, first))};
}

Result<bool> Client::check(std::span<const std::string> keys) {
    Batch batch;
    batch.check(keys);
    const auto answers = run(batch);
    if (!answers) return answers.error();
    return answers->front().number == 0;
}

Result<std::vector<std::string>> Client::missing(std::span<const std::string> keys) {
    Batch batch;
    for (const std::string& key : keys) batch.check({&key, 1});
    const auto answers = run(batch);
    if (!answers) return answers.error();
    std::vector<std::string> absent;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if ((*answers)[i].number != 0) absent.push_back(keys[i]);
    }
    return absent;
}

Result<bool> Client::delete_key(std::string_view key) {
    auto deleted = ask_number(request_of(RequestKind::kDeleteKey, key));
    if (!deleted) return give_up("delete key " + quoted(key), deleted.error());
    return *deleted != 0;
}

Result<std::vector<Answer>> Client::run(const Batch& batch) {
    const std::string action = "run " + counted(batch.size(), "request");
    if (auto sent = send(batch.requests()); !sent) return give_up(action, sent.error());
    std::vector<Answer> answers;
    for (const Batch::ReplyKind expected : batch.reply_kinds()) {
        auto answer = receive(expected);
        if (!answer) {
            return give_up(fmt::format("{}, of which {} were answered,", action, answers.size()), answer.error());
        }
        answers.push_back(std::move(*answer));
    }
    return answers;
}

Result<Answer> Client::receive(Batch::ReplyKind expected) {
    switch (expected) {
        case Batch::ReplyKind::kNothing: break;
        case Batch::ReplyKind::kByte: {
            const auto byte = stream_.receive_byte(reply_deadline());
            if (!byte) return byte.error();
            if (*byte != 0 && *byte != 1) return unexpected(*byte);
            return Answer{{}, *byte};
        }
        case Batch::ReplyKind::kNumber: {
            const auto number = stream_.receive_number<std::int64_t>(reply_deadline());
            if (!number) return number.error();
            return Answer{{}, *number};
        }
        case Batch::ReplyKind::kBytes: {
            auto bytes = stream_.receive_bytes(kReplyTimeout);
            if (!bytes) return bytes.error();
            return Answer{std::move(*bytes), 0};
        }
    }
    return Answer{};
}

Result<void> Client::send(std::string_view request) { return stream_.send(request, kReplyTimeout); }

Result<std::int64_t> Client::ask_number(std::string_view request) {
    if (auto sent = send(request); !sent) return sent.error();
    return stream_.receive_number<std::int64_t>(reply_deadline());
}

Error Client::give_up(std::string_view action, const Error& cause) {
    const bool ended = stream_.is_open() && cause.code == Errc::kClosed;
    stream_.close();
    return {cause.code,
            fmt::format("{}cannot {} at {}: {}{}", name_, action, to_string(endpoint_), cause.message,
                        ended ? ". Did the job's launcher or its daemon end, or refuse this request? See the "
                                "output of ddprun, or of ddprund"
                              : "")};
}

}  // namespace ddprun::store
