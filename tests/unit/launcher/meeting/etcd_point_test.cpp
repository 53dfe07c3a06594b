// A meeting point in etcd, against servers that answer as a real one, or as something else. tests/e2e/meeting_test.cpp
// has the real one.

#include "launcher/meeting/etcd_point.hpp"

#include <atomic>

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/launcher/meeting/http_server.hpp"

using namespace ddprun;
using namespace ddprun::launcher;
using namespace meeting_test;
using namespace std::chrono_literals;

namespace {

const std::string kKey = "ddprun/x";
const std::string kEmpty = http_answer("200 OK", R"({"header":{"revision":"1"}})");

std::string refusal(const std::string& status, const std::string& text, int code) {
    return http_answer(status, R"({"error":")" + text + R"(","code":)" + std::to_string(code) + "}");
}

EtcdSettings at(std::vector<Endpoint> servers, std::chrono::milliseconds limit = 10s) {
    EtcdSettings settings;
    settings.servers = std::move(servers);
    settings.read_timeout = limit;
    return settings;
}

/// Returns the error of a read from a server that always gives `answer`.
Error error_of(const std::string& answer, bool tls = false, std::chrono::milliseconds limit = 10s) {
    HttpServer server([&](const std::string&) { return answer; });
    EtcdSettings settings = at({server.endpoint()}, limit);
    settings.tls.on = tls;
    const auto read = EtcdPoint(settings).read(kKey);
    REQUIRE_FALSE(read.has_value());
    return read.error();
}

}  // namespace

TEST_CASE("a read is one request to the JSON gateway", "[launcher][unit][threads]") {
    HttpServer server([](const std::string&) { return kEmpty; });
    EtcdPoint point(at({server.endpoint()}));
    CHECK(point.read(kKey).value() == std::nullopt);
    CHECK(point.own_address() == "127.0.0.1");
    const auto requests = server.requests();
    REQUIRE(requests.size() == 1);
    CHECK_THAT(requests[0], Catch::StartsWith("POST /v3/kv/range HTTP/1.1\r\n"));
    CHECK_THAT(requests[0], Catch::EndsWith("\r\n\r\n{\"key\":\"ZGRwcnVuL3g=\"}"));
    CHECK_THAT(requests[0], !Catch::Contains("Authorization"));
}

TEST_CASE("the next server is asked when one is down, and first from then on", "[launcher][unit][threads]") {
    Endpoint down;
    {
        const HttpServer ended([](const std::string&) { return ""; });
        down = ended.endpoint();
    }
    HttpServer server([](const std::string&) { return kEmpty; });
    EtcdPoint point(at({down, server.endpoint()}));
    CHECK(point.read(kKey).has_value());
    CHECK(point.read(kKey).has_value());
    CHECK(server.requests().size() == 2);
}

TEST_CASE("a server without a leader, or that closes the connection, is asked again", "[launcher][unit][threads]") {
    std::atomic<int> asked = 0;
    const bool closes = GENERATE(true, false);
    HttpServer server([&](const std::string&) {
        if (++asked > 2) return kEmpty;
        return closes ? std::string() : refusal("503 Service Unavailable", "etcdserver: no leader", 14);
    });
    CHECK(EtcdPoint(at({server.endpoint()})).read(kKey).has_value());
    CHECK(asked == 3);
}

TEST_CASE("a claim whose answer was lost is recognised by its value", "[launcher][unit][threads]") {
    std::atomic<int> asked = 0;
    HttpServer server([&](const std::string&) {
        if (++asked == 1) return std::string();
        return http_answer("200 OK",
                           R"({"header":{"revision":"9"},"responses":[{"response_range":{"kvs":[{"mod_revision":"5",)"
                           R"("value":"bWluZQ=="}]}}]})");
    });
    const Claim claim = EtcdPoint(at({server.endpoint()})).claim(kKey, "mine", std::nullopt).value();
    CHECK(claim.mine);
    CHECK(claim.there == Published{"mine", 5});
}

TEST_CASE("an etcd that cannot be reached is an error after the read timeout", "[launcher][unit][threads]") {
    Endpoint down;
    {
        const HttpServer ended([](const std::string&) { return ""; });
        down = ended.endpoint();
    }
    const auto read = EtcdPoint(at({down}, 500ms)).read(kKey);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().code == Errc::kTimeout);
    CHECK_THAT(read.error().message, Catch::StartsWith("cannot reach etcd at " + to_string(down) + " for 0.5 s (" +
                                                       to_string(down) + ": connection refused). Check that it runs"));
    const Error unknown = EtcdPoint(at({{"no-such-host.invalid", 2379}}, 500ms)).read(kKey).error();
    CHECK_THAT(unknown.message, Catch::Contains("'no-such-host.invalid'"));
}

TEST_CASE("a server that never answers is an error after the read timeout", "[launcher][unit][threads]") {
    std::atomic<bool> over = false;
    HttpServer server([&](const std::string&) {
        over.wait(false);
        return std::string();
    });
    const auto read = EtcdPoint(at({server.endpoint()}, 300ms)).read(kKey);
    over = true;
    over.notify_all();
    REQUIRE_FALSE(read.has_value());
    CHECK_THAT(read.error().message, Catch::Contains("no answer while waiting for an answer"));
}

TEST_CASE("another server than etcd is named as such", "[launcher][unit][threads]") {
    CHECK_THAT(error_of(http_answer("404 Not Found", "<html>")).message,
               Catch::StartsWith("another server than etcd answers at 127.0.0.1:") &&
                   Catch::Contains("(HTTP status 404: <html>). Check --rdzv-endpoint."));
    CHECK_THAT(error_of(http_answer("200 OK", "<html>")).message,
               Catch::StartsWith("cannot read from etcd at 127.0.0.1:") && Catch::Contains("'<html>'"));
    CHECK_THAT(error_of("SSH-2.0-OpenSSH_9.2\r\n").message,
               Catch::StartsWith("no etcd answers at 127.0.0.1:") && Catch::Contains("not HTTP"));
    CHECK_THAT(error_of("SSH-2.0-OpenSSH_9.2\r\n", true).message, Catch::StartsWith("no TLS connection to 127.0.0.1:"));
}

TEST_CASE("an etcd without the v3 gateway is named with its version", "[launcher][unit][threads]") {
    HttpServer server([](const std::string& request) {
        return request.starts_with("GET /version") ? http_answer("200 OK", R"({"etcdserver":"3.3.27"})")
                                                   : http_answer("404 Not Found", "404 page not found\n");
    });
    const Error error = EtcdPoint(at({server.endpoint()})).read(kKey).error();
    CHECK(error.code == Errc::kMismatch);
    CHECK_THAT(error.message,
               Catch::StartsWith("etcd 3.3.27 at 127.0.0.1:") && Catch::Contains("no JSON gateway at /v3"));
}

TEST_CASE("refusals of etcd end the start at once, with what to do", "[launcher][unit][threads]") {
    CHECK_THAT(error_of(refusal("400 Bad Request", "etcdserver: user name is empty", 3)).message,
               Catch::StartsWith("cannot log in to etcd at 127.0.0.1:") && Catch::Contains("username=NAME"));
    CHECK_THAT(error_of(refusal("403 Forbidden", "etcdserver: permission denied", 7)).message,
               Catch::StartsWith("cannot log in to etcd at 127.0.0.1:") && Catch::Contains("username=NAME"));
    CHECK_THAT(error_of("HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n").message,
               Catch::Contains("speaks TLS only: pass --rdzv-conf protocol=https"));
}

TEST_CASE("a user logs in, and again when the token has expired", "[launcher][unit][threads]") {
    std::atomic<int> logins = 0;
    HttpServer server([&](const std::string& request) {
        if (request.starts_with("POST /v3/auth/authenticate"))
            return http_answer("200 OK", R"({"token":"t)" + std::to_string(++logins) + R"("})");
        if (request.find("Authorization: t2\r\n") != std::string::npos) return kEmpty;
        return refusal("401 Unauthorized", "etcdserver: invalid auth token", 16);
    });
    EtcdSettings settings = at({server.endpoint()});
    settings.user = "u";
    settings.password = "p";
    EtcdPoint point(settings);
    const auto first = point.read(kKey);  // a token that is refused right after its login is an error
    REQUIRE_FALSE(first.has_value());
    CHECK(first.error().code == Errc::kMismatch);
    CHECK(point.read(kKey).has_value());  // here the token is an old one
    CHECK(point.read(kKey).has_value());
    CHECK(logins == 2);
    CHECK_THAT(server.requests()[0], Catch::EndsWith(R"({"name":"u","password":"p"})"));
}

TEST_CASE("files for TLS that cannot be used are usage errors", "[launcher][unit]") {
    const TemporaryDirectory temp;
    EtcdSettings settings = at({{"127.0.0.1", 1}});
    settings.tls = {true, (temp.path() / "ca.pem").string(), "", ""};
    const Error absent = EtcdPoint(settings).read(kKey).error();
    CHECK(absent.code == Errc::kUsage);
    CHECK_THAT(absent.message,
               Catch::StartsWith("--rdzv-conf cacert=" + settings.tls.ca_file + ": cannot use this file: "));
    settings.tls = {true, "", temp.file("cert.pem", "nonsense", 0600).string(), "key.pem"};
    CHECK_THAT(EtcdPoint(settings).read(kKey).error().message, Catch::StartsWith("--rdzv-conf cert="));
}
