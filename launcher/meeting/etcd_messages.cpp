#include "launcher/meeting/etcd_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "common/text/escape.hpp"
#include "common/text/number.hpp"

namespace ddprun::launcher::etcd {
namespace {

namespace json = boost::json;

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::size_t kMaxShownBytes = 200;
// Codes of gRPC that the gateway passes on.
constexpr std::int64_t kDeadlineExceeded = 4;
constexpr std::int64_t kPermissionDenied = 7;
constexpr std::int64_t kUnavailable = 14;
constexpr std::int64_t kUnauthenticated = 16;

Error malformed(std::string_view body) {
    return {Errc::kMalformed,
            fmt::format("its answer is not that of etcd's v3 API: '{}'", log_line(body, kMaxShownBytes))};
}

json::value parsed(std::string_view body) {
    json::error_code ec;
    json::value value = json::parse(body, ec);
    return ec ? json::value() : value;
}

const json::value* member(const json::value* value, std::string_view key) {
    const json::object* object = value != nullptr ? value->if_object() : nullptr;
    return object != nullptr ? object->if_contains(key) : nullptr;
}

std::string_view text_in(const json::value* value, std::string_view key) {
    const json::value* found = member(value, key);
    return found != nullptr && found->is_string() ? std::string_view(found->get_string()) : std::string_view();
}

const json::value* first_of(const json::value* value, std::string_view key) {
    const json::value* found = member(value, key);
    const json::array* array = found != nullptr ? found->if_array() : nullptr;
    return array != nullptr && !array->empty() ? &array->front() : nullptr;
}

/// Returns the first key-value pair of a range's answer, if it has one.
Result<std::optional<Published>> first_pair(const json::value* range, std::string_view body) {
    const json::value* pair = first_of(range, "kvs");
    if (pair == nullptr) return std::optional<Published>{};
    auto value = from_base64(text_in(pair, "value"));
    const auto version = parse_number<std::int64_t>(text_in(pair, "mod_revision"));
    if (!value || !version) return malformed(body);
    return std::optional(Published{std::move(*value), *version});
}

/// Returns whether `root` is an answer of the API to a request about keys: each has a header with a revision.
std::optional<std::int64_t> revision(const json::value& root) {
    return parse_number<std::int64_t>(text_in(member(&root, "header"), "revision"));
}

json::object compare(std::string_view key, std::string_view target, std::string_view field, std::int64_t number) {
    return {{"key", to_base64(key)}, {"target", target}, {"result", "EQUAL"}, {field, std::to_string(number)}};
}

}  // namespace

std::string to_base64(std::string_view bytes) {
    std::string text;
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
        const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
        unsigned group = 0;
        for (std::size_t i = 0; i < 3; ++i) {
            group = group << 8U | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0U);
        }
        for (std::size_t i = 0; i < 4; ++i) text += i <= count ? kDigits[group >> (18 - 6 * i) & 63U] : '=';
    }
    return text;
}

std::optional<std::string> from_base64(std::string_view text) {
    if (text.size() % 4 != 0) return std::nullopt;
    const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
    std::string bytes;
    unsigned group = 0;
    for (std::size_t i = 0; i < text.size() - padding; ++i) {
        const auto digit = kDigits.find(text[i]);
        if (digit == std::string_view::npos) return std::nullopt;
        group = (group << 6U | static_cast<unsigned>(digit)) & 0xFFFFFFU;
        const std::size_t bits = 6 * (i % 4 + 1);  // of this group
        if (bits >= 12) bytes += static_cast<char>(group >> (bits % 8) & 0xFFU);
    }
    return bytes;
}

std::string range_request(std::string_view key) { return json::serialize(json::object{{"key", to_base64(key)}}); }

std::string claim_request(std::string_view key, std::string_view value, std::optional<std::int64_t> replaces) {
    const json::object expected =
        replaces ? compare(key, "MOD", "mod_revision", *replaces) : compare(key, "CREATE", "create_revision", 0);
    const json::object put{{"request_put", {{"key", to_base64(key)}, {"value", to_base64(value)}}}};
    const json::object get{{"request_range", {{"key", to_base64(key)}}}};
    return json::serialize(
        json::object{{"compare", json::array{expected}}, {"success", json::array{put}}, {"failure", json::array{get}}});
}

std::string withdraw_request(std::string_view key, std::int64_t version) {
    const json::object remove{{"request_delete_range", {{"key", to_base64(key)}}}};
    return json::serialize(json::object{{"compare", json::array{compare(key, "MOD", "mod_revision", version)}},
                                        {"success", json::array{remove}}});
}

std::string login_request(std::string_view user, std::string_view password) {
    return json::serialize(json::object{{"name", user}, {"password", password}});
}

Result<std::optional<Published>> parse_range(std::string_view body) {
    const json::value root = parsed(body);
    if (!revision(root)) return malformed(body);
    return first_pair(&root, body);
}

Result<Claim> parse_claim(std::string_view body, std::string_view value) {
    const json::value root = parsed(body);
    const auto now = revision(root);
    if (!now) return malformed(body);
    const json::value* succeeded = member(&root, "succeeded");  // left out if it is false
    if (succeeded != nullptr && succeeded->is_bool() && succeeded->get_bool()) {
        return Claim{true, Published{std::string(value), *now}};
    }
    auto there = first_pair(member(first_of(&root, "responses"), "response_range"), body);
    if (!there) return there.error();
    const bool mine = *there && (*there)->value == value;
    return Claim{mine, std::move(*there)};
}

Result<std::string> parse_login(std::string_view body) {
    const json::value root = parsed(body);
    const std::string_view token = text_in(&root, "token");
    if (token.empty() || escape_controls(token) != token) return malformed(body);  // it becomes an HTTP header
    return std::string(token);
}

FailedAnswer parse_failure(unsigned status, std::string_view body) {
    const json::value root = parsed(body);
    std::string_view text = text_in(&root, "error");
    if (text.empty()) text = text_in(&root, "message");
    const json::value* code_member = member(&root, "code");
    const std::int64_t code = code_member != nullptr && code_member->is_int64() ? code_member->get_int64() : 0;
    const auto answer = [&](Failure failure) {
        const std::string shown = log_line(text.empty() ? body : text, kMaxShownBytes);
        return FailedAnswer{failure, text.empty() ? fmt::format("HTTP status {}: {}", status, shown) : shown};
    };
    if (text.empty() && body.find("HTTP request to an HTTPS server") != std::string_view::npos)
        return answer(Failure::kWantsTls);
    if (text.empty() && body.starts_with("CommonName of client")) return answer(Failure::kCommonName);
    if (text.empty() && status < 500 && status != 429) return answer(Failure::kNoGateway);
    if (code == kUnauthenticated || text.find("invalid auth token") != std::string_view::npos)
        return answer(Failure::kToken);
    if (code == kPermissionDenied || text.find("permission denied") != std::string_view::npos)
        return answer(Failure::kPermission);
    for (const std::string_view login : {"authentication failed", "user name", "authentication is not enabled"}) {
        if (text.find(login) != std::string_view::npos) return answer(Failure::kLogin);
    }
    if (code == kUnavailable || code == kDeadlineExceeded || status == 429 || status >= 500)
        return answer(Failure::kTryAgain);
    return answer(Failure::kOther);
}

std::optional<std::string> parse_version(std::string_view body) {
    const json::value root = parsed(body);
    const std::string_view version = text_in(&root, "etcdserver");
    return version.empty() ? std::nullopt : std::optional(log_line(version, 50));
}

}  // namespace ddprun::launcher::etcd
