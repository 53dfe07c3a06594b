#include "launcher/ssh_request.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "common/text/number.hpp"

namespace ddprun::launcher {
namespace {

constexpr std::string_view kVersion = "ddprun-hosts 1";
constexpr std::size_t kMaxRequestBytes = 16 << 20;
constexpr std::size_t kMaxHeadBytes = 64;
constexpr std::array<std::string_view, 20> kOfThisHost{"HOME",     "USER", "LOGNAME",    "SHELL",
                                                       "HOSTNAME", "PWD",  "OLDPWD",     "SHLVL",
                                                       "TMPDIR",   "TERM", "DISPLAY",    "MAIL",
                                                       "_",        "TZ",   "COLUMNS",    "LINES",
                                                       "TMP",      "TEMP", "KRB5CCNAME", "DBUS_SESSION_BUS_ADDRESS"};
constexpr std::array<std::string_view, 2> kOfThisLogin{"SSH_", "XDG_"};

void append_text(std::string& request, std::string_view text) { request += fmt::format("{}\n{}", text.size(), text); }

/// SshRequestReader: reads numbers and texts of one request. On the stack of read_ssh_request().
class SshRequestReader {
public:
    explicit SshRequestReader(int fd) : fd_(fd) {}

    /// Returns what comes before the next end of a line. Byte by byte, because signals follow the request.
    Result<std::string> line() {
        std::string text;
        for (;;) {
            auto byte = bytes(1);
            if (!byte) return byte.error();
            if (*byte == "\n") return text;
            text += *byte;
            if (text.size() > kMaxHeadBytes) return Error{Errc::kMalformed, "not a request of ddprun --hosts"};
        }
    }
    Result<std::size_t> count() {
        const auto text = line();
        if (!text) return text.error();
        const auto number = parse_number<std::size_t>(*text);
        if (number && *number <= kMaxRequestBytes) return *number;
        return Error{Errc::kMalformed, "not a request of ddprun --hosts"};
    }
    Result<std::string> text() {
        const auto size = count();
        return size ? bytes(*size) : size.error();
    }
    Result<std::vector<std::string>> list() {
        const auto size = count();
        if (!size) return size.error();
        std::vector<std::string> texts;
        for (std::size_t i = 0; i < *size; ++i) {
            auto next = text();
            if (!next) return next.error();
            texts.push_back(std::move(*next));
        }
        return texts;
    }

private:
    Result<std::string> bytes(std::size_t size) {
        total_ += size;
        if (total_ > kMaxRequestBytes) return Error{Errc::kLimit, "the request of ddprun --hosts is too large"};
        std::string text(size, '\0');
        for (std::size_t done = 0; done < size;) {
            const ssize_t got = ::read(fd_, text.data() + done, size - done);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return Error{Errc::kClosed, "the request of ddprun --hosts is incomplete"};
            done += static_cast<std::size_t>(got);
        }
        return text;
    }

    int fd_;
    std::size_t total_ = 0;
};

}  // namespace

std::string encode(const SshRequest& request) {
    std::string text = fmt::format("{}\n", kVersion);
    append_text(text, request.directory);
    text += fmt::format("{}\n", request.arguments.size());
    for (const std::string& argument : request.arguments) append_text(text, argument);
    text += fmt::format("{}\n", request.environment.size());
    for (const auto& [name, value] : request.environment) append_text(text, fmt::format("{}={}", name, value));
    return text;
}

Result<SshRequest> read_ssh_request(int fd) {
    SshRequestReader reader(fd);
    const auto version = reader.line();
    if (!version) return version.error();
    if (*version != kVersion) {
        return Error{Errc::kMismatch,
                     "the ddprun that has started this one by --hosts has another version. Install the "
                     "same one on all hosts"};
    }
    auto directory = reader.text();
    if (!directory) return directory.error();
    auto arguments = reader.list();
    if (!arguments) return arguments.error();
    const auto variables = reader.list();
    if (!variables) return variables.error();
    SshRequest request{std::move(*directory), std::move(*arguments), {}};
    for (const std::string& variable : *variables) {
        const auto equals = variable.find('=');
        if (equals == std::string::npos) return Error{Errc::kMalformed, "not a request of ddprun --hosts"};
        request.environment.emplace(variable.substr(0, equals), variable.substr(equals + 1));
    }
    return request;
}

Environment variables_for_hosts(Environment environment) {
    std::erase_if(environment, [](const auto& variable) {
        const std::string& name = variable.first;
        return std::ranges::count(kOfThisHost, name) > 0 ||
               std::ranges::any_of(kOfThisLogin, [&](std::string_view start) { return name.starts_with(start); });
    });
    return environment;
}

}  // namespace ddprun::launcher
